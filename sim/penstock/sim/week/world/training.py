"""One job's training: how many steps it has made, how fast it is, and what goes wrong meanwhile.

What is common to both runs of a week. Whoever owns a job says of which pods it trains now; steps,
CPU and memory in use follow from the truth (`penstock.sim.ps.jobs.model`) until the next such word.
The faults of a job are the same in both runs: the n-th comes when its pods together have run for
so many pod-days.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Final

from penstock.sim.ps.jobs.model import PsConfig, PsSpeed, speed
from penstock.sim.week.world.assumptions import DAY, Assumptions
from penstock.sim.week.world.clock import Clock
from penstock.sim.week.world.jobs import WeekJob

_NEARLY: Final = 1e-6


class Training:
    """The progress of one job."""

    def __init__(
        self,
        job: WeekJob,
        clock: Clock,
        assumed: Assumptions,
        *,
        done: Callable[[], None],
        broken: Callable[[], None],
        pod_fails: Callable[[float], None],
    ) -> None:
        self.job = job
        self.clock = clock
        self.config: PsConfig | None = None
        self.reached: PsSpeed | None = None
        self.steps = 0.0
        self.made_steps = 0.0
        """Steps that were made, those that were lost included."""
        self.lost_steps = 0.0
        self.used_core_seconds = 0.0
        self.used_byte_seconds = 0.0
        self.stepped = clock.now
        """When it made a step last."""
        self._assumed = assumed
        self._done, self._broken, self._pod_fails = done, broken, pod_fails
        self._since = clock.now
        self._saved_at, self._saved_steps = clock.now, 0.0
        self._used_bytes = 0.0
        self._pods = 0
        self._exposed = 0.0
        self._next_fault = 0
        self._version = 0
        self._speeds: dict[tuple[tuple[float, ...], tuple[float, ...]], PsSpeed] = {}

    @property
    def rate(self) -> float:
        """Steps per second now."""
        return 0.0 if self.reached is None else self.reached.steps_per_second

    def advance(self) -> None:
        """Count everything up to now."""
        seconds = self.clock.now - self._since
        self._since = self.clock.now
        if seconds <= 0:
            return
        made = self.rate * seconds
        if made > 0:
            self.stepped = self.clock.now
        self.steps += made
        self.made_steps += made
        self.used_byte_seconds += self._used_bytes * seconds
        self._exposed += self._pods * seconds / DAY * self._assumed.pod_errors
        if self.reached is not None:
            cores = math.fsum(self.reached.worker_cores) + math.fsum(self.reached.server_cores)
            self.used_core_seconds += cores * seconds
        interval = self._assumed.save_interval
        if self.rate > 0 and self.clock.now - self._saved_at >= interval:
            behind = (self.clock.now - self._saved_at) % interval
            self._saved_at = self.clock.now - behind
            # It may have stood still for most of that time: what was saved stays saved.
            self._saved_steps = max(self._saved_steps, self.steps - self.rate * behind)

    def become(self, config: PsConfig | None, pods: int, used_bytes: float) -> None:
        """From now on the job trains as `config` (None: it stands still), with so many pods that
        exist, which hold `used_bytes`.
        """
        self.advance()
        self._pods, self._used_bytes = pods, used_bytes
        if config != self.config:
            self.config = config
            self.reached = None if config is None else self._speed(config)
        self._expect()

    def roll_back(self) -> None:
        """The parameters are lost: what was made since they were saved is made again."""
        self.advance()
        lost = max(0.0, self.steps - self._saved_steps)
        self.lost_steps += lost
        self.steps -= lost
        self._saved_at = self.clock.now
        self._expect()

    def save(self) -> None:
        """The parameters are saved now, as when servers change."""
        self.advance()
        self._saved_at, self._saved_steps = self.clock.now, self.steps

    def stop(self) -> None:
        """Nothing happens to the job any more."""
        self.become(None, 0, 0.0)
        self._version += 1

    def _speed(self, config: PsConfig) -> PsSpeed:
        key = (config.workers, config.servers)
        if key not in self._speeds:
            self._speeds[key] = speed(self.job.model, config)
        return self._speeds[key]

    def _expect(self) -> None:
        self._version += 1
        version, waits = self._version, []
        if self.rate > 0:
            ends = [self.job.steps]
            if self.job.broken_at is not None:
                ends.append(self.job.broken_at)
            waits += [max(0.0, end - self.steps) / self.rate for end in ends]
        hazard = self._pods * self._assumed.pod_errors / DAY
        if hazard > 0 and self._next_fault < len(self.job.faults):
            left = self.job.faults[self._next_fault][0] - self._exposed
            waits.append(max(0.0, left) / hazard)
        if waits:
            self.clock.at(self.clock.now + min(waits), _unless_gone(self._due, version))

    def _due(self, version: int) -> None:
        if version != self._version:
            return
        self.advance()
        job = self.job
        near = _NEARLY * job.steps
        if self.rate > 0 and job.broken_at is not None and self.steps >= job.broken_at - near:
            self._broken()
        elif self.rate > 0 and self.steps >= job.steps - near:
            self._done()
        elif (
            self._next_fault < len(job.faults)
            and self._exposed >= job.faults[self._next_fault][0] - _NEARLY
        ):
            which = job.faults[self._next_fault][1]
            self._next_fault += 1
            self._exposed = 0.0
            self._pod_fails(which)
            self._expect()
        else:
            self._expect()


def _unless_gone(due: Callable[[int], None], version: int) -> Callable[[], None]:
    """`due` of a training, which is not kept for it: most of these come long after it has ended."""
    held = weakref.WeakMethod(due)

    def act() -> None:
        if (method := held()) is not None:
            method(version)

    return act
