"""Checkpoints: model, optimizer, ledger position and sample counts in one file, or none of them.

A checkpoint is written to a temporary file, synced, and renamed; its last bytes are a checksum of
all the others. So a file under its final name is whole or detectably damaged, and a damaged one is
passed over for the one before it, in one line of the log. Writing happens on a thread of its own,
from a copy of the state that was taken between two steps, as
`penstock.trainer.group.host_copies` and `penstock.trainer.snapshot.memory` make it; the newest
``keep`` files stay. A state that comes while the one before it is being written waits, in the place
of what waited: the training never waits for a disk. One that is full or hangs holds nothing up: the
write is tried again, and those before it stay.

A copy is made only where the pod has memory for it beside what this process takes again in its next
step (`penstock.data.spare_memory`); what others of the pod take again is not known. Where it has
none, the state is written out of the training's own tensors while the training waits
(`penstock.trainer.snapshot.lent`), or left out where the one before it is still being written;
either is one line of the log. A session asks first whether there is a place for the copy, and saves
at a later step where there is none yet (`penstock.trainer.snapshot.schedule`). A training of one
process is not killed for a copy.

Under an agent the copy itself is a snapshot that survives the process, and the first to be taken up
again. Whatever is taken up is read once, and checked while it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.crds import environment as names
from penstock.crds.conditions import JobReason
from penstock.data.spare_memory import SpareMemory
from penstock.job import atomic_file
from penstock.job.protocol import MAX_TEXT, Trouble
from penstock.job.storage import (
    LAST_SECONDS,
    MEND,
    RETRY_SECONDS,
    TOO_SLOW,
    Backoff,
    advice,
    cause,
    not_on_disk,
    not_saved,
)
from penstock.trainer.checkpoint_file import CheckpointError, write
from penstock.trainer.group.cuda_copies import CudaTransport, finish_kernels
from penstock.trainer.group.host_copies import Copier, PinnedCopier
from penstock.trainer.group.state_codec import NoRoomError, PackedState, lend, pack
from penstock.trainer.object_storage import ObjectStorage
from penstock.trainer.snapshot.lent import Lent, Way, WithdrawnError, way_without_copy
from penstock.trainer.snapshot.memory import SnapshotMemory
from penstock.trainer.stored_states import Saved, StoredStates

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
END_SECONDS: Final = 5.0
"""For a writer that is through to free what it wrote."""
PINNED_SHARE: Final = 4
"""The part of the pod's memory that may be page-locked for copies of the state: a quarter."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A state that is to be kept."""

    step: int
    packed: PackedState
    to_disk: bool
    lent: Lent | None = None
    """Its tensors are the training's own; None: copies."""


class CheckpointDir:
    """The checkpoints of one job in one folder. Only the group's first member writes there.

    Where another job writes to it, this one does not (`penstock.job.folder_mark`).

    One state at most is being written and one waits, the newest. Where a write fails, or hangs, the
    training goes on: `trouble` says so, and what waits is tried again.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 3,
        write_seconds: float = LAST_SECONDS,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        copier: Copier | None = None,
        memory: SnapshotMemory | None = None,
        storage: ObjectStorage | None = None,
    ) -> None:
        self.folder = folder
        self._keep = keep
        self._files = atomic_file.Series(folder, "step", keep)
        self._memory = memory or SnapshotMemory.of_process()
        self.room = self._memory.room
        """Of this process's memory, for copies."""
        self._storage = storage
        self.stored = StoredStates(self._files, self._memory, storage)
        self._write_seconds = write_seconds
        self._retry_seconds = retry_seconds
        self._copier = copier or PinnedCopier(
            CudaTransport(), partial(_most_pinned_bytes, self.room)
        )
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None
        self._ending: threading.Thread | None = None  # the newest one, as long as it may live
        self._pending: _Waiting | None = None  # not on disk yet
        self._began: float | None = None  # when the write that is going on did
        self._taken: _Waiting | None = None  # a copy that is being written, and may be tried again
        self._failure = ""  # of the newest write
        self._advice = MEND  # what to do about it
        self._hangs = False  # said in the log
        self._said: Way | None = None  # what became of the newest state; None: it was copied
        self._fault: Exception | None = None  # of this program

    def check_folder(self) -> None:
        """Raises CheckpointError: nothing can be written there, which is better known at once."""
        try:
            self._files.check_folder()
        except atomic_file.FolderError as error:
            raise CheckpointError(str(error)) from error

    def list(self) -> list[Saved]:
        """As `StoredStates.list`."""
        return self.stored.list()

    def save(
        self,
        step: int,
        state: Any,
        *,
        wait: bool = False,
        to_disk: bool = True,
        last: bool = False,
    ) -> None:
        """Keep a state as of ``step``; it may change once this returns.

        This waits for no disk, except where there is no memory for a copy: what waits gives way to
        what is newer.

        Args:
            step: steps that the state's model has seen.
            state: as `penstock.trainer.group.state_codec` has it.
            wait: until it is on disk, as `wait` does.
            to_disk: else it is kept in memory, if that outlives this process.
            last: the state is not changed before `wait`, which is called next, has returned.

        Raises:
            StateError: the state has no plain form.
            CheckpointError: with ``wait``, as `wait` does; or the writer itself is at fault.
        """
        if not to_disk and not self._memory.keeps:
            return
        with self._changed:
            self._check_fault()
            if self._pending is not None:
                to_disk = to_disk or self._pending.to_disk
            # There is no memory for three; what is being written may fail, and this find no room.
            self._drop(but=self._taken)
            writing = self._began is not None
        try:
            packed = pack(state, self._copier, self._memory, self.room)
        except NoRoomError as error:
            way = way_without_copy(to_disk=to_disk, writing=writing, last=last or wait)
            if to_disk:
                self._say(way, step, error.size)
            if way is Way.LEFT_OUT:
                return
            kept = _Waiting(step, lend(state), to_disk, Lent(stays=last or wait))
            finish_kernels(kept.packed.tensors)
        else:
            kept, self._said = _Waiting(step, packed, to_disk), None
        with self._changed:
            self._pending = kept
            if self._writer is None:
                self._writer = self._ending = threading.Thread(
                    target=self._write_all, name="penstock-checkpoint", daemon=True
                )
                self._writer.start()
            self._changed.notify_all()
        if wait:
            self.wait()
        elif kept.lent is not None and not last and not kept.lent.wait(self._write_seconds):
            with self._changed:
                self._noted(kept, TOO_SLOW)
                self._drop()

    def has_place(self) -> bool:
        """Whether a save now finds a place for its copy, or nothing is known that is in its way.

        False: the state that is being written has the only one.
        """
        with self._changed:
            taken, writing = self._taken, self._began is not None
        return not writing or (taken is not None and self._memory.has_other(taken.packed))

    @property
    def trouble(self) -> str:
        """Why checkpoints are not written at present; empty: nothing is known to fail."""
        with self._changed:
            if self._failure:
                return not_saved(self.folder, self._failure, self._advice)
            late = self._began is not None and time.monotonic() - self._began > self._write_seconds
            return not_saved(self.folder, _hanging(self._write_seconds)) if late else ""

    def troubles(self) -> tuple[Trouble, ...]:
        """The same for the trainer, to be asked for now and then: the log has a hang once."""
        own = self.trouble
        with self._changed:
            if own and not self._failure and not self._hangs and self._began is not None:
                logger.warning("%s", own)
                self._hangs = True
        found = (own, "" if self._storage is None else self._storage.trouble)
        return tuple(
            Trouble(reason=JobReason.CHECKPOINTS_NOT_WRITTEN, message=trouble[:MAX_TEXT])
            for trouble in found
            if trouble
        )

    def wait(self, waits_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until the last checkpoint is on disk: it is tried again for a while.

        Args:
            waits_on: called a few times a second meanwhile; False: wait no longer.

        Raises:
            CheckpointError: it is not, and the time is over; says where, why and what to do.
        """
        deadline = time.monotonic() + self._write_seconds
        while True:
            with self._changed:
                written = self._changed.wait_for(self._is_idle, POLL_SECONDS)
                self._check_fault()
                why = self._failure or _hanging(self._write_seconds)
                what_to_do = self._advice
            copied = self._storage is None or self._storage.is_idle
            if (written and copied) or not waits_on():
                with self._changed:
                    if self._pending is not None and self._pending.lent is not None:
                        self._drop()  # the caller may change it now
                return
            if written:
                time.sleep(POLL_SECONDS)
            if time.monotonic() > deadline:
                trouble = "" if self._storage is None else self._storage.trouble or "it is slow"
                self.forget()
                if written:
                    raise CheckpointError(f"the trained model is on disk alone: {trouble}")
                raise CheckpointError(not_on_disk(self.folder, why, what_to_do))

    def abandon(self, seconds: float) -> None:
        """Wait for so long at most; what is not on disk by then may be lost, and this is said."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or bool(self._failure), seconds)
            if not self._is_idle():
                logger.warning("left while a checkpoint was being written: the one before it stays")
            self._drop()

    def forget(self) -> None:
        """Write nothing more of what waits: somebody else has newer checkpoints to write."""
        with self._changed:
            self._drop()
            self._failure, self._advice = "", MEND
        if self._storage is not None:
            self._storage.forget()

    def close(self) -> None:
        """Leave the agent's memory to another session of this pod.

        A writer that has nothing to do still frees what it wrote last. Were that in the middle when
        the interpreter ends, the process would be aborted. The mark of one that still writes stays
        in the folder: it goes with the writer, or with this process.
        """
        with self._changed:
            writer, idle = self._ending, self._is_idle()
        if writer is not None and idle:
            writer.join(END_SECONDS)
        if writer is None or not writer.is_alive():
            self._files.mark.close()
        self._memory.close()

    # ------------------------------------------------------------------ with the lock

    def _is_idle(self) -> bool:
        return self._pending is None and self._began is None

    def _drop(self, but: _Waiting | None = None) -> None:
        """Keep nothing of what is not on disk yet, except for this."""
        if self._pending is not None and self._pending.lent is not None:
            self._pending.lent.withdraw()
        self._pending = self._taken = but
        self._changed.notify_all()

    def _say(self, way: Way, step: int, size: int) -> None:
        """Say what becomes of states that are not copied, once until it is another thing."""
        if way is not self._said:
            no_room = f"the pod has no {size / 1e6:.0f} MB to spare for a copy of the state"
            what = (
                "checkpoints are written while the training waits"
                if way is Way.IN_PLACE
                else f"the checkpoint of step {step} is left out, as the one before it is still "
                "being written"
            )
            logger.warning("%s: %s; with more memory neither is needed", what, no_room)
        self._said = way

    def _check_fault(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise CheckpointError(f"a checkpoint was not written: {fault!r}") from fault

    # ------------------------------------------------------------------ on the thread

    def _write_all(self) -> None:
        """Write what waits, again and again where that fails, until nothing does."""
        backoff = Backoff(self._retry_seconds)
        while (taken := self._take()) is not None:
            error: Exception | None = None
            try:
                self._write(taken)
            except Exception as caught:  # noqa: BLE001  (told to the training's thread)
                error = caught
            with self._changed:
                self._began = self._taken = None
                again = taken.lent is None or taken.lent.stays
                heals = isinstance(error, OSError | MemoryError)
                if error is None:
                    self._noted(taken, "")
                elif heals:
                    self._noted(taken, cause(error), advice(error))
                elif not isinstance(error, WithdrawnError):
                    self._fault = error
                if heals and again:
                    backoff.failed()
                    self._changed.wait_for(lambda: self._pending is not taken, backoff.pause)
                elif self._pending is taken:
                    self._pending = None
                self._changed.notify_all()
            if taken.lent is not None and not again:
                taken.lent.end()

    def _take(self) -> _Waiting | None:
        with self._changed:
            if self._pending is None:
                self._writer = None
                return None
            self._began = time.monotonic()
            self._taken = self._pending if self._pending.lent is None else None
            return self._pending

    def _noted(self, taken: _Waiting, why: str, what_to_do: str = MEND) -> None:
        """What has become of a write; ``why`` it failed, "" if it did not. With the lock."""
        if not why:
            if self._failure or self._hangs:
                logger.info("checkpoints are written to %s again", self.folder)
            self._failure, self._advice, self._hangs = "", MEND, False
        elif self._pending is not None or taken.lent is not None:
            if not self._failure:
                logger.warning("%s", not_saved(self.folder, why, what_to_do))
            self._failure, self._advice = why, what_to_do
        self._changed.notify_all()

    def _write(self, taken: _Waiting) -> None:
        taken.packed.wait()
        folder = str(self.folder.absolute())  # the agent has a working folder of its own
        if taken.lent is None:
            job = self._files.mark.job
            self._memory.keep(taken.packed, taken.step, folder, self._keep, job)
        if not taken.to_disk:
            return
        self._files.mark.claim()
        write(path := self._files.path(taken.step), taken.packed, taken.lent)
        self.stored.note_written(path)
        self._memory.note_on_disk(taken.step)
        if self._storage is not None:
            self._storage.copy(path)
        try:
            self._files.discard_older(taken.step)
        except OSError as error:
            logger.warning("older checkpoints in %s stay: %s", self.folder, cause(error))


def open_folder(folder: Path | None, keep: int, is_sharded: bool) -> CheckpointDir | None:
    """The checkpoints of a session, with object storage behind them where the process is told so.

    Raises:
        ValueError: there is object storage and no folder, or the model is sharded.
    """
    storage = ObjectStorage.of_process(keep)
    if storage is not None and (folder is None or is_sharded):
        raise ValueError(
            f"{names.CHECKPOINT_URL}: {storage.url}; "
            + (
                "of a sharded model no checkpoints are copied: leave it out"
                if is_sharded
                else "checkpoints are written to disk first: give checkpoint_dir"
            )
        )
    return None if folder is None else CheckpointDir(folder, keep, storage=storage)


def _most_pinned_bytes(room: SpareMemory) -> int:
    """What copies from a GPU may take of the pod's memory for as long as it lives."""
    found = room.look()
    return min(found.limit // PINNED_SHARE, found.spare)


def _hanging(seconds: float) -> str:
    return (
        f"a write is not done within {seconds:.0f} s, the disk hangs or is too slow for the model"
    )
