"""Embedding tables whose rows are on parameter servers and come for each batch that needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from penstock.parameter_server.arrays import Rows
from penstock.parameter_server.spec import MAX_DIM, MAX_ROWS, Vocabulary
from penstock.trainer.ps.arguments import whole

INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


class Source(Protocol):
    """Where an embedding's rows come from."""

    def look_up(self, space: int, rows: Rows, device: torch.device) -> torch.Tensor:
        """The values of rows, each there once: (rows, dim), on a device.

        They are part of the batch's gradients.
        """


class Embedding(torch.nn.Module):
    """One or several embedding tables of one width, in place of ``torch.nn.Embedding``.

    ``Embedding(1000, 16)`` takes ids of any shape and adds a last dimension of 16.
    ``Embedding([1000, 50], 16)`` has a table for each field: ids of shape (..., 2) give
    (..., 2, 16), and what all fields need comes in one round trip.

    It has no parameters of PyTorch's: its rows are the servers', and change with
    `penstock.trainer.ps.Optimizer`. It can be looked up within a session. What it gives is on the
    device to which it was moved with its model, and otherwise on that of the ids.
    """

    _device: torch.device | None = None  # to which it was moved
    vocabulary: Vocabulary | None = None
    """When ids get rows, of a table that is keyed by them."""

    def __init__(
        self,
        sizes: int | Sequence[int],
        dim: int,
        names: Sequence[str] | None = None,
        std: float = 1.0,
    ) -> None:
        """``sizes``: rows of each table; ``std``: deviation of the noise that they begin with.

        ``names``: of the tables, for errors and exports; default: 0, 1, 2, ...

        Raises:
            ValueError: a number is out of range; names it.
        """
        super().__init__()
        self._single = not isinstance(sizes, Iterable) or np.ndim(sizes) == 0
        each: Iterable[Any] = (sizes,) if self._single else cast("Iterable[Any]", sizes)
        self.sizes = tuple(whole("sizes", size, 1, MAX_ROWS - 1) for size in each)
        self.dim = whole("dim", dim, 1, MAX_DIM)
        self.std = std
        self.names = None if names is None else tuple(names)
        if not self.sizes:
            raise ValueError("sizes: empty; there is at least one table")
        if not (std >= 0 and math.isfinite(std)):
            raise ValueError(f"std: {std}; a finite number of at least 0")
        if self.names is not None and len(self.names) != len(self.sizes):
            raise ValueError(f"names: {len(self.names)} for {len(self.sizes)} tables")
        if self.names is not None and len(set(self.names)) != len(self.names):
            raise ValueError(f"names: {list(self.names)}; each table needs its own")
        if self.names is not None and not all(self.names):
            raise ValueError(f"names: {list(self.names)}; none may be empty")
        self._limits = np.array(self.sizes, np.int64)
        self._source: Source | None = None
        self._space = 0
        self._starts = self._limits

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        return f"{list(self.sizes)}, {self.dim}"

    def table_names(self, module: str) -> list[str]:
        """The names of the tables in a model where this module has the given name."""
        if self._single and self.names is None:
            return [module]
        names = self.names or [str(number) for number in range(len(self.sizes))]
        return [f"{module}.{name}" for name in names]

    def connect(self, source: Source | None, space: int, starts: Sequence[int]) -> None:
        """Look rows up at a source: ``starts`` says where each table begins in a space there."""
        self._source, self._space = source, space
        self._starts = np.array(starts, np.int64)

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> Self:
        """Carry out ``model.to(...)``: there is nothing to move, but the device is known then."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        before = self._device if self._device is not None else torch.device("cpu")
        after = fn(torch.empty(0, device=before)).device
        if after != before:
            self._device = after
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the module, in this process or another, is in no session."""
        return {**self.__dict__, "_source": None}

    # PyTorch leaves the decorator untyped.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of these ids.

        Raises:
            ValueError: an id is out of range, or the shape or type is wrong.
            RuntimeError: no session has been entered.
        """
        rows = self._rows(ids)
        if self._source is None:
            raise RuntimeError(
                "this ps.Embedding is looked up outside a session: its rows are on the servers, "
                "within `with ps.session(model, optimizer, ...)` of a model that it is part of"
            )
        unique, inverse = np.unique(rows, return_inverse=True)
        device = self._device if self._device is not None else ids.device
        values = self._source.look_up(self._space, unique, device)
        places = torch.from_numpy(inverse.reshape(rows.shape)).to(device, non_blocking=True)
        return functional.embedding(places, values)

    def _rows(self, ids: torch.Tensor) -> Rows:
        """The rows within the space, in the shape of the ids."""
        numbers = self._numbers(ids)
        fields = len(self.sizes)
        if not self._single and (numbers.ndim == 0 or numbers.shape[-1] != fields):
            raise ValueError(
                f"ids: shape {list(numbers.shape)}; the last dimension is one id for each of the "
                f"{fields} tables"
            )
        bad = (numbers < 0) | (numbers >= self._limits)
        if bad.any():
            self._refuse(numbers, bad)
        rows: Rows = numbers + self._starts
        return rows

    def _numbers(self, ids: torch.Tensor) -> Rows:
        """The ids on the host."""
        if not isinstance(ids, torch.Tensor):
            raise ValueError(f"ids: a {type(ids).__name__}; they are a tensor of integers")
        if ids.dtype not in INTEGERS:
            raise ValueError(f"ids: of type {ids.dtype}; they are integers, such as torch.int64")
        numbers: Rows = ids.detach().cpu().numpy().astype(np.int64, copy=False)
        return numbers

    def _refuse(self, numbers: Rows, bad: NDArray[np.bool_]) -> None:
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        field = 0 if self._single else where[-1]
        name = self.names[field] if self.names else str(field)
        raise ValueError(
            f"ids: {int(numbers[where])} of field {name} at {list(where)}; its table has rows 0 to "
            f"{self.sizes[field] - 1} ({int(bad.sum())} ids are out of range)"
        )


class DynamicEmbedding(Embedding):
    """One table that is keyed by ids, any 64-bit integers: a row is made when an id turns up.

    Ids need no numbering: hashes of words, or numbers of users who come and go. The table has
    ``capacity`` rows, in its servers' memory from the start; plan a quarter more than there are ids
    at a time. Where it is full, the row that was seen least recently makes room. A row's first
    values come from the seed, the table's name and the id alone. `Session.state_dict` has the ids
    beside the weights, as ``NAME.ids``.
    """

    def __init__(
        self,
        capacity: int,
        dim: int,
        *,
        admit_after: int = 1,
        evict_after: int | None = None,
        std: float = 1.0,
    ) -> None:
        """See `penstock.parameter_server.spec.Vocabulary`.

        Args:
            capacity: rows at most.
            dim: numbers in a row.
            admit_after: an id gets its row with the so-manieth batch that trains on it; before that
                it reads as zeros.
            evict_after: a row goes when no batch has trained on it for so many batches, of all
                workers; None: only when another one needs the room.
            std: deviation of the noise that rows begin with.

        Raises:
            ValueError: a number is out of range; names it.
        """
        super().__init__(whole("capacity", capacity, 1, MAX_ROWS - 1), dim, std=std)
        most = (1 << 31) - 1
        self.vocabulary = Vocabulary(
            admit_after=whole("admit_after", admit_after, 1, most),
            evict_after=None if evict_after is None else whole("evict_after", evict_after, 1, most),
        )

    def _rows(self, ids: torch.Tensor) -> Rows:
        """The ids themselves."""
        return self._numbers(ids)
