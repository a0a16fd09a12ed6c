"""The memory in which a training process keeps snapshots of its state, for as long as it runs.

Under ``penstock run`` it is the agent's (see `penstock.trainer.snapshot.keeper`), and a snapshot is
there after the process was killed; else it is the process's own. Either way it is two slots of the
size of the state, mapped once and used for every snapshot: a copy of the state then costs one pass
over its bytes, where fresh memory costs the zeroing of every page as well.

Invariants: never more than two copies. The slots are taken only where the pod has room for them:
what the controller has added for them (``PENSTOCK_SNAPSHOT_MEMORY``); where nobody says, a quarter
of the pod's memory and half of what is free and not the program's (`penstock.data.spare_memory`).
One copy is kept where two do not fit. Where there is no room for one, `SnapshotMemory` takes
nothing and says so once; room that nobody has added is given up when memory becomes short. Nothing
in here is ever an error of the training.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from penstock.crds import environment as names
from penstock.data.memory import Memory, read_memory
from penstock.data.spare_memory import Room, SpareMemory
from penstock.job.storage import cause
from penstock.trainer.group.host_copies import ALIGNMENT, Copies, plan, view
from penstock.trainer.group.state_codec import PackedState, tensor_bytes
from penstock.trainer.snapshot import slots
from penstock.trainer.snapshot.keeper import MEMORY
from penstock.trainer.snapshot.loans import Loans
from penstock.trainer.snapshot.slots import Content, Snapshot

logger = logging.getLogger(__name__)

POD_SHARE: Final = 4
"""The slots together may have a quarter of the pod's memory."""
FREE_SHARE: Final = 2
"""And half of what may be taken when they are."""
SHORT_SHARE: Final = 20
"""Where less of the pod's memory than this part of it is free and not the program's, slots of that
kind are given up."""
INDEX_BYTES: Final = 256 << 10
"""Kept free behind the tensors for what describes them; more where that was too little."""


class SnapshotMemory:
    """Two slots; see the module's docstring. Used by the training's thread and a writer's."""

    def __init__(
        self,
        path: str | None = None,
        measure: Callable[[], Memory] = read_memory,
        added: int | None = None,
    ) -> None:
        """Nothing is taken before the first copy.

        Args:
            path: of the agent's memory; None: the process's own.
            measure: what the pod may take.
            added: bytes that the pod has been given for this; None: nobody says.
        """
        self.room = SpareMemory(measure)
        """For copies that have no slot."""
        self._added = added
        self._copies = slots.SLOTS
        self._lock = threading.Lock()
        self._lent: set[int] = set()  # to who fills them, or writes what is in them
        self._loans = Loans()  # to who takes up what is in them
        self._flat: torch.Tensor | None = None  # both slots: uint8 of shape (bytes,)
        self._sequence = 0
        self._index_bytes = INDEX_BYTES
        self._on_disk = -1  # the step of the newest checkpoint that this process has written
        self._refused = 0  # bytes of a state for which there was no room: not asked again
        self._descriptor = -1
        if path is not None and (descriptor := _open_alone(path)) is not None:
            self._descriptor = descriptor
            # A process that is forked has the lock, too, and would keep it from who comes after us.
            close = weakref.WeakMethod(self.close)
            os.register_at_fork(after_in_child=lambda: (method := close()) and method())
            size = os.fstat(descriptor).st_size
            if size > slots.HEAD_BYTES:
                self._flat = _mapped(self._descriptor)
                held = os.fstat(descriptor).st_blocks * 512  # a slot that nobody has used is none
                copies = _most(self.room.look(), added, held) // slots.capacity(size)
                self._copies = max(1, min(slots.SLOTS, copies))

    @classmethod
    def of_process(cls) -> SnapshotMemory:
        """The agent's, where there is an agent and no other process of the pod has it."""
        return cls(os.environ.get(MEMORY) or None, added=_added(os.environ))

    @property
    def outlives(self) -> bool:
        """Whether snapshots are still there when this process has been killed."""
        return self._descriptor >= 0

    @property
    def keeps(self) -> bool:
        """Whether a copy that is for memory alone is of use: there is room, or nobody has tried."""
        return self.outlives and not (self._refused and self._flat is None)

    def close(self) -> None:
        """Leave the agent's memory to who comes next; what lies in it stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # ------------------------------------------------------------------ a snapshot is taken

    def carries(self, device: torch.device) -> bool:
        """As `penstock.trainer.group.host_copies.Copier`: what is on the host."""
        return device.type == "cpu"

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Copies | None:
        """Copies in a slot, made when this returns; None where no slot is to be had."""
        layout = plan([(t.device, t.numel() * t.element_size()) for t in tensors])
        slot = self._borrow(layout.total)
        if slot is None:
            return None
        room = _room(self._flat, slot)
        copies = [view(room, at, like) for at, like in zip(layout.places, tensors, strict=True)]
        with torch.no_grad():
            for copy, tensor in zip(copies, tensors, strict=True):
                copy.copy_(tensor)
        return Copies(copies, release=lambda: self._give_back(slot))

    def keep(self, packed: PackedState, step: int, folder: str, most: int, job: str = "") -> None:
        """Make a state the newest snapshot, whether or not it lies in a slot already.

        Args:
            packed: its tensors hold their values.
            step: steps that its model has seen.
            folder: where the training's checkpoints are.
            most: how many of them stay.
            job: as which job this process writes there.
        """
        if not self.outlives:
            return
        slot = self._slot_of(packed)
        borrowed = None
        if slot is None:
            slot = borrowed = self._borrow(_span(packed))
        if slot is None:
            return
        try:
            room = _room(self._flat, slot)
            lies = borrowed is None
            parts = _parts(packed, room.data_ptr()) if lies else _fill(packed, room)
            content = Content(step, folder, most, packed.header, parts, job)
            memory = self._bytes()
            self._sequence = max(self._sequence, slots.newest_sequence(memory)) + 1
            if not slots.commit(memory, slot, content, self._sequence):
                self._index_bytes = 2 * len(slots.index_of(content))
        finally:
            if borrowed is not None:
                self._give_back(borrowed)

    def has_other(self, packed: PackedState) -> bool:
        """Whether there is a slot beside the one in which a state lies; False: it lies in none."""
        return self._copies > 1 and self._slot_of(packed) is not None

    def note_on_disk(self, step: int) -> None:
        """The state of this step is a checkpoint: its snapshot may be overwritten."""
        self._on_disk = max(self._on_disk, step)

    # ------------------------------------------------------------------ a snapshot is taken up

    def newest_step(self) -> int | None:
        """The step of the newest snapshot, which is not checked; None: there is none."""
        return slots.newest_step(self._bytes()) if self.outlives else None

    def read(self, *, lend: bool = False) -> tuple[Snapshot, list[torch.Tensor]] | None:
        """The newest snapshot that is whole, and its tensors: uint8, one for each part.

        ``lend``: no copies; nobody may write to them, and the slot is not used while they live.
        """
        flat = self._flat
        snapshot = slots.newest(self._bytes()) if self.outlives else None
        if snapshot is None or flat is None:
            return None
        if lend:
            with self._lock:
                return snapshot, self._loans.lend(snapshot.slot, flat, snapshot.parts)
        return snapshot, [flat[at : at + size].clone() for at, size in snapshot.parts]

    # ------------------------------------------------------------------ inside

    def _bytes(self) -> memoryview:
        """Both slots; nothing before there are any."""
        return memoryview(b"") if self._flat is None else self._flat.numpy().data

    def _borrow(self, size: int) -> int | None:
        """The slot to be filled next; None where none can be had.

        Of the free ones it is the first whose snapshot is on disk, so that the other is not even
        touched where the disk keeps up; else the older.
        """
        if not size:
            return None
        with self._lock:
            self._give_up_if_short(size)
            if _capacity(self._flat, self._index_bytes) < size and not self._grow(size):
                return None
            memory = self._bytes()
            kept = slots.kept(memory)
            used = self._lent | self._loans.slots()
            free = [slot for slot in range(self._copies) if slot not in used]
            if not free:
                return None
            # A sequence number of 0 says that there is nothing to lose.
            ages = {at: 0 if kept[at][1] <= self._on_disk else kept[at][0] for at in free}
            slot = min(free, key=lambda each: ages[each])
            slots.blank(memory, slot)
            self._lent.add(slot)
            return slot

    def _grow(self, size: int) -> bool:
        """Have slots for states of this size; what they held is given up. With the lock."""
        if self._lent or self._loans.slots() or (self._refused and size >= self._refused):
            return False
        page = mmap.PAGESIZE
        each = -(-(size + self._index_bytes) // page) * page
        held = 0 if self._flat is None else self._flat.numel() * self._copies // slots.SLOTS
        most = _most(self.room.look(), self._added, held)
        copies = min(slots.SLOTS, most // each)
        if not copies:
            self._refuse(size, f"at most {most / 1e6:.0f} MB are used for it")
            return False
        if copies < self._copies:
            logger.warning(
                "one copy of a state of %.0f MB is kept in memory, for which the pod has %.0f MB: a"
                " process that is killed while it is made goes on from the newest checkpoint",
                size / 1e6,
                most / 1e6,
            )
        self._copies = copies
        try:
            self._unmap()  # before the larger ones are there: never both
            if self._descriptor >= 0:
                os.ftruncate(self._descriptor, slots.HEAD_BYTES + slots.SLOTS * each)
                self._flat = _mapped(self._descriptor)
            else:
                # Shared, so that a process which is forked has no copy of what is written here.
                own = mmap.mmap(-1, slots.HEAD_BYTES + slots.SLOTS * each)
                self._flat = torch.frombuffer(own, dtype=torch.uint8)
        except (OSError, RuntimeError, MemoryError) as error:
            self._flat = None
            self._refuse(size, cause(error))
            return False
        return True

    def _give_up_if_short(self, size: int) -> None:
        """Have no slots any more where the training needs their memory, which nobody has added."""
        if self._flat is None or self._added is not None or self._lent or self._loans.slots():
            return
        room = self.room.look()
        if room.unclaimed >= room.limit // SHORT_SHARE:
            return
        self._unmap()
        self._refused = 0
        self._refuse(size, "the pod's memory is nearly full")
        self._refused = 1  # whatever the size

    def _unmap(self) -> None:
        """Give back the memory of the slots; it is not what a step takes."""
        had, self._flat = self._flat is not None, None
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
        if had:
            self.room.forget_peak()

    def _refuse(self, size: int, why: str) -> None:
        self._refused = size
        logger.warning(
            "no copies of a state of %.0f MB are kept in memory, %s: it lives in the checkpoints' "
            "folder alone",
            size / 1e6,
            why,
        )

    def _give_back(self, slot: int) -> None:
        with self._lock:
            self._lent.discard(slot)

    def _slot_of(self, packed: PackedState) -> int | None:
        """The slot in which all tensors of a state lie; None where they lie elsewhere."""
        if self._flat is None:
            return None
        with self._lock:
            lent = tuple(self._lent)
        for slot in lent:
            room = _room(self._flat, slot)
            low, high = room.data_ptr(), room.data_ptr() + room.numel()
            if all(low <= t.data_ptr() < high or not t.numel() for t in packed.tensors):
                return slot
        return None


def _most(room: Room, added: int | None, held: int) -> int:
    """Bytes that all slots may have, where they have ``held`` now."""
    if added is None:
        return min(room.limit // POD_SHARE, (room.unclaimed + held) // FREE_SHARE)
    return min(added, room.free + held)


def _added(environ: Mapping[str, str]) -> int | None:
    """What the controller has added to the pod's memory for snapshots."""
    text = environ.get(names.SNAPSHOT_MEMORY, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        logger.warning("%s: %r; expected bytes: none are used", names.SNAPSHOT_MEMORY, text)
        return 0
    return int(text)


def _open_alone(path: str) -> int | None:
    """A descriptor that no other process of this pod has; None, with a reason in the log."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        logger.warning("no snapshots are kept by the agent: %s", cause(error))
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        logger.info("no snapshots are kept by the agent: another session of this pod has them")
        os.close(descriptor)
        return None
    return descriptor


def _mapped(descriptor: int) -> torch.Tensor:
    """The file of a descriptor as memory: uint8 of shape ``(bytes,)``."""
    # Python's mmap keeps a descriptor of its own, and with it the lock, in forked processes.
    path, size = f"/proc/self/fd/{descriptor}", os.fstat(descriptor).st_size
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)


def _parts(packed: PackedState, low: int) -> tuple[tuple[int, int], ...]:
    """Where the tensors of a state begin in a slot, which begins at this address."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in packed.tensors]
    return tuple(
        (tensor.data_ptr() - low if size else 0, size)
        for tensor, size in zip(packed.tensors, sizes, strict=True)
    )


def _fill(packed: PackedState, room: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """Copy the tensors of a state into a slot; where they begin in it."""
    at, parts = 0, []
    for tensor in packed.tensors:
        raw = tensor_bytes(tensor)
        room[at : at + raw.numel()].copy_(raw)
        parts.append((at, raw.numel()))
        at += -(-raw.numel() // ALIGNMENT) * ALIGNMENT
    return tuple(parts)


def _span(packed: PackedState) -> int:
    sizes = (tensor.numel() * tensor.element_size() for tensor in packed.tensors)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def _room(flat: torch.Tensor | None, slot: int) -> torch.Tensor:
    """The bytes of one slot."""
    assert flat is not None, "there are no slots yet"
    begin = slots.start(slot, flat.numel())
    return flat[begin : begin + slots.capacity(flat.numel())]


def _capacity(flat: torch.Tensor | None, index_bytes: int) -> int:
    """Bytes that the tensors of a state may have together."""
    return 0 if flat is None else slots.capacity(flat.numel()) - index_bytes
