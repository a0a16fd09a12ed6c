"""The control channels between the processes of one replica group: the first leads the others.

They are those of a group of members (`penstock.trainer.group.step_barrier`), sealed and without
time-outs on whoever computes. They are opened once: a replica group that loses a process is lost as
a whole, since the layers of its model need all of them, and whoever finds out ends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import torch
from torch import distributed

from penstock.trainer.group.backend_choice import Backend
from penstock.trainer.group.collective import Collective, CollectiveError, join_store
from penstock.trainer.group.group_channels import (
    ARRIVAL_TIMEOUT_SECONDS,
    Entry,
    ModelHolder,
    SessionError,
)
from penstock.trainer.group.state_codec import receive, send
from penstock.trainer.group.step_barrier import (
    Channel,
    GroupBrokenError,
    Leader,
    Listener,
    connect,
)
from penstock.trainer.replica.layout import Layout

logger = logging.getLogger(__name__)

OPEN_SECONDS: Final = 60.0
"""How long the processes of a replica group wait for one another at the begin of a session."""
MAX_HEADER_BYTES: Final = 1 << 30
_GENERATION: Final = 1

Word = dict[str, Any]


class ReplicaLostError(Exception):
    """A process of this replica group is gone, and with it the replica group."""


class ReplicaProcesses:
    """The channels of one process; `open` them before anything else."""

    def __init__(self, layout: Layout, host: str, token: str) -> None:
        self.layout = layout
        self.size = layout.size
        self._host = host
        self._token = token
        self._leader: Leader | None = None
        self._channel: Channel | None = None
        self._failed: int | None = None  # the slot that another process could not compute

    @property
    def leads(self) -> bool:
        """Whether this is the first process, which speaks for all."""
        return self.layout.rank == 0

    def open(self) -> None:
        """Connect the processes, all of which call this.

        Raises SessionError: not all of them came.
        """
        dist: Any = distributed
        rank, size = self.layout.rank, self.layout.size
        known = dist.PrefixStore("penstock-replica", dist.distributed_c10d._get_default_store())
        session = known.add(f"sessions-{rank}", 1)  # a program may have several, one by one
        place = f"address-{session}"
        try:
            if self.leads:
                listener = Listener(self._host)
                try:
                    known.set(place, listener.address)
                    self._leader = listener.accept(
                        self._token, _GENERATION, size, _never, OPEN_SECONDS
                    )
                finally:
                    listener.close()
                # Of two messages that come at once only the first would be seen: we speak first.
                self._leader.publish({"open": True}, _never, OPEN_SECONDS)
                return
            address = known.get(place).decode()
            hello = {"generation": _GENERATION, "index": rank}
            self._channel = connect(address, hello, self._token, _never, OPEN_SECONDS)
            self._channel.receive(_never, OPEN_SECONDS)
        except (GroupBrokenError, RuntimeError) as error:
            raise SessionError(
                f"replica_group: its {size} processes did not find each other: {error}"
            ) from error

    def exchange(self, own: Word, decide: Callable[[list[Word]], Word]) -> Word:
        """Say something and hear what the first process makes of all that was said.

        Raises ReplicaLostError: a process is gone.
        """
        if self._channel is not None:
            self.say(own)
            return self.hear()
        verdict = decide(self.gather(own))
        self.tell(verdict)
        return verdict

    def gather(self, own: Word) -> list[Word]:
        """The first process: one word of each, our own first. Raises ReplicaLostError."""
        assert self._leader is not None
        with _lost():
            return self._leader.gather(own, _never, ARRIVAL_TIMEOUT_SECONDS)

    def tell(self, word: Word) -> None:
        """The first process: say something to all others. Raises ReplicaLostError."""
        assert self._leader is not None
        with _lost():
            self._leader.publish(word, _never, ARRIVAL_TIMEOUT_SECONDS)

    def say(self, word: Word) -> None:
        """One of the others: say something to the first. Raises ReplicaLostError."""
        assert self._channel is not None
        with _lost():
            self._channel.send(word, _never, ARRIVAL_TIMEOUT_SECONDS)

    def hear(self) -> Word:
        """One of the others: what the first says next. Raises ReplicaLostError."""
        assert self._channel is not None
        with _lost():
            return self._channel.receive(_never, ARRIVAL_TIMEOUT_SECONDS)

    def heard(self) -> tuple[list[tuple[int, Word]], set[int]]:
        """The first process: as `penstock.trainer.group.step_barrier.Leader.heard`; never waits."""
        if self._leader is None:
            return [], set()
        words, gone = self._leader.heard()
        slots = [word.get("failed") for _, word in words]
        known = next((slot for slot in slots if isinstance(slot, int)), None)
        self._failed = known if self._failed is None else self._failed
        return words, gone

    def heard_failure(self) -> int | None:
        """The first process: the slot that another one said it could not compute; never waits."""
        self.heard()
        return self._failed

    def close(self) -> None:
        """Let go of the channels."""
        for part in (self._leader, self._channel):
            if part is not None:
                part.close()

    # ------------------------------------------------------------------ entering a group

    def enter(self, entry: Entry, holder: ModelHolder) -> Collective | None:
        """See `penstock.trainer.group.group_channels.Crew`: called by the first process."""
        self.tell({"enter": asdict(entry)})
        return self._enter(entry, holder)

    def follow(self, word: Word, holder: ModelHolder) -> Collective | None:
        """The same of one of the others, which has heard the word. Raises GroupBrokenError."""
        return self._enter(Entry(**word["enter"]), holder)

    def _enter(self, entry: Entry, holder: ModelHolder) -> Collective | None:
        if entry.restore is not None:
            holder.restore_checkpoint(entry.restore)
        entering = _Entering(self.layout.rank, self._host, entry)
        broken, hopeless = "", False
        try:
            entering.connect(holder)
        except GroupBrokenError as error:
            broken = str(error) or "it is broken"
        except CollectiveError as error:
            broken, hopeless = str(error), True
        verdict = self.exchange({"broken": broken, "hopeless": hopeless}, _all_or_none)
        if verdict["broken"]:
            entering.close()
            kind = CollectiveError if verdict["hopeless"] else GroupBrokenError
            raise kind(verdict["broken"])
        # Not before all have it: a replica group is at one step as a whole.
        entering.take_over(holder)
        return entering.collective


class _Entering:
    """One process's way into a group: connected, given the model, but not changed yet."""

    def __init__(self, rank: int, host: str, entry: Entry) -> None:
        self._rank = rank
        self._host = host
        self._entry = entry
        self._received: tuple[bytes, list[torch.Tensor]] | None = None
        self.collective: Collective | None = None

    def connect(self, holder: ModelHolder) -> None:
        """Meet the processes with this number of the other members, and get the model's part."""
        entry = self._entry
        if entry.size == 1:
            return
        store = join_store(entry.host, entry.port, entry.size)
        dist: Any = distributed
        self.collective = Collective(
            dist.PrefixStore(f"part-{self._rank}", store),
            self._host,
            entry.index,
            entry.size,
            backend=Backend(entry.backend),
            timeout_seconds=entry.patience_seconds,
        )
        if entry.transfers:
            self._transfer(self.collective, holder)

    def _transfer(self, collective: Collective, holder: ModelHolder) -> None:
        gives = self._entry.index == 0
        state = holder.export_state() if gives else None
        length = torch.tensor([len(state.header) if state else 0])
        collective.broadcast(length)
        size = int(length)
        if not 0 < size <= MAX_HEADER_BYTES:
            raise GroupBrokenError(f"a state with a header of {size} bytes")
        if state is not None:
            collective.broadcast(torch.frombuffer(bytearray(state.header), dtype=torch.uint8))
            send(state, collective.broadcast, self._entry.piece_bytes)
            return
        header = torch.empty(size, dtype=torch.uint8)
        collective.broadcast(header)
        words = header.numpy().tobytes()
        self._received = words, receive(words, collective.broadcast, self._entry.piece_bytes)

    def take_over(self, holder: ModelHolder) -> None:
        """Load what was received, if anything."""
        if self._received is not None:
            holder.import_state(*self._received)

    def close(self) -> None:
        """Let go of what is connected."""
        if self.collective is not None:
            self.collective.close()
            self.collective = None


def _all_or_none(words: list[Word]) -> Word:
    failed = [word for word in words if word["broken"]]
    worst = max(failed, key=lambda word: bool(word["hopeless"]), default=words[0])
    return {"broken": worst["broken"], "hopeless": worst["hopeless"]}


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except GroupBrokenError as error:
        raise ReplicaLostError(
            f"a process of this replica group is gone, which ends the replica group: {error}"
        ) from error


def _never() -> bool:
    return False
