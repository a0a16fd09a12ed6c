"""One process's side of its replica group, for the length of a session.

It opens the channels, finds the checkpoint that all processes have a part of, and passes on which
samples a process could not compute and what it cannot write: only the first one speaks with the
trainer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from penstock.job import settings
from penstock.job.protocol import Trouble
from penstock.trainer.replica.arrivals import common_steps
from penstock.trainer.replica.layout import Layout
from penstock.trainer.replica.replica_membership import (
    AloneMember,
    MemberRole,
    ReplicaMembership,
)
from penstock.trainer.replica.replica_processes import ReplicaLostError, ReplicaProcesses


class Replica:
    """See the module's docstring."""

    def __init__(self, layout: Layout) -> None:
        pod = settings.pod_identity()
        self.processes = ReplicaProcesses(layout, pod.ip, pod.token)
        self.failed_slot: int | None = None
        """What another process could not compute, counted over all epochs; known after `close`."""
        self._membership: ReplicaMembership | None = None

    @property
    def leads(self) -> bool:
        """Whether this process speaks for the replica group."""
        return self.processes.leads

    @property
    def drained(self) -> bool:
        """Whether some process of it was asked to go."""
        return self._membership is not None and self._membership.drained

    def open(self, saved: Sequence[int], is_whole: Callable[[int], bool]) -> int | None:
        """Meet the other processes; the step of the newest checkpoint of which all have a part.

        Args:
            saved: the steps of those of which this process has one.
            is_whole: whether that can be read.

        Raises:
            SessionError: not all processes came.
            ReplicaLostError: a process is gone.
        """
        self.processes.open()
        found = self.processes.exchange(
            {"saved": list(saved)}, lambda words: {"steps": common_steps(words)}
        )
        for step in found["steps"]:
            whole = {"whole": is_whole(step)}
            verdict = self.processes.exchange(
                whole, lambda words: {"whole": all(word["whole"] for word in words)}
            )
            if verdict["whole"]:
                return int(step)
        return None

    def membership(
        self, member: MemberRole | None, slots_per_step: int, *, restore: int | None
    ) -> ReplicaMembership:
        """This process's part in the membership; ``member``: that of the first, in a job."""
        if self.leads and member is None:
            member = AloneMember(self.processes, slots_per_step, restore=restore)
        self._membership = ReplicaMembership(self.processes, member)
        return self._membership

    def troubles(self, own: Sequence[Trouble]) -> tuple[Trouble, ...]:
        """What some process cannot write, as of the newest step; ``own``: this one, now."""
        if self._membership is None:
            return tuple(own)
        told = {trouble.reason: trouble.message for trouble in own}
        before, self._membership.unwritten = self._membership.unwritten, told
        others = {
            reason: message
            for reason, message in self._membership.unwritten_by_any.items()
            if before.get(reason) != message
        }
        found = {**others, **told}
        return tuple(Trouble(reason=reason, message=said) for reason, said in found.items())

    def close(self, failed_slot: int | None) -> None:
        """Let go of the others; ``failed_slot``: what this process could not compute."""
        with contextlib.suppress(ReplicaLostError):
            if failed_slot is not None and not self.leads:
                self.processes.say({"failed": failed_slot})
        if self.leads:
            self.failed_slot = self.processes.heard_failure()
        self.processes.close()
