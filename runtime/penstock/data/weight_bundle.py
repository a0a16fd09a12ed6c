"""The large tensors of a function, in one piece that is named by the SHA-256 of its bytes.

What travels with a pipeline is that name; which part of the piece is which tensor, and of what type
and shape, is in the function's pickle. The bytes are the program's own tensors where they were
gathered, and a mapping of one file elsewhere: nobody holds a copy.
"""

from __future__ import annotations

import bisect
import hashlib
from typing import Any, Final

from penstock.data.errors import PipelineTooLargeError

LEAST_BYTES: Final = 1 << 20
"""Of a tensor that leaves the pickle."""
MAX_BYTES: Final = 16 << 30
"""Of all such tensors of one function."""
ALIGNMENT: Final = 64
"""As PyTorch aligns what it allocates: kernels may round by it."""


class Weights:
    """See the module's docstring; a copy elsewhere has the name alone, until `attach`.

    Attributes:
        digest: SHA-256 of all bytes.
        size: in bytes.
    """

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest = digest
        self.size = size
        self._offsets: list[int] = []  # of the parts, which do not overlap
        self._parts: list[memoryview] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Weights, (self.digest, self.size)

    @property
    def there(self) -> bool:
        """Whether the bytes are here."""
        return bool(self._parts)

    def attach(self, memory: Any, offset: int = 0) -> None:
        """Some of the bytes, or all of them, are in this buffer."""
        where = bisect.bisect(self._offsets, offset)
        self._parts.insert(where, memoryview(memory).cast("B"))
        self._offsets.insert(where, offset)

    def piece(self, offset: int, size: int) -> memoryview:
        """Bytes that lie together, where they lie.

        Raises:
            LookupError: they are not here.
        """
        number = bisect.bisect(self._offsets, offset) - 1
        if number >= 0:
            begin = offset - self._offsets[number]
            if begin + size <= len(self._parts[number]):
                return self._parts[number][begin : begin + size]
        raise LookupError(f"{size} bytes at {offset} of weights that are not here")

    def read(self, offset: int, size: int) -> list[memoryview]:
        """Bytes for a message, as the buffers that they lie in; between tensors there are zeros."""
        found: list[memoryview] = []
        at, end = offset, min(offset + size, self.size)
        first = max(0, bisect.bisect(self._offsets, at) - 1)
        for begin, part in zip(self._offsets[first:], self._parts[first:], strict=True):
            if at < begin:
                found.append(memoryview(bytes(min(begin, end) - at)))
                at += len(found[-1])
            if at < min(end, begin + len(part)):
                found.append(part[at - begin : end - begin])
                at += len(found[-1])
            if at >= end:
                break
        return found


class Gathering:
    """Puts tensors' bytes one after the other."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._parts: list[tuple[int, Any]] = []
        self._size = 0

    def add(self, memory: Any) -> int:
        """Where in the piece these bytes come.

        Raises:
            PipelineTooLargeError: it would have more than `MAX_BYTES`.
        """
        view = memoryview(memory).cast("B")
        gap = -self._size % ALIGNMENT
        if self._size + gap + len(view) > MAX_BYTES:
            raise PipelineTooLargeError(f"its tensors have more than {MAX_BYTES >> 30} GiB")
        self._digest.update(bytes(gap))
        self._digest.update(view)
        offset = self._size + gap
        self._parts.append((offset, memory))
        self._size = offset + len(view)
        return offset

    def weights(self) -> Weights | None:
        """All that was added; None: nothing was."""
        if not self._parts:
            return None
        found = Weights(self._digest.digest(), self._size)
        for offset, memory in self._parts:
            found.attach(memory, offset)
        return found
