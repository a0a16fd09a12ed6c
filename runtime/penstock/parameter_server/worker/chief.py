"""What one worker, the chief, does for all: fill a layout with parameters, and save them.

A layout is filled from the chief's checkpoint, or afresh: servers begin tables by seed, and the
chief sends the dense parameters that its program began with. A save reads the copies that servers
made while they were frozen, so the training goes on meanwhile; it has connections and a thread of
its own. Where they have no memory for copies it reads the parameters themselves while they stay
frozen, and before the file gets its name every server has to say that nothing changed them: what
was read of some that went on is dropped. Neither holds more in memory than one partition for each
server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from penstock.data.errors import DataError
from penstock.data.ledger.ranges import RangeSet
from penstock.job.storage import STALLED_SECONDS, TOO_SLOW, advice, cause, not_saved
from penstock.parameter_server.arrays import Floats, afresh, received
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import FrozenModel
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.wire import READ, SEAL, STATE, WRITE
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFile, ModelFiles

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 10.0
"""What a save that is being written gets when its worker goes: the next chief saves again."""


class ConnectionPool:
    """Connections to all servers of a layout."""

    def __init__(self, layout: Layout, token: str, name: str) -> None:
        """Raises DataError: a server does not answer."""
        self.layout = layout
        self.connections: list[Connection] = []
        try:
            for server in layout.servers:
                self.connections.append(Connection.connect(server.address, token, name))
        except BaseException:
            self.close()
            raise

    def of(self, partition: int) -> Connection:
        """The line to the owner of a partition."""
        return self.connections[self.layout.owners[partition]]

    def rounds(self) -> Iterator[list[int]]:
        """All partitions, in groups of at most one for each server."""
        owned = [self.layout.owned_by(server.id) for server in self.layout.servers]
        for turn in range(max(map(len, owned))):
            yield [partitions[turn] for partitions in owned if turn < len(partitions)]

    def close(self) -> None:
        """End all connections."""
        for connection in self.connections:
            connection.close()


class Filler:
    """Fills layouts with the parameters of a job; ``dense``: those that its program began with."""

    def __init__(
        self, spec: ModelSpec, token: str, name: str, dense: Floats, files: ModelFiles | None
    ) -> None:
        self._spec = spec
        self._token = token
        self._name = f"{name} (chief)"
        self._dense = dense.copy()
        self._files = files

    def fill(self, layout: Layout, checkpoint: int | None) -> None:
        """Give every server its partitions; ``checkpoint``: slots that it has seen; None: afresh.

        Raises:
            DataError, AwayError: a server is gone, or does not take them.
            CheckpointError: there is no such checkpoint.
        """
        file = None if checkpoint is None else self._open(checkpoint)
        connections = ConnectionPool(layout, self._token, self._name)
        try:
            for partitions in connections.rounds():
                for partition in partitions:
                    arrays = self._content(file, partition)
                    header = [layout.number, partition, [array.size for array in arrays]]
                    body = [array for array in arrays if array.size]
                    connections.of(partition).send(WRITE, header, body)
                for partition in partitions:
                    connections.of(partition).receive()
            applied = [list(part) for part in file.applied] if file else []
            for connection in connections.connections:
                connection.ask(SEAL, [layout.number, applied, file.pushes if file else 0])
        finally:
            connections.close()

    def _open(self, slots: int) -> ModelFile:
        for saved in self._files.list() if self._files else []:
            if self._files is not None and saved.slots == slots:
                return self._files.open(saved)
        raise CheckpointError(f"there is no checkpoint of {slots} slots")

    def _content(self, file: ModelFile | None, partition: int) -> list[Floats]:
        """What to write; an empty array leaves what the server begins with."""
        if file is not None:
            return file.partition(partition)
        left_out = np.empty(0, np.float32)
        arrays = afresh(self._spec, partition, self._dense)
        return [left_out if array is None else array for array in arrays]


class Save:
    """One save of a snapshot, on a thread of its own; it begins at once.

    Attributes:
        snapshot: its number, which is that of the slots that the model has seen.
        read: whether all has been read, and servers may change it.
        slots: of the checkpoint, once it is on disk.
        error: why there is none.
    """

    def __init__(
        self,
        spec: ModelSpec,
        token: str,
        name: str,
        files: ModelFiles,
        layout: Layout,
        snapshot: int,
        frozen: FrozenModel | None = None,
    ) -> None:
        """``frozen``: there are no copies, and the parameters themselves are read."""
        self.snapshot = snapshot
        self.read = False
        self.slots: int | None = None
        self.error: Exception | None = None
        self._frozen = frozen
        self._moved = time.monotonic()  # when the disk took something
        self._let_go = threading.Event()  # all has been read, or will not be
        self._spec = spec
        self._token = token
        self._name = f"{name} (save)"
        self._files = files
        self._layout = layout
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-save", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether it is over, well or not."""
        return not self._thread.is_alive()

    @property
    def holds_up(self) -> bool:
        """Whether servers stay frozen for it."""
        return self._frozen is not None and not self._let_go.is_set()

    def is_stalled(self, seconds: float = STALLED_SECONDS) -> bool:
        """Whether workers wait for it, and the disk has taken nothing for so long."""
        waits = self._frozen is not None and self._frozen.training_waits and self.holds_up
        return waits and time.monotonic() - self._moved > seconds

    def abandon(self) -> None:
        """No file may come of it: the parameters change from now on."""
        self._stopped = True
        self.error = CheckpointError(not_saved(self._files.folder, TOO_SLOW))

    @property
    def failure(self) -> str:
        """Why nothing is on disk, once it is over; empty: the checkpoint is."""
        if self.slots is not None:
            return ""
        error = self.error
        said = (str(error) or repr(error)) if error is not None else "an error that the log has"
        return said[:4096]

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(seconds)

    def wait_until_read(self, seconds: float) -> None:
        """Wait until servers need not stay frozen for it any more, at most so long."""
        self._let_go.wait(seconds)

    def stop(self) -> None:
        """Give it a moment to end, then leave it: the file before it stays."""
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            logger.warning("left while a checkpoint was being written: the one before it stays")
            self._stopped = True
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._write()
        finally:
            self._let_go.set()

    def _write(self) -> None:
        began = time.monotonic()
        try:
            connections = ConnectionPool(self._layout, self._token, self._name)
            try:
                applied, pushes = self._seen(connections)
                saved = self._files.write(applied, pushes, self._partitions(connections))
            finally:
                connections.close()
        except OSError as error:  # such as a full disk
            why = not_saved(self._files.folder, cause(error), advice(error))
            self.error = CheckpointError(why)
            return
        except (DataError, UnavailableError, CheckpointError, ValueError, TypeError) as error:
            self.error = error
            return
        self.slots = saved.slots
        spent = time.monotonic() - began
        logger.info(
            "saved the model after %d batches to %s in %.1f s", saved.slots, saved.path, spent
        )

    def _seen(self, connections: ConnectionPool) -> tuple[RangeSet, int]:
        """What the model has seen: slots, and updates. Raises CheckpointError: servers differ."""
        what = [self.snapshot, True] if self._frozen is None else [self._layout.number, False]
        states = [connection.ask(STATE, what).header for connection in connections.connections]
        if any(state != states[0] for state in states):
            raise CheckpointError(f"the servers' snapshots differ: {states}")
        ranges, pushes = states[0]
        applied = RangeSet((int(a), int(b)) for a, b in ranges)
        if self._frozen is not None and applied.total != self.snapshot:
            raise CheckpointError(
                f"the servers went on: they have seen {applied.total} batches instead of "
                f"{self.snapshot}"
            )
        return applied, int(pushes)

    def _partitions(self, connections: ConnectionPool) -> Iterator[Sequence[Floats]]:
        """All partitions in order; every server is always at work on its next one."""
        snapshot = self.snapshot if self._frozen is None else None
        ahead = [iter(self._layout.owned_by(server.id)) for server in self._layout.servers]

        def ask_next(server: int) -> None:
            partition = next(ahead[server], None)
            if partition is not None:
                connections.connections[server].send(
                    READ, [self._layout.number, snapshot, partition]
                )

        for server in range(len(ahead)):
            ask_next(server)
        for owner in self._layout.owners:
            self._check_wanted()
            answer = connections.connections[owner].receive()
            ask_next(owner)
            yield received(answer.body, answer.header[0])  # the file checks what belongs there
            self._moved = time.monotonic()
        self._check_wanted()
        if self._frozen is not None:
            self._seen(connections)  # the same as before: so nothing was read that changed
        self.read = True
        self._let_go.set()

    def _check_wanted(self) -> None:
        if self._stopped:
            raise CheckpointError("the worker left, or the training went on")
