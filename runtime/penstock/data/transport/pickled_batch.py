"""Batches of the program's own classes, between a process and its child.

Nothing that comes over a network is unpickled. A local worker is the program's own child over a
socket that has no name, and may send what PyTorch's workers may: any picklable object. Its arrays
and tensors travel as those of all batches do, in shared memory.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, Final

import numpy as np

LARGE_BYTES: Final = 64 << 10


def take_apart(batch: Any) -> list[Any]:
    """A batch as its pickled shell, followed by the arrays and tensors in it.

    A large shell, as one with many texts or bytes in it, is an array of bytes.

    Raises:
        Exception: it cannot be pickled: whatever its classes raise.
    """
    shell = io.BytesIO()
    pickler = _Pickler(shell)
    pickler.dump(batch)
    pickled = shell.getvalue()
    large = len(pickled) > LARGE_BYTES
    return [np.frombuffer(pickled, np.uint8) if large else pickled, *pickler.arrays]


def put_together(parts: list[Any]) -> Any:
    """The batch that `take_apart` was given.

    Raises:
        Exception: whatever its classes raise.
    """
    shell, *arrays = parts
    return _Unpickler(io.BytesIO(shell), arrays).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.arrays: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        """Arrays by their number."""
        if not _is_plain(obj):
            return None
        self.arrays.append(obj)
        return len(self.arrays) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, pid: Any) -> Any:
        """The array of that number."""
        return self._arrays[pid]


def _is_plain(value: Any) -> bool:
    """Whether it is an array or tensor that batches carry as bytes."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "biufc"
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return False
    return bool(
        value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_nested
        and not value.is_conj()
        and not value.is_neg()
    )
