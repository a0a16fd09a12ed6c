"""A whole model in one file: all partitions, what they have seen, and what the model is.

Which server owned what is not in it, so it fits any number of servers; and of another number of
partitions as well, each of which is then gathered from those of the file. It is written and read
partition by partition: nobody holds more than one in memory. The newest file that is whole counts;
a damaged one is passed over, in one line of the log (see `penstock.job.atomic_file`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from penstock.data.ledger.ranges import RangeSet
from penstock.job import atomic_file
from penstock.job.protocol import DataSpec
from penstock.job.storage import BEGIN_ANEW
from penstock.parameter_server.arrays import Floats, cut, shapes_of, sizes_of
from penstock.parameter_server.buckets import Buckets
from penstock.parameter_server.spec import FLOAT_BYTES, ModelSpec
from penstock.parameter_server.worker.rekeying import keyed_anew

logger = logging.getLogger(__name__)

MAGIC: Final = b"PNSTKPS1"
_HEAD: Final = struct.Struct("<8sQ")  # magic, bytes of the header
_ALIGNMENT: Final = 16
MAX_HEADER_BYTES: Final = 64 << 20


class CheckpointError(Exception):
    """A checkpoint that cannot be used; says which file and why."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk and the number of slots that its model has seen."""

    path: Path
    slots: int


class ModelFile:
    """One checkpoint, open for reading. Raises CheckpointError if it is none, or of other data."""

    def __init__(self, path: Path, spec: ModelSpec, data: DataSpec) -> None:
        self.path = path
        self._wanted = spec
        header = _read_header(path)
        try:
            self.spec = ModelSpec.model_validate(header["spec"])
            self.applied = RangeSet((int(a), int(b)) for a, b in header["applied"])
            self.pushes = int(header["pushes"])
            there = dict(header["data"])
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: its header makes no sense: {error}") from error
        self._check(there, data)
        self._offsets = [int(header["start"])]
        for partition in range(self.spec.partitions):
            size = FLOAT_BYTES * sum(sizes_of(self.spec, partition))
            self._offsets.append(self._offsets[-1] + size)
        if path.stat().st_size != self._offsets[-1] + atomic_file.DIGEST_BYTES:
            raise CheckpointError(f"{path}: its size does not fit the model in it")

    def partition(self, partition: int) -> list[Floats]:
        """The arrays of a partition of the model that is wanted."""
        if self.spec.partitions == self._wanted.partitions:
            return self._stored(partition)
        return self._gathered(partition)

    def _check(self, there: dict[str, Any], data: DataSpec) -> None:
        alike = self.spec.model_dump() | {"partitions": self._wanted.partitions}
        difference = ModelSpec.model_validate(alike).difference(self._wanted)
        if difference is not None:
            raise CheckpointError(
                f"{self.path}: it is of another model: now {difference}; {BEGIN_ANEW}"
            )
        for name, value in data.model_dump().items():
            if there.get(name) != value:
                raise CheckpointError(
                    f"{self.path}: {name} is {value} now and {there.get(name)} in it; {BEGIN_ANEW}"
                )

    def _stored(self, partition: int) -> list[Floats]:
        sizes = sizes_of(self.spec, partition)
        with self.path.open("rb") as file:
            file.seek(self._offsets[partition])
            flat = np.fromfile(file, np.float32, sum(sizes))
        if len(flat) < sum(sizes):
            raise CheckpointError(f"{self.path}: cut off while it was read")
        return cut(flat, sizes)

    @cached_property
    def _mapped(self) -> list[list[Floats]]:
        """All partitions as they are stored; nothing is read before it is looked at."""
        start, stop = self._offsets[0], self._offsets[-1]
        if start == stop:
            return [[] for _ in range(self.spec.partitions)]  # an empty range cannot be mapped
        count = (stop - start) // FLOAT_BYTES
        numbers = np.memmap(self.path, np.float32, "r", offset=start, shape=(count,))
        bounds = [(offset - start) // FLOAT_BYTES for offset in self._offsets]
        return [
            cut(numbers[first:last], sizes_of(self.spec, partition))
            for partition, (first, last) in enumerate(pairwise(bounds))
        ]

    def _gathered(self, partition: int) -> list[Floats]:
        """A partition of another division: row by row, from where each is in this one."""
        wanted, count = self._wanted, self.spec.partitions
        found = [np.empty(shape, np.float32) for shape in shapes_of(wanted, partition)]
        stored, at = self._mapped, 0
        for number, places in enumerate(wanted.places):
            arrays = range(at, at + len(wanted.widths(number)))
            at = arrays.stop
            if isinstance(places, Buckets):
                old_arrays = [[old[array] for array in arrays] for old in stored]
                found[arrays.start : at] = keyed_anew(wanted, number, partition, old_arrays)
                continue
            place = np.arange(partition, places.rows, wanted.partitions)
            there, index = place % count, place // count
            for array in arrays:
                rows = found[array]
                for old in np.unique(there):
                    mine = there == old
                    rows[mine] = stored[old][array].reshape(-1, rows.shape[1])[index[mine]]
        start, stop = wanted.dense_range(partition)
        if wanted.optimizer.counted:  # the same number in every partition
            found[-1][...] = stored[0][-1]
        for array in range(at, at + 1 + wanted.optimizer.states):
            for old, theirs in enumerate(stored):
                low, high = self.spec.dense_range(old)
                first, last = max(start, low), min(stop, high)
                if first < last:
                    found[array][first - start : last - start] = theirs[array][
                        first - low : last - low
                    ]
        return found


class ModelFiles:
    """The checkpoints of one job in one folder; only the chief writes there, and no other job."""

    def __init__(self, folder: Path, spec: ModelSpec, data: DataSpec, keep: int = 3) -> None:
        self.folder = folder
        self._files = atomic_file.Series(folder, "slots", keep)
        self._spec = spec
        self._data = data
        self._verified: tuple[Path, int] | None = None  # and when it was written

    def check_folder(self) -> None:
        """Raises CheckpointError: nothing can be written there, which is better known at once."""
        try:
            self._files.check_folder()
        except atomic_file.FolderError as error:
            raise CheckpointError(str(error)) from error

    def list(self) -> list[Saved]:
        """All checkpoints by name, newest first; not checked."""
        return [Saved(path, slots) for path, slots in self._files.list()]

    def newest(self) -> Saved | None:
        """The newest checkpoint that is whole; damaged ones are named in the log."""
        for saved in self.list():
            try:
                written = (saved.path, saved.path.stat().st_mtime_ns)
                if written != self._verified:
                    atomic_file.verify(saved.path)
                    self._verified = written
            except (atomic_file.DamagedError, OSError) as error:
                logger.warning("%s: taking the one before it", error)
                continue
            return saved
        return None

    def open(self, saved: Saved) -> ModelFile:
        """Raises CheckpointError: it is damaged, or of another model or other data."""
        return ModelFile(saved.path, self._spec, self._data)

    def write(
        self, applied: RangeSet, pushes: int, partitions: Iterable[Sequence[NDArray[Any]]]
    ) -> Saved:
        """Write all partitions, in order. Raises OSError, and what ``partitions`` raises."""
        self._files.mark.claim()
        saved = Saved(self._files.path(applied.total), applied.total)
        atomic_file.write(saved.path, self._parts(applied, pushes, partitions))
        self._files.discard_older(saved.slots)
        return saved

    def _parts(
        self, applied: RangeSet, pushes: int, partitions: Iterable[Sequence[NDArray[Any]]]
    ) -> Iterator[Any]:
        header: bytes = msgpack.packb(
            {
                "spec": self._spec.model_dump(mode="json"),
                "data": self._data.model_dump(mode="json"),
                "applied": [list(part) for part in applied],
                "pushes": pushes,
            }
        )
        header += b"\0" * (-len(header) % _ALIGNMENT)
        yield _HEAD.pack(MAGIC, len(header))
        yield header
        count = 0
        for partition, arrays in enumerate(partitions):
            sizes = [array.size for array in arrays]
            if sizes != sizes_of(self._spec, partition):
                raise CheckpointError(
                    f"partition {partition} has arrays of {sizes} numbers; the model has "
                    f"{sizes_of(self._spec, partition)}"
                )
            for array in arrays:
                yield np.ascontiguousarray(array, np.float32).data.cast("B") if array.size else b""
            count += 1
        if count != self._spec.partitions:
            raise CheckpointError(f"{count} partitions of {self._spec.partitions} were given")


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise CheckpointError(f"{path}: cut off after {len(head)} bytes")
            magic, length = _HEAD.unpack(head)
            if magic != MAGIC and magic[:-1] == MAGIC[:-1]:
                there, here = (one[-1:].decode("ascii", "replace") for one in (magic, MAGIC))
                raise CheckpointError(
                    f"{path}: of format {there}, and this release reads {here}: take the release "
                    "that wrote it, or another checkpoint_dir"
                )
            if magic != MAGIC or length > MAX_HEADER_BYTES:
                raise CheckpointError(f"{path}: not a checkpoint of parameter servers")
            unpacker = msgpack.Unpacker(max_buffer_size=MAX_HEADER_BYTES)
            unpacker.feed(file.read(length))  # zeros behind it align what follows
            header = unpacker.unpack()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except (ValueError, msgpack.UnpackException) as error:
        raise CheckpointError(f"{path}: its header makes no sense: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: its header makes no sense")
    return {**header, "start": _HEAD.size + length}
