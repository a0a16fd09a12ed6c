"""The part of one process in the membership of its replica group: the first acts, all do alike.

A replica group is one member of the session's groups. Its first process holds the line to the
trainer and the channels to the other members (`penstock.trainer.group.membership`); whatever it is
told, it tells the others of its replica group, and process ``i`` of each member sums with process
``i`` of every other. What keeps the processes at one step:

- A step is agreed on when all of them have computed it, and by all members.
- After the sums there is a fence: all have theirs, or nobody takes the optimizer's step. A sum
  fails in some processes and not in others when a member dies within it.
- The model is taken over when all parts of it have arrived.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.trainer.group.collective import Collective, CollectiveError, Gradients
from penstock.trainer.group.group_channels import Entry, ModelHolder, SessionError
from penstock.trainer.group.membership import NO_LOSSES, Verdict
from penstock.trainer.group.step_barrier import GroupBrokenError
from penstock.trainer.replica.arrivals import Arrived, DivergedError, arrival, fence, gather
from penstock.trainer.replica.replica_processes import ReplicaProcesses, Word

logger = logging.getLogger(__name__)


class MemberRole(Protocol):
    """What a member does in groups of members: `penstock.trainer.group.membership.Membership`."""

    slots_per_step: int

    @property
    def inside(self) -> bool:
        """Whether it is in a group."""

    @property
    def size(self) -> int:
        """Members of the group."""

    @property
    def index(self) -> int:
        """Rank within the group."""

    @property
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """The slots in quarantine."""

    @property
    def slots(self) -> range:
        """The slots of the next step that are this member's."""

    def interrupted(self) -> bool:
        """Whether the trainer has ended the group."""

    def join(
        self,
        holder: ModelHolder,
        committed: Callable[[], int | None],
        gradients: Gradients,
        draining: Callable[[], bool],
    ) -> bool:
        """Be in a group; False: there is none to join."""

    def leave(self, broken: GroupBrokenError | None = None) -> None:
        """Let go of the group."""

    def agree(
        self,
        step: int,
        slots: list[int],
        consumed: list[tuple[int, bytes]],
        *,
        leave: bool,
        losses: Mapping[int, float] = NO_LOSSES,
        says: Any = None,
    ) -> Verdict:
        """Wait until all have computed their part of a step."""

    def sum_gradients(self, gradients: Gradients, weight: float) -> None:
        """Add the gradients up over the members."""

    def note_committed(self) -> None:
        """A step has been committed."""


class AloneMember:
    """A replica group without a trainer: the only member of the only group."""

    def __init__(
        self, processes: ReplicaProcesses, slots_per_step: int, *, restore: int | None
    ) -> None:
        """``restore``: the step of the checkpoint to begin with; None: there is none."""
        self._processes = processes
        self._restore = restore
        self.slots_per_step = slots_per_step
        self.inside = False
        self.size = 1
        self.index = 0
        self.skipped: tuple[tuple[int, int], ...] = ()

    @property
    def slots(self) -> range:
        """All of them."""
        return range(self.slots_per_step)

    def interrupted(self) -> bool:
        """Nobody ends this group."""
        return False

    def join(
        self,
        holder: ModelHolder,
        committed: Callable[[], int | None],
        gradients: Gradients,
        draining: Callable[[], bool],
    ) -> bool:
        """Begin."""
        if draining():
            return False
        restore = self._restore if committed() is None else None
        self._processes.enter(Entry(0, 1, restore=restore), holder)
        self.inside = True
        return True

    def leave(self, broken: GroupBrokenError | None = None) -> None:
        """Let go of the group."""
        self.inside = False

    def agree(
        self,
        step: int,
        slots: list[int],
        consumed: list[tuple[int, bytes]],
        *,
        leave: bool,
        losses: Mapping[int, float] = NO_LOSSES,
        says: Any = None,
    ) -> Verdict:
        """All that there is has been computed here."""
        return Verdict(consumed, leave, losses)

    def sum_gradients(self, gradients: Gradients, weight: float) -> None:
        """Average the model's statistics over the processes."""
        gradients.reduce(None, weight)

    def note_committed(self) -> None:
        """Nothing to note."""


class ReplicaMembership:
    """See the module's docstring; ``member``: on the first process alone."""

    def __init__(self, processes: ReplicaProcesses, member: MemberRole | None) -> None:
        assert (member is not None) == processes.leads
        self._processes = processes
        self._member = member
        self._collective: Collective | None = None  # of the others; the first one's is its member's
        self._place: Word | None = None
        self.slots_per_step = 1
        self.drained = False
        """Whether some process of this replica group was asked to go."""
        self.unwritten: Mapping[str, str] = {}
        """What this process cannot write, by reason: said with its next step."""
        self.unwritten_by_any: Mapping[str, str] = {}
        """The first process: what some of them said so last."""

    # ------------------------------------------------------------------ what the session sees

    @property
    def inside(self) -> bool:
        """Whether it is in a group."""
        return self._place is not None

    @property
    def size(self) -> int:
        """Members of the group; 0 outside any."""
        return int(self._place["size"]) if self._place else 0

    @property
    def index(self) -> int:
        """This replica group's rank within the group."""
        return int(self._place["index"]) if self._place else 0

    @property
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """The slots in quarantine, counted over all epochs: ``start..stop`` of each range."""
        if self._place is None:
            return ()
        return tuple((start, stop) for start, stop in self._place["skipped"])

    @property
    def slots(self) -> range:
        """The slots of the next step that are this replica group's."""
        return range(*self._place["slots"]) if self._place else range(0)

    def interrupted(self) -> bool:
        """Never: a replica group finishes computing a step, which needs all of its processes."""
        return False

    # ------------------------------------------------------------------ joining and leaving

    def join(
        self,
        holder: ModelHolder,
        committed: Callable[[], int | None],
        gradients: Gradients,
        draining: Callable[[], bool],
    ) -> bool:
        """As `penstock.trainer.group.membership.Membership.join`, by all processes together.

        Raises:
            ReplicaLostError: a process of this replica group is gone.
            SessionError: as there; or the processes' models are not of one step.
        """
        own = {"committed": committed(), "leave": draining()}
        started = self._processes.exchange(own, _start)
        self.drained = self.drained or started["leave"]
        if started["problem"]:
            raise SessionError(started["problem"])
        if self._member is None:
            return self._follow(holder)
        joined = self._member.join(holder, committed, gradients, lambda: self.drained or draining())
        if not joined:
            self.drained = self.drained or draining()
            self._processes.tell({"end": True, "drained": self.drained})
            return False
        self._settle(self._where(self._member))
        self._processes.tell({"joined": self._place})
        return True

    def _follow(self, holder: ModelHolder) -> bool:
        """Do what the first process says, until there is a group, or will be none."""
        while True:
            word = self._processes.hear()
            if "enter" in word:
                self._close()
                try:
                    self._collective = self._processes.follow(word, holder)
                except GroupBrokenError as error:
                    logger.warning("a group was not formed: %s", error)
                except CollectiveError as error:
                    raise SessionError(str(error)) from error
            elif "joined" in word:
                self._settle(word["joined"])
                return True
            else:
                self.drained = self.drained or word["drained"]
                return False

    def leave(self, broken: GroupBrokenError | None = None) -> None:
        """Let go of the group, whatever its state."""
        if self._member is not None:
            self._member.leave(broken)
        self._close()
        self._place = None

    def _close(self) -> None:
        if self._collective is not None:
            self._collective.close()
            self._collective = None

    def _settle(self, place: Word) -> None:
        self._place = place
        self.slots_per_step = int(place["slots_per_step"])

    @staticmethod
    def _where(member: MemberRole) -> Word:
        return {
            "index": member.index,
            "size": member.size,
            "slots": [member.slots.start, member.slots.stop],
            "slots_per_step": member.slots_per_step,
            "skipped": [list(each) for each in member.skipped],
        }

    # ------------------------------------------------------------------ steps

    def agree(
        self,
        step: int,
        slots: list[int],
        consumed: list[tuple[int, bytes]],
        *,
        leave: bool,
        losses: Mapping[int, float] = NO_LOSSES,
        says: Any = None,
    ) -> Verdict:
        """As `penstock.trainer.group.membership.Membership.agree`, for all processes.

        Nothing moves of a sharded model's steps, so that nobody ``says`` anything.

        Raises:
            GroupBrokenError: as there.
            ReplicaLostError: a process of this replica group is gone.
            SessionError: the processes did not compute the same slots.
        """
        failed: list[GroupBrokenError] = []

        def decide(words: list[Word]) -> Word:
            assert self._member is not None
            try:
                arrived = gather(words)
                verdict = self._agree(self._member, step, slots, arrived)
            except DivergedError as error:
                return {"problem": str(error)}
            except GroupBrokenError as error:
                failed.append(error)
                return {"broken": str(error)}
            return {
                "consumed": verdict.consumed,
                "regroup": verdict.regroup,
                "losses": list(arrived.losses.items()),
                "place": self._where(self._member),
                "drained": self.drained,
            }

        division = self._processes.layout.division
        own = arrival(division, step, consumed, losses, leave=leave, unwritten=self.unwritten)
        verdict = self._processes.exchange(own, decide)
        if failed:
            raise failed[0]
        if "problem" in verdict:
            raise SessionError(verdict["problem"])
        if "broken" in verdict:
            raise GroupBrokenError(verdict["broken"])
        self._settle(verdict["place"])
        self.drained = self.drained or verdict["drained"]
        return Verdict(
            [(slot, samples) for slot, samples in verdict["consumed"]],
            verdict["regroup"],
            dict(verdict["losses"]),
        )

    def _agree(self, member: MemberRole, step: int, slots: list[int], arrived: Arrived) -> Verdict:
        self.drained = self.drained or arrived.leave
        self.unwritten_by_any = arrived.unwritten
        return member.agree(
            step, slots, arrived.consumed, leave=arrived.leave, losses=arrived.losses
        )

    def sum_gradients(self, gradients: Gradients, weight: float) -> None:
        """Add each part of the gradients up over the members; all parts, or it did not happen.

        Raises: as `agree` does; CollectiveError as SessionError.
        """
        failed: list[GroupBrokenError] = []
        try:
            if self._member is not None:
                self._member.sum_gradients(gradients, weight)
            else:
                gradients.reduce(self._collective, weight)
        except GroupBrokenError as error:
            failed.append(error)
        except CollectiveError as error:
            raise SessionError(str(error)) from error
        own: dict[str, Any] = {"broken": str(failed[0]) if failed else ""}
        verdict = self._processes.exchange(own, lambda words: {"broken": fence(words)})
        if failed:
            raise failed[0]
        if verdict["broken"]:
            raise GroupBrokenError(verdict["broken"])

    def note_committed(self) -> None:
        """A step has been committed: groups that broke before it count no more."""
        if self._member is not None:
            self._member.note_committed()


def _start(words: list[Word]) -> Word:
    """Whether all processes of a replica group have a model of the same step."""
    steps = [word["committed"] for word in words]
    differ = any(step != steps[0] for step in steps)
    problem = f"the processes of one replica group have models of steps {steps}" if differ else ""
    return {"problem": problem, "leave": any(word["leave"] for word in words)}
