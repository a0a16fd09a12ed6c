"""The ways in which a state is kept while a training goes on, and taken up again.

``before`` is what Penstock did before it had snapshots in memory: the state copied into fresh
memory, each save behind the write of the one before it, and a file that was read three times.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import torch
import torch.distributed.checkpoint

from penstock.job import atomic_file
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.group.state_codec import assemble, pack, part_bytes
from penstock.trainer.snapshot.file_head import HEAD, file_head

State = dict[str, Any]
dcp: Any = torch.distributed.checkpoint  # it does not say what it exports


class Saver(Protocol):
    """One way."""

    def has_place(self) -> bool:
        """Whether a save now is made now; else at the first step at which this is so."""

    def save(self, step: int, state: State) -> None:
        """Keep a state; what this takes, the training waits."""

    def finish(self) -> None:
        """Wait until the last one is on disk."""

    def restore(self, state: State) -> None:
        """Take the newest one up into a state that is there."""


class AtOnce:
    """What saves when it is asked to."""

    def has_place(self) -> bool:
        """As `Saver.has_place`."""
        return True


class Nothing(AtOnce):
    """No state is kept."""

    def __init__(self, folder: Path) -> None:
        """Needs nothing."""

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""

    def finish(self) -> None:
        """As `Saver.finish`."""

    def restore(self, state: State) -> None:
        """As `Saver.restore`."""


class Copy(Nothing):
    """One copy of the state in memory that nobody reads: the least that any save takes here."""

    def __init__(self, folder: Path) -> None:
        """Needs no folder."""
        self._room: State = {}

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""
        if self._room:
            load(self._room, state)
        else:
            self._room = {
                group: {name: tensor.clone() for name, tensor in tensors.items()}
                for group, tensors in state.items()
            }


class Penstock:
    """Snapshots in the agent's memory, where there is an agent, and the folder behind."""

    def __init__(self, folder: Path) -> None:
        self._checkpoints = CheckpointDir(folder)

    def has_place(self) -> bool:
        """As `Saver.has_place`; sessions ask the same."""
        return self._checkpoints.has_place()

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""
        self._checkpoints.save(step, state)

    def finish(self) -> None:
        """As `Saver.finish`."""
        self._checkpoints.wait()

    def restore(self, state: State) -> None:
        """As `Saver.restore`."""
        restored = self._checkpoints.stored.restore(lend=True)
        assert restored is not None
        load(state, restored.state)


class Before(AtOnce):
    """See the module's docstring."""

    def __init__(self, folder: Path) -> None:
        self._files = atomic_file.Series(folder, "step", 3)
        self._writer: threading.Thread | None = None

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""
        packed = pack(state)
        self.finish()
        head = file_head(packed.header, packed.payload_bytes)
        parts = (t.reshape(-1).view(torch.uint8).numpy().tobytes() for t in packed.tensors)
        content = itertools.chain((head, packed.header), parts)
        self._writer = threading.Thread(
            target=atomic_file.write, args=(self._files.path(step), content)
        )
        self._writer.start()

    def finish(self) -> None:
        """As `Saver.finish`."""
        if self._writer is not None:
            self._writer.join()

    def restore(self, state: State) -> None:
        """As `Saver.restore`."""
        path, _ = self._files.list()[0]
        for _ in range(2):
            self._verify(path)
        header, payload = self._verify(path)
        flat = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        load(state, assemble(header, [part.clone() for part in flat.split(part_bytes(header))]))

    def _verify(self, path: Path) -> tuple[bytes, bytes]:
        data = path.read_bytes()
        size = atomic_file.DIGEST_BYTES
        assert hashlib.blake2b(data[:-size], digest_size=size).digest() == data[-size:]
        _, header_bytes, _ = HEAD.unpack_from(data)
        start = HEAD.size + header_bytes
        return data[HEAD.size : start], data[start:-size]


class TorchSave(AtOnce):
    """``torch.save`` to a file that is synced and renamed, in the training's thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.pt"

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)

    def finish(self) -> None:
        """As `Saver.finish`."""

    def restore(self, state: State) -> None:
        """As `Saver.restore`."""
        load(state, torch.load(self._path, weights_only=True))


class DcpAsync(AtOnce):
    """``torch.distributed.checkpoint.async_save``; it allows one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Any = None  # a Future, in this release
        self._number = 0

    def save(self, step: int, state: State) -> None:
        """As `Saver.save`."""
        self.finish()
        self._number += 1
        writer = dcp.FileSystemWriter(self._folder / f"dcp-{self._number}")
        self._running = dcp.async_save(state, storage_writer=writer, no_dist=True)

    def finish(self) -> None:
        """As `Saver.finish`."""
        if self._running is not None:
            self._running.result()

    def restore(self, state: State) -> None:
        """As `Saver.restore`."""
        newest = max(self._folder.glob("dcp-*"), key=lambda path: int(path.name[4:]))
        dcp.load(state, storage_reader=dcp.FileSystemReader(newest), no_dist=True)


SAVERS: Final[dict[str, Callable[[Path], Saver]]] = {
    "none": Nothing,
    "copy": Copy,
    "penstock": Penstock,
    "before": Before,
    "torch.save": TorchSave,
    "dcp_async": DcpAsync,
}


def make_state(state_bytes: int) -> State:
    """Parameters and two moments, as Adam has them: so many bytes in tensors of 4 MB at most."""
    count = state_bytes // 12
    each = 1 << 20
    sizes = [min(each, count - at) for at in range(0, count, each)]
    return {
        group: {str(place): torch.zeros(size) for place, size in enumerate(sizes)}
        for group in ("model", "exp_avg", "exp_avg_sq")
    }


def load(state: State, found: State) -> None:
    """Copy what was found into a state that is there, as load_state_dict does."""
    for group, tensors in state.items():
        for name, tensor in tensors.items():
            tensor.copy_(found[group][name])


def digest(state: State) -> float:
    """A figure that differs where states do."""
    return sum(float(t.double().sum()) for tensors in state.values() for t in tensors.values())


def plain_size(state: State) -> int:
    """Bytes of all tensors."""
    return sum(t.numel() * t.element_size() for ts in state.values() for t in ts.values())
