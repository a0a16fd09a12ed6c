"""Saved batches, read: as they were made, in that order, each checked before it is given.

They are a sequence, which may be cut into ranges, and so a dataset too: PyTorch's DataLoader and
`penstock.data.DataLoader` take it with ``batch_size=None``. It can be pickled, and read by several
processes and threads at once.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, overload

import numpy as np

from penstock.data.errors import DataError, SavedError
from penstock.data.regular_file import open_regular
from penstock.data.saved.files import get_index
from penstock.data.saved.index import INDEX_NAME, MAGIC, Index, Row, Shard, digest_of, read_table
from penstock.data.transport.layout import Layout

logger = logging.getLogger(__name__)

OPEN_SHARDS: Final = 4
SAME: Final = (
    "%s: %d SAVED BATCHES ARE READ: they are the same in every epoch, in the order in which they "
    "were made; random augmentation does not change any more, and nothing is shuffled"
)


class OpenShard:
    """One file of a folder, whose table was found to be right."""

    def __init__(self, folder: Path, shard: Shard) -> None:
        """Raises SavedError: it is cut, changed, another's or not there; names it."""
        self.path = folder / shard.name
        try:
            self._file = open_regular(self.path)
            size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise SavedError(f"{self.path}: {error.strerror}") from error
        if size != shard.bytes:
            raise SavedError(
                f"{self.path}: it has {size} bytes and was saved with {shard.bytes}: it was cut or "
                "changed"
            )
        if self._read(len(MAGIC), 0).tobytes() != MAGIC:
            raise SavedError(f"{self.path}: it is no file of saved batches")
        table = self._read(shard.table_bytes, size - shard.table_bytes).tobytes()
        try:
            self.rows: list[Row] = read_table(shard, table)
        except ValueError as error:
            raise SavedError(f"{self.path}: {error}: it was changed, or is another's") from error

    def read(self, number: int) -> tuple[bytes, np.ndarray[Any, Any]]:
        """Structure and arrays of one of its batches.

        Raises:
            SavedError: they are not those that were saved; names the file.
        """
        row = self.rows[number]
        structure = self._read(row.structure_bytes, row.offset).tobytes()
        body = self._read(row.body_bytes, row.offset + row.structure_bytes)
        if digest_of(structure, [body], len(body)) != row.digest:
            raise SavedError(f"{self.path}: batch {number} of it was changed: its digest is wrong")
        return structure, body

    def _read(self, size: int, offset: int) -> np.ndarray[Any, Any]:
        into = np.empty(size, np.uint8)
        left, descriptor = into.data, self._file.fileno()
        while len(left):
            try:
                got = os.preadv(descriptor, [left], offset)
            except OSError as error:
                raise SavedError(f"{self.path}: {error.strerror}") from error
            if not got:
                raise SavedError(f"{self.path}: it was cut while it was read")
            left, offset = left[got:], offset + got
        return into

    def close(self) -> None:
        """Let go of the file; done too when nobody refers to this any more."""
        if (file := getattr(self, "_file", None)) is not None:
            file.close()

    def __del__(self) -> None:
        self.close()


class SavedBatches:
    """See the module's docstring."""

    def __init__(self, folder: Path, index: Index, numbers: range) -> None:
        """``numbers``: of the batches that are in it; see `load`."""
        self.folder = folder
        self.index = index
        self._numbers = numbers
        self._firsts = [shard.first for shard in index.shards]
        self._open: OrderedDict[int, OpenShard] = OrderedDict()
        self._layout: Layout | None = None

    def __getstate__(self) -> tuple[Path, Index, range]:
        return self.folder, self.index, self._numbers

    def __setstate__(self, state: tuple[Path, Index, range]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # as it was made, with nothing open

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        """The batches; each iterator is one epoch."""
        return (self._batch(number) for number in self._numbers)

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice) -> SavedBatches: ...
    def __getitem__(self, number: int | slice) -> Any:
        """One batch; of a slice those of it, of which none is read yet.

        Raises:
            IndexError: there is no such batch.
            SavedError: its file is not as it was saved.
        """
        if isinstance(number, slice):
            return SavedBatches(self.folder, self.index, self._numbers[number])
        return self._batch(self._numbers[number])

    def _batch(self, number: int) -> Any:
        at = bisect_right(self._firsts, number) - 1
        shard = self._shard(at)
        structure, body = shard.read(number - self._firsts[at])
        layout = self._layout
        try:
            if layout is None or layout.structure != structure:
                self._layout = layout = Layout(structure)
            return layout.batch(body, len(body))
        except DataError as error:
            raise SavedError(f"{shard.path}: batch {number}: {error}") from error

    def _shard(self, at: int) -> OpenShard:
        """The file of that number, opened; few are open at once."""
        found = self._open.get(at)
        if found is None:
            found = self._open[at] = OpenShard(self.folder, self.index.shards[at])
            while len(self._open) > OPEN_SHARDS:
                self._open.popitem(last=False)  # closed with its last reader
        return found


def load(folder: str | Path) -> SavedBatches:
    """The batches that were saved to a folder.

    Raises:
        SavedError: there are none, they are not all there, or a file is foreign or was changed, as
            far as its size tells; what else is wrong with one is found when it is read.
    """
    path = Path(folder).absolute()
    index = get_index(path)
    if index is None:
        raise SavedError(f"{path}: no {INDEX_NAME} in it: no batches were saved there")
    if not index.complete:
        raise SavedError(
            f"{path}: {index.batches} batches are saved, and not all: save them again to the same "
            "folder, which goes on from there"
        )
    named = {shard.name: shard for shard in index.shards}
    for file in path.glob("batches-*.bin"):
        if file.name not in named:
            raise SavedError(f"{file}: it is not of this index: it is a foreign file")
    for shard in index.shards:
        try:
            size = (path / shard.name).stat().st_size
        except OSError as error:
            raise SavedError(f"{path / shard.name}: {error.strerror}") from error
        if size != shard.bytes:
            raise SavedError(
                f"{path / shard.name}: it has {size} bytes and was saved with {shard.bytes}: it "
                "was cut or changed"
            )
    logger.warning(SAME, path, index.batches)
    return SavedBatches(path, index, range(index.batches))
