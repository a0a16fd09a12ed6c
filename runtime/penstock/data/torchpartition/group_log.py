"""Loaders of a process that is in one of PyTorch's own groups, as with `DistributedDataParallel`.

What members say is written to a log in the group's own store, by which they have found each other:
each entry has a number, so that all hear them in the same order. Steps are granted some ahead, and
only who wants the first that is not reads the log: for `AHEAD` steps one question to the store, by
one member each. Nobody waits for anybody: where others have no such loader, or do not go on with
it, nothing moves.

A log lives as long as its group. Whoever forms another one has a new log, and all record again.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any, Final, Protocol

import torch.distributed

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition import declared
from penstock.data.partition.declared import Standing
from penstock.data.partition.errors import ProofError
from penstock.data.partition.events import Asked, Event
from penstock.data.partition.proof import Settings
from penstock.data.partition.words import read, written
from penstock.data.torchpartition.group_steps import GroupSteps

AHEAD: Final = 16
WAIT: Final = timedelta(seconds=10)
"""For an entry that has its number; who died in between has ended the group."""


class Store(Protocol):
    """As `torch.distributed.Store`."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number; the sum."""

    def set(self, key: str, value: str, /) -> None:
        """Write something."""

    def get(self, key: str, /) -> bytes:
        """Read it."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        """Until all are there. Raises RuntimeError: not in time."""


class EventLog:
    """What members have said, in one order."""

    def __init__(self, store: Store, name: str) -> None:
        """``name``: of the loader, the same in all members."""
        self._store = store
        self._key = f"penstock/partition/{name}"
        self._read = 0

    def say(self, event: Event) -> None:
        """Write it for all; raises RuntimeError: the store is gone."""
        number = self._store.add(f"{self._key}/count", 1) - 1
        self._store.set(f"{self._key}/{number}", json.dumps(written(event)))

    def hear(self) -> list[Event]:
        """What was said since; raises RuntimeError: the store is gone, or who said it is."""
        count = self._store.add(f"{self._key}/count", 0)
        keys = [f"{self._key}/{number}" for number in range(self._read, count)]
        if keys:
            self._store.wait(keys, WAIT)
        self._read = count
        return [read(json.loads(self._store.get(key))) for key in keys]


class LoggedSteps(GroupSteps):
    """See the module's docstring."""

    def __init__(self, name: str, members: Members) -> None:
        """``name``: of the loader, for people."""
        super().__init__(name)
        self._members = members
        self._of: Any = None
        self._log: EventLog | None = None
        self._said: set[Event] = set()
        self._at = 0

    def deliver(self, given: Any, *, first: bool = True) -> Any:
        """What the program gets of what was made, as all members of the group run the step."""
        self.end_step()
        try:
            self._agree()
        except (RuntimeError, ProofError) as error:
            self.give_up(f"its group does not say what is to move: {error}"[:500])
        self.state = declared.begin_step(self.state, self._at)
        self._at += 1
        return super().deliver(given, first=first)

    def _agree(self) -> None:
        """Have the step that begins granted, and say what was found in those before."""
        if not self._over and self._of is not (group := self._members.group()):
            self._form(group)
        if self._log is None:
            return
        self._say(self._log)
        if self._over or self._at < self.state.proof.horizon:
            return
        goes_on = self._hear(self._log)
        if goes_on and self._at >= self.state.proof.horizon:
            epoch, place = self.state.proof.epoch, self.state.place
            assert place is not None, "it is a member of a group"
            self._log.say(Asked(epoch, place.member, self._at))
            self._hear(self._log)
        self._say(self._log)

    @property
    def _over(self) -> bool:
        return self.state.phase is Phase.FELL_BACK

    def _form(self, group: Any) -> None:
        """All members of a group begin alike."""
        for one in self._open.all_over():
            self._end(one)
        rank, world = self._members.rank_and_world()
        self._log = EventLog(self._members.store(), self._members.name_of(self.name, group))
        self._of, self._at, self._said = group, 0, set()
        state = declared.join(str(rank), Settings(ahead=AHEAD))
        standings = {str(one): Standing(why="nothing is recorded yet") for one in range(world)}
        self.state = declared.regroup(state, standings, 0)

    def _say(self, log: EventLog) -> None:
        place = self.state.place
        assert place is not None, "it is a member of a group"
        for event in place.said:
            if event not in self._said:
                log.say(event)
                self._said.add(event)

    def _hear(self, log: EventLog) -> bool:
        """Take what others have said; whether the partition is still looked at then."""
        said = log.hear()
        self._tell(declared.hear(self.state, said))
        self._said.difference_update(said)
        self._follow()
        return not self._over


class Members:
    """The group that this process is in."""

    def __init__(self) -> None:
        self._names: Counter[tuple[int, str]] = Counter()

    def group(self) -> Any:
        """Another object where it was formed anew; None: there is none."""
        return torch.distributed.group.WORLD if torch.distributed.is_initialized() else None

    def rank_and_world(self) -> tuple[int, int]:
        """Of this process."""
        return torch.distributed.get_rank(), torch.distributed.get_world_size()

    def store(self) -> Store:
        """Of the group."""
        found: Store = torch.distributed.distributed_c10d._get_default_store()
        return found

    def name_of(self, loader: str, group: Any) -> str:
        """Loaders of one name are counted, and each process has them in the same order."""
        key = (id(group), loader)
        self._names[key] += 1
        return f"{loader}/{self._names[key]}"


_members: Final = Members()


def steps_in_group(name: str) -> LoggedSteps | None:
    """For a loader of a process in a group of several; None: it is alone."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return LoggedSteps(name, _members) if torch.distributed.get_world_size() > 1 else None
