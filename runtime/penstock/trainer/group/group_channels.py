"""What connects the members of one group: the control channel, the model's way in, the collective.

The first member leads: the others connect to it, say how far they are, and are given the address of
the collective and, where anybody is behind, its model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from penstock.base.listener import split_address
from penstock.job.protocol import Group, Restore
from penstock.trainer.group.backend_choice import Backend, Choice, Equipment, choose
from penstock.trainer.group.collective import (
    Collective,
    CollectiveError,
    Gradients,
    join_store,
    serve_store,
)
from penstock.trainer.group.state_codec import PIECE_BYTES, PackedState, receive, send
from penstock.trainer.group.step_barrier import Channel, GroupBrokenError, Leader, Listener, connect

logger = logging.getLogger(__name__)

FORMING_TIMEOUT_SECONDS: Final = 15.0
ARRIVAL_TIMEOUT_SECONDS: Final = 24 * 3600.0  # the trainer ends a group long before


class SessionError(Exception):
    """The training script and the job do not fit each other; says what to change."""


class RestoreError(GroupBrokenError):
    """The state that a member announced is damaged or gone; ``newest`` is the step of what it has.

    The trainer chose the group's first member and step by what was announced: it has to choose
    again.
    """

    def __init__(self, step: int, newest: int | None) -> None:
        found = "there is none" if newest is None else f"the newest is of step {newest}"
        super().__init__(f"the checkpoint of step {step} was not taken up: {found}")
        self.newest = newest


class ModelHolder(Protocol):
    """What holds the model: gives its state away and takes another one over."""

    def restore_checkpoint(self, step: int) -> None:
        """Load the newest checkpoint. Raises RestoreError: it is not of that step."""

    def export_state(self) -> PackedState:
        """The whole state, as of the last committed step."""

    def import_state(self, header: bytes, parts: list[torch.Tensor]) -> None:
        """Take over the state of another member; ``parts``: as received, and left empty."""


@dataclass(frozen=True)
class Entry:
    """What each process of a replica group has to know to enter a group with its part of the model.

    Attributes:
        index: of this member, in a group of ``size``.
        host, port: of the group's store; port 0 in a group of one.
        restore: the step whose state this member's processes load first; None: they have theirs.
        transfers: whether the first member's model goes to all.
        piece_bytes: in pieces of so many bytes; 0: in one.
    """

    index: int
    size: int
    host: str = ""
    port: int = 0
    backend: str = Backend.GLOO.value
    patience_seconds: float = 0.0
    restore: int | None = None
    transfers: bool = False
    piece_bytes: int = 0


class Crew(Protocol):
    """The processes of a member that is a replica group."""

    size: int

    def enter(self, entry: Entry, holder: ModelHolder) -> Collective | None:
        """Have each process enter, all or none; what this one sums by.

        Raises:
            GroupBrokenError: a process could not.
            CollectiveError: nor could it in any further group.
        """


@dataclass(frozen=True)
class Call:
    """A member's call into a group."""

    group: Group
    index: int
    """Its rank within the group."""
    committed: int | None
    """Steps that its own model has seen."""
    lease_seconds: float


class GroupChannels:
    """The channels of one member; empty outside any group, and in a group of one."""

    def __init__(self, listener: Listener, host: str, token: str, crew: Crew | None = None) -> None:
        self._crew = crew
        self._listener = listener
        self._host = host
        self._token = token
        self._leader: Leader | None = None
        self._channel: Channel | None = None
        self._collective: Collective | None = None
        self._store: Any = None  # that this process serves to a group of replica groups
        self._warned = ""  # of the backend; said once, not with every group

    def form(
        self,
        call: Call,
        holder: ModelHolder,
        gradients: Gradients,
        interrupted: Callable[[], bool],
    ) -> None:
        """Connect to the others; the model is then the group's.

        Raises:
            GroupBrokenError: a member did not come, or the trainer called it off.
            SessionError: the members do not train the same model, or cannot sum as they are.
        """
        own = gradients.equipment()
        hello = {
            "generation": call.group.number,
            "index": call.index,
            "committed": -1 if call.committed is None else call.committed,
            "elements": gradients.elements,
            "layout": [list(part) for part in gradients.layout],
            "equipment": own.as_message(),
            "piece_bytes": PIECE_BYTES,
        }
        if self._crew is not None:
            hello["processes"] = self._crew.size
        try:
            if call.index == 0:
                self._lead(call, hello, holder, own, interrupted)
            else:
                self._follow(call, hello, holder, own, interrupted)
        except CollectiveError as error:
            raise SessionError(str(error)) from error
        assert len(call.group.members) == 1 or self._collective is not None

    def exchange(
        self,
        own: dict[str, Any],
        decide: Callable[[list[dict[str, Any]]], dict[str, Any]],
        interrupted: Callable[[], bool],
    ) -> dict[str, Any]:
        """Say something and hear what the leader makes of all that was said, by ``decide``.

        Raises:
            GroupBrokenError: a member is gone, or the trainer ended the group.
        """
        timeout = ARRIVAL_TIMEOUT_SECONDS
        if self._channel is not None:
            self._channel.send(own, interrupted, timeout)
            heard: dict[str, Any] = self._channel.receive(interrupted, timeout)
            return heard
        if self._leader is None:
            return decide([own])
        verdict = decide(self._leader.gather(own, interrupted, timeout))
        self._leader.publish(verdict, interrupted, timeout)
        return verdict

    def sum_gradients(
        self, gradients: Gradients, weight: float, interrupted: Callable[[], bool]
    ) -> None:
        """Add the gradients up over the members.

        Raises:
            GroupBrokenError: a member is gone.
            SessionError: the members cannot sum as they are configured.
        """
        if self._collective is None and self._crew is None:
            return
        try:
            gradients.reduce(self._collective, weight, interrupted)
        except CollectiveError as error:
            raise SessionError(str(error)) from error

    def close(self) -> None:
        """Let go of everything, whatever its state."""
        for part in (self._leader, self._channel, self._collective):
            if part is not None:
                part.close()
        self._leader = self._channel = self._collective = self._store = None

    # ------------------------------------------------------------------ inside

    def _lead(
        self,
        call: Call,
        hello: dict[str, Any],
        holder: ModelHolder,
        own: Equipment,
        interrupted: Callable[[], bool],
    ) -> None:
        group, timeout = call.group, FORMING_TIMEOUT_SECONDS
        crew = self._crew
        restore = group.start_step if group.restore is Restore.CHECKPOINT else None
        if restore is not None and crew is None:
            holder.restore_checkpoint(restore)
        size = len(group.members)
        if size == 1:
            if crew is not None:
                self._collective = crew.enter(Entry(0, 1, restore=restore), holder)
            return
        self._leader = self._listener.accept(self._token, group.number, size, interrupted, timeout)
        problem = _mismatch(hello, self._leader.hellos)
        if problem:
            self._leader.publish({"problem": problem}, interrupted, timeout)
            raise SessionError(problem)
        behind = any(h["committed"] != group.start_step for h in self._leader.hellos.values())
        transfers = behind or group.restore is not Restore.LIVE
        state = holder.export_state() if transfers and crew is None else None
        store = serve_store(self._host, size)
        choice = _choose(group, own, self._leader.hellos)
        self._warn_once(choice)
        header = state.header if state else None
        pieces = _piece_bytes(self._leader.hellos)
        welcome = {
            "port": store.port,
            "header": header,
            "backend": choice.backend.value,
            "piece_bytes": pieces,
        }
        if crew is not None:
            welcome["transfers"] = transfers
        self._leader.publish(welcome, interrupted, timeout)
        if crew is not None:
            self._collective = crew.enter(
                Entry(
                    index=0,
                    size=size,
                    host=self._host,
                    port=store.port,
                    backend=choice.backend.value,
                    patience_seconds=_patience(call.lease_seconds),
                    restore=restore,
                    transfers=transfers,
                    piece_bytes=pieces,
                ),
                holder,
            )
            self._store = store
            return
        self._collective = Collective(
            store,
            self._host,
            0,
            size,
            backend=choice.backend,
            timeout_seconds=_patience(call.lease_seconds),
        )
        if state is not None:
            send(state, self._collective.broadcast, pieces)

    def _follow(
        self,
        call: Call,
        hello: dict[str, Any],
        holder: ModelHolder,
        own: Equipment,
        interrupted: Callable[[], bool],
    ) -> None:
        address, timeout = call.group.members[0].address, FORMING_TIMEOUT_SECONDS
        self._channel = connect(address, hello, self._token, interrupted, timeout)
        welcome = self._channel.receive(interrupted, timeout)
        if "problem" in welcome:
            raise SessionError(str(welcome["problem"]))
        size, (host, _) = len(call.group.members), split_address(address)
        pieces = int(welcome.get("piece_bytes", 0))  # a release before this does not say
        if self._crew is not None:
            self._collective = self._crew.enter(
                Entry(
                    index=call.index,
                    size=size,
                    host=host,
                    port=int(welcome["port"]),
                    backend=_told(welcome, own).value,
                    patience_seconds=_patience(call.lease_seconds),
                    transfers=bool(welcome["transfers"]),
                    piece_bytes=pieces,
                ),
                holder,
            )
            return
        store = join_store(host, int(welcome["port"]), size)
        self._collective = Collective(
            store,
            self._host,
            call.index,
            size,
            backend=_told(welcome, own),
            timeout_seconds=_patience(call.lease_seconds),
        )
        header = welcome["header"]
        if header is not None:
            holder.import_state(header, receive(header, self._collective.broadcast, pieces))

    def _warn_once(self, choice: Choice) -> None:
        if choice.warning and choice.warning != self._warned:
            logger.warning("%s", choice.warning)
        self._warned = choice.warning


def _choose(group: Group, own: Equipment, hellos: dict[int, dict[str, Any]]) -> Choice:
    """What the group sums by, named by the workers' ranks."""
    told = {
        index: Equipment.from_message(hello.get("equipment")) for index, hello in hellos.items()
    }
    members = {group.members[index].id.rank: told[index] for index in sorted(told)}
    return choose({group.members[0].id.rank: own} | members)


def _piece_bytes(hellos: dict[int, dict[str, Any]]) -> int:
    """In what pieces a state goes to all; 0: in one, as a release before this has it."""
    alike = all(hello.get("piece_bytes") == PIECE_BYTES for hello in hellos.values())
    return PIECE_BYTES if alike else 0


def _told(welcome: dict[str, Any], own: Equipment) -> Backend:
    """What the group's first member chose; one of a release before this leaves it to each."""
    try:
        return Backend(welcome["backend"])
    except (KeyError, ValueError):
        return own.alone()


def _patience(lease_seconds: float) -> float:
    """Time-out of a collective that all members have entered: half a lease, 5 s at the least."""
    return max(5.0, lease_seconds / 2)


def _mismatch(own: dict[str, Any], hellos: dict[int, dict[str, Any]]) -> str:
    for index, hello in hellos.items():
        if hello.get("processes", 1) != own.get("processes", 1):
            return (
                f"replica_group: member {index} has {hello.get('processes', 1)} processes and "
                f"member 0 has {own.get('processes', 1)}: all replica groups must be alike"
            )
        if hello.get("elements") != own["elements"]:
            return (
                f"model: member {index} has {hello.get('elements')} numbers to sum and member 0 "
                f"has {own['elements']}: all workers must build the same model"
            )
        theirs = hello.get("layout")  # a member of a release before this does not say
        if theirs is not None and theirs != own["layout"]:
            return (
                f"model: member {index} sums {theirs} and member 0 sums {own['layout']}: all "
                "workers must build the same model, with the same parts on devices of their own"
            )
    return ""
