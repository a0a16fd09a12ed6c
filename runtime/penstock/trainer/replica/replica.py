"""One process's side of its replica group, for the length of a session.

It opens the channels, finds the checkpoint that all processes have a part of, and passes on which
samples a process could not compute and what it cannot write: only the first one speaks with the
trainer. So it waits for the others' parts of the last checkpoint too, and tells of them meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.job import settings
from penstock.job.protocol import Trouble
from penstock.job.storage import LAST_SECONDS
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.replica.arrivals import common_steps
from penstock.trainer.replica.last_save import LastSave, through, waiting
from penstock.trainer.replica.layout import Layout
from penstock.trainer.replica.replica_membership import (
    AloneMember,
    MemberRole,
    ReplicaMembership,
)
from penstock.trainer.replica.replica_processes import ReplicaLostError, ReplicaProcesses, Word

POLL_SECONDS: Final = 0.2
LAST_PARTS_SECONDS: Final = LAST_SECONDS + 60.0
"""How long the first process waits for the others' parts, each of which is tried for its time."""


class Replica:
    """See the module's docstring."""

    def __init__(self, layout: Layout) -> None:
        pod = settings.pod_identity()
        self.processes = ReplicaProcesses(layout, pod.ip, pod.token)
        self.failed_slot: int | None = None
        """What another process could not compute, counted over all epochs; known after `close`."""
        self._membership: ReplicaMembership | None = None
        self._last: LastSave | None = None  # while the processes wait for the last checkpoint
        self._open = False

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
        self._open = True
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
        """What some process cannot write, as of the newest step; ``own``: this one, now.

        While the processes `wait_for_all` it is what the others say then.
        """
        if self._membership is None:
            return tuple(own)
        told = {trouble.reason: trouble.message for trouble in own}
        before, self._membership.unwritten = self._membership.unwritten, told
        if self._last is None:
            others = _but(before, self._membership.unwritten_by_any)
        elif self.leads:
            others = self._last.unwritten
        else:
            others = {}
            if told != before:
                self._say(waiting(told))
        found = {**others, **told}
        return tuple(Trouble(reason=reason, message=said) for reason, said in found.items())

    def wait_for_all(
        self, wait: Callable[[Callable[[], bool]], None], waits_on: Callable[[], bool]
    ) -> None:
        """Wait until all parts of the last checkpoint are on disk: called by all processes.

        Args:
            wait: for this process's part; called with what follows.
            waits_on: called a few times a second meanwhile; False: wait no longer.

        Raises:
            SessionError: the first process: another could not write its part.
            CheckpointError: as ``wait`` does.
            ReplicaLostError: the first process: another is gone, and with it its part.
        """
        if not self._open or self._last is not None or self._membership is None:
            wait(waits_on)  # the others have been waited for, or are gone
            return
        told = self._membership.unwritten
        self._last = LastSave(self.processes.size, _but(told, self._membership.unwritten_by_any))
        self._say(waiting(told))
        try:
            wait(lambda: self._hear_of_parts() and waits_on())
        except Exception as error:
            self._say(through(str(error)))
            raise
        self._say(through(""))
        if self.leads:
            self._wait_for_parts(self._last, waits_on)

    def _wait_for_parts(self, last: LastSave, waits_on: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LAST_PARTS_SECONDS
        while self._hear_of_parts() and waits_on() and last.waits:
            if time.monotonic() > deadline:
                raise SessionError("a process of the replica group did not write its part")
            time.sleep(POLL_SECONDS)
        if last.failure:
            raise SessionError(last.failure)

    def _hear_of_parts(self) -> bool:
        """Take up what the others say meanwhile; always True. Raises ReplicaLostError."""
        if self.leads and self._last is not None:
            words, gone = self.processes.heard()
            strange = {process for process, word in words if not self._last.hear(process, word)}
            for process in sorted(gone | strange):
                if self._last.lacks(process):
                    raise ReplicaLostError(
                        f"process {process} of the replica group has not written its part of the "
                        "last checkpoint"
                    )
        return True

    def _say(self, word: Word) -> None:
        """One of the others: tell the first, if it still listens; one's part is written anyway."""
        if not self.leads:
            with contextlib.suppress(ReplicaLostError):
                self.processes.say(word)

    def close(self, failed_slot: int | None) -> None:
        """Let go of the others; ``failed_slot``: what this process could not compute."""
        with contextlib.suppress(ReplicaLostError):
            if failed_slot is not None and not self.leads:
                self.processes.say({"failed": failed_slot})
        if self.leads:
            self.failed_slot = self.processes.heard_failure()
        self._open = False
        self.processes.close()


def _but(own: Mapping[str, str], of_any: Mapping[str, str]) -> dict[str, str]:
    """What of this another process has said."""
    return {reason: said for reason, said in of_any.items() if own.get(reason) != said}
