"""Memory for the arrays of batches that come over a connection, plain or coded.

One body comes at a time: it is read into memory of a pool, decoded into other memory of it where it
came coded, and taken before the next message is received.
"""

from __future__ import annotations

from penstock.data.errors import FrameError
from penstock.data.transport import dictionary_coding, frame, zstd_coding
from penstock.data.transport.blocks import Pool, Root


class ReceivedBodies:
    """The body that has just come, until it is taken. For one thread."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._root: Root | None = None

    def allocate(self, size: int) -> memoryview:
        """Where a body of so many bytes is to be read to."""
        self._root = self._pool.allocate(size)
        return self._root.data[:size]

    def decode(self, coding: object, body: memoryview, size: object) -> None:
        """The body came coded: from here on it is what was coded, of ``size`` bytes.

        Raises:
            FrameError: it is not of that coding, or not of that size.
        """
        if not isinstance(size, int) or not 0 < size <= frame.MAX_BODY_BYTES:
            raise FrameError(f"a batch of {str(size)[:20]} bytes")
        if coding == zstd_coding.CODING:
            zstd_coding.check(body, size)
        root = self._pool.allocate(size)
        if coding == zstd_coding.CODING:
            zstd_coding.decode(body, root.data[:size])
        else:
            dictionary_coding.decode(coding, body, root.data[:size])
        self._root = root

    def take(self, size: int) -> Root:
        """The body, of at least ``size`` bytes.

        Raises:
            FrameError: none such came.
        """
        root, self._root = self._root, None
        if root is None or root.size < size:
            if size == 0:
                return self._pool.allocate(0)
            raise FrameError("a batch without its arrays")
        return root
