"""Batches on their way to disk, file by file, and on from where it was cut short.

A kill at any moment costs the file that was being written and nothing else: the batches of those
that the index names are passed over when the same loader is saved again, and each is held against
its digest, so that batches of two runs that differ never come into one folder.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.data.errors import NotPortableError, SavedError
from penstock.data.saved.files import (
    NO_ROOM,
    TEMPORARY,
    NewFile,
    flat,
    get_index,
    locked,
    no_room,
    put_index,
    size_text,
)
from penstock.data.saved.index import (
    ALIGNMENT,
    MAGIC,
    Index,
    Row,
    Shard,
    Source,
    digest_of,
    pack_table,
    shard_name,
    table_digest,
)
from penstock.data.saved.reading import OpenShard, SavedBatches, load
from penstock.data.transport.batch_codec import Packer

logger = logging.getLogger(__name__)

SHARD_BYTES: Final = 256 << 20
"""A file is ended by the batch with which it has so many."""
LEAST_SHARD_BYTES: Final = 1 << 10


class BatchWriter:
    """Saves the batches of one epoch to a folder; a context manager, which keeps what is whole."""

    def __init__(
        self,
        folder: str | Path,
        source: Source | None = None,
        *,
        expected: int | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        """Begin, or go on from where an earlier run was cut short.

        Args:
            folder: it is made if it is not there.
            source: what the batches are made of; must be that of the earlier run.
            expected: how many batches there will be, if that is known.
            shard_bytes: of a file, more or less.

        Raises:
            SavedError: it cannot be saved there; says why.
            ValueError: an argument cannot be used.
        """
        if shard_bytes < LEAST_SHARD_BYTES:
            raise ValueError(f"shard_bytes: {shard_bytes}; must be at least {LEAST_SHARD_BYTES}")
        self.folder = Path(folder).absolute()
        self._expected = expected
        self._shard_bytes = shard_bytes
        self._packer = Packer()
        self._file: NewFile | None = None
        self._rows: list[Row] = []
        self._at = 0
        self._known: tuple[Shard, list[Row]] | None = None
        self._ended = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = contextlib.ExitStack()
            self._lock.enter_context(locked(self.folder))
        except OSError as error:
            raise SavedError(f"{self.folder}: {error.strerror}: no batches are saved") from error
        except ValueError as error:
            raise SavedError(f"{str(self.folder)!r}: {error}: no batches are saved") from error
        try:
            self.index = self._begin(dict(source or {}))
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, source: Source) -> Index:
        found = get_index(self.folder)
        if found is None:
            if strange := sorted(self.folder.glob("batches-*.bin")):
                self._keep_first(Index(source), strange)
            found = Index(source)
        elif dict(found.source) != source:
            raise SavedError(
                f"{self.folder}: it has batches of {_told(found.source)}, and these are of "
                f"{_told(source)}: save to another folder"
            )
        elif not found.complete:
            if found.batches:
                logger.info("%s: %d batches are saved already", self.folder, found.batches)
            self._keep_first(found, sorted(self.folder.glob("batches-*.bin")))
        for file in self.folder.glob(f"*{TEMPORARY}"):
            if file.name.startswith(("batches-", "index.json")):
                file.unlink()
        return found

    def _keep_first(self, index: Index, there: list[Path]) -> None:
        """Remove the file that was renamed when the index did not name it yet.

        Raises:
            SavedError: there is one that no run of this can have left.
        """
        named = {shard.name for shard in index.shards}
        for file in there:
            if file.name == shard_name(index.batches):
                file.unlink()
            elif file.name not in named:
                raise SavedError(f"{file}: it is not of this folder's index: a foreign file")

    @property
    def batches(self) -> int:
        """Batches that are saved, whatever happens."""
        return self.index.batches

    @property
    def complete(self) -> bool:
        """Whether all batches are saved."""
        return self.index.complete

    def pass_over(self, count: int) -> None:
        """The next so many batches are those that are saved already, and are not given again.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= count <= self.batches - self._at:
            raise ValueError(f"count: {count}; {self.batches - self._at} more are saved already")
        self._at += count

    def add(self, batch: Any) -> None:
        """The next batch of the epoch; of those that are saved, it is compared with what is there.

        Raises:
            SavedError: it cannot be saved, there is no room, or it is another than was saved.
        """
        try:
            packed = self._packer.pack(batch)
        except NotPortableError as error:
            raise SavedError(f"{self.folder}: batch {self._at} cannot be saved: {error}") from error
        parts = [flat(part) for part in packed.parts]
        digest = digest_of(packed.structure, parts, packed.size)
        if self._at < self.batches:
            self._compare(digest)
        else:
            self._write(packed.structure, parts, packed.size, digest)
        self._at += 1

    def _compare(self, digest: bytes) -> None:
        known = self._known
        if known is None or not known[0].first <= self._at < known[0].stop:
            shard = next(one for one in self.index.shards if self._at < one.stop)
            opened = OpenShard(self.folder, shard)
            known = self._known = shard, opened.rows
            opened.close()
        shard, rows = known
        if rows[self._at - shard.first].digest != digest:
            raise SavedError(
                f"{self.folder / shard.name}: batch {self._at} is another than the one that was "
                "saved: saving is gone on with only where a run makes the same batches again (its "
                "sampler and its random numbers are seeded); delete the folder to begin anew"
            )

    def _write(self, structure: bytes, parts: list[Any], size: int, digest: bytes) -> None:
        needed = len(structure) + size
        try:
            if self._file is None:
                self._file = NewFile(self.folder / shard_name(self.batches))
                self._file.write([MAGIC])
            file = self._file
            file.write([bytes(-file.size % ALIGNMENT)])
            row = Row(file.size, len(structure), size, digest)
            file.write([structure, *parts])
            self._rows.append(row)  # not before it is there: whoever interrupts keeps what is whole
            if file.size >= self._shard_bytes:
                self._commit()
        except OSError as error:
            self._fail(error, needed)
        if self._at == 0:
            self._look_ahead(needed)

    def _look_ahead(self, size: int) -> None:
        """Say at once if what is to come can hardly have room."""
        needed = size * max(0, (self._expected or 0) - 1)
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            logger.warning(
                "%s: %d batches like the first need about %s more, and %s are free",
                self.folder,
                self._expected,
                size_text(needed),
                size_text(free),
            )

    def _commit(self) -> None:
        """What was written counts from now on; raises OSError."""
        file, rows = self._file, self._rows
        if file is None:
            return
        table = pack_table(rows)
        file.write([table])
        file.commit()
        first = self.batches
        digest = table_digest(first, table)
        index = self.index.with_shard(Shard(file.path.name, first, len(rows), file.size, digest))
        self._file, self._rows = None, []
        put_index(self.folder, index)
        self.index = index

    def _fail(self, error: OSError, needed: int) -> None:
        """Have nothing half-written, and say what happened; `needed`: bytes of the batch."""
        written = sum(row.body_bytes + row.structure_bytes for row in self._rows)
        seen = max(1, len(self._rows) + self.batches)
        self._drop()
        if self._expected is not None:
            each = (written + self.index.bytes) / seen
            needed = max(needed, int(each * (self._expected - self.batches)))
        else:
            needed = max(needed, written)
        if error.errno in NO_ROOM:
            raise no_room(self.folder, error, needed, self.batches) from error
        raise SavedError(
            f"{self.folder}: {error.strerror}; {self.batches} batches are saved and stay"
        ) from error

    def _drop(self) -> None:
        self._ended = True
        if self._file is not None:
            self._file.drop()
        self._file, self._rows = None, []

    def finish(self) -> None:
        """That was the last batch: the folder can be loaded.

        Raises:
            SavedError: there is no room for what is left, or there were more batches before.
        """
        if self._at < self.batches:
            raise SavedError(
                f"{self.folder}: {self.batches} batches were saved by a run before, and this one "
                f"had {self._at}: they are not of the same epoch; delete the folder to begin anew"
            )
        try:
            self._commit()
            complete = replace(self.index, complete=True)
            put_index(self.folder, complete)
            self.index = complete
        except OSError as error:
            self._fail(error, 0)
        self.close()

    def close(self) -> None:
        """Save what there is, if there is room, and end; after an error there is nothing to save.

        Raises:
            SavedError: it could not be saved.
        """
        try:
            if not self._ended:
                self._ended = True
                self._commit()
        except OSError as error:
            self._fail(error, 0)
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def save(loader: Any, folder: str | Path, *, shard_bytes: int = SHARD_BYTES) -> SavedBatches:
    """Save one epoch of a loader, any iterable of batches; what was saved before is not made again.

    A folder that is complete already is left as it is.

    Raises:
        SavedError: a batch cannot be saved, there is no room, or the folder has other batches.
    """
    source, expected = describe(loader), _length(loader)
    with BatchWriter(folder, source, expected=expected, shard_bytes=shard_bytes) as writer:
        if not writer.complete:
            if getattr(loader, "begins_anywhere", False) and writer.batches > 1:
                _go_on(loader, writer)
            for batch in loader:
                writer.add(batch)
            writer.finish()
    return load(folder)


def _go_on(loader: Any, writer: BatchWriter) -> None:
    """Have a loader begin with the last batch that is saved, by which the others are judged."""
    state = loader.state_dict()
    if state["position"] == 0:
        writer.pass_over(writer.batches - 1)
        loader.load_state_dict({**state, "position": writer.batches - 1})


def describe(loader: Any) -> dict[str, str | int | None]:
    """What a loader's batches are made of, as far as it can be told by name."""
    dataset = getattr(loader, "dataset", None)
    return {
        "loader": type(loader).__qualname__,
        "dataset": None if dataset is None else type(dataset).__qualname__,
        "batches": _length(loader),
    }


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _told(source: Source) -> str:
    return ", ".join(f"{key} {value}" for key, value in source.items() if value is not None)
