"""Jobs whose input is made in stages by pods of several roles, in one interval (pure).

Data workers make the first stage and accelerated data workers the second, one accelerator each. A
job takes part in the allocation with what its stage that is looked at lacks
(`penstock.scheduler.stage_tuning`); it gets as many workers of it as there is room for.

Guarantees:
- one stage changes at a time, and only while all workers that were asked for make batches;
- a stage keeps its last worker, and what the spec says at the least;
- a number that somebody else asked for is where the tuning goes on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.enums import DATA_ROLES, Role
from penstock.base.quantity import format_bytes
from penstock.scheduler.allocation_job import STARVED_RATIO, JobRates
from penstock.scheduler.model.decisions import Reason
from penstock.scheduler.model.job_memory import SETTLING_SECONDS, Change, Memory, Running
from penstock.scheduler.model.job_view import AcceleratedWorkers, JobView
from penstock.scheduler.model.signals import QueueSignals
from penstock.scheduler.policies.allocate import MOVE_PAUSE_SECONDS
from penstock.scheduler.request import Request
from penstock.scheduler.stage_tuning import StageTuning, step
from penstock.scheduler.tuning import Stage


@dataclass(frozen=True, slots=True)
class StagedStep:
    """A job of several stages, where its tuning is, and where it wants to go."""

    job: JobView
    accelerated: AcceleratedWorkers
    memory: Memory
    signals: QueueSignals
    cores: int
    """Of each data worker of the first stage."""
    now: StageTuning
    then: StageTuning

    @property
    def changed(self) -> int | None:
        """The stage that gets other workers, if one does."""
        pairs = enumerate(zip(self.now.workers, self.then.workers, strict=True))
        return next((number for number, (own, new) in pairs if own != new), None)

    @property
    def more(self) -> int:
        """Workers that it is to get; 0: none, or fewer than it has."""
        return max(0, sum(self.then.workers) - sum(self.now.workers))

    def request(self) -> Request:
        """What one worker of the stage asks for that changes."""
        first = not self.changed
        return self.job.request(self.cores) if first else self.accelerated.request

    def rates(self, now: float) -> JobRates:
        """What an allocation policy is told.

        More workers bring as much as they are more, up to what the training takes. None are taken
        back for another job: which stage could do without is not known to a policy.
        """
        found, number = self.signals, self.changed
        own = self.now.workers[number] if number is not None else 0
        factor = 1 + self.more / own if own else 2.0
        ideal, since = found.ideal_throughput, self.memory.waiting_since
        more = max(1, self.more) * self.request().milli_cpu
        sizes = (1000 * self.cores, self.accelerated.request.milli_cpu)
        return JobRates(
            job=self.job.uid,
            enqueue=found.enqueue,
            dequeue=found.dequeue,
            throughput=found.throughput,
            ideal_throughput=ideal,
            accelerators=max(1, self.job.accelerators),
            remaining_steps=found.remaining_steps,
            data_milli_cpu=sum(
                size * count for size, count in zip(sizes, self.now.workers, strict=True)
            ),
            next_milli_cpu=max(1, more),
            gain=max(0.0, min(ideal, factor * found.throughput) - found.throughput),
            waiting_seconds=0.0 if since is None else max(0.0, now - since),
            at_once=max(1, self.more),
        )

    def granted(self, count: int) -> StageTuning:
        """The next state, where it gets so many workers of those that it wants."""
        number = self.changed
        if not self.more or number is None or count >= self.more:
            return self.then
        if not count:
            return replace(self.now, why=f"{self.then.why}; there is no room")
        workers = list(self.now.workers)
        workers[number] += count
        return replace(
            self.then, workers=tuple(workers), why=f"{self.then.why}; there is room for {count}"
        )

    def roles(self, then: StageTuning) -> Mapping[str, Any]:
        """The roles of a Scale; empty where nothing changes."""
        found: dict[str, Any] = {}
        for role, own, new in zip(DATA_ROLES, self.now.workers, then.workers, strict=True):
            if own != new:
                found[role.value] = {"replicas": new} | self._sizes(role)
        return found

    def _sizes(self, role: Role) -> dict[str, Any]:
        if role is Role.DATA_WORKER:
            cores, memory = self.cores, self.job.shape.memory_bytes
            says_memory, says_cores = self.job.states_memory, True
        else:
            asked = self.accelerated.request
            cores, memory = asked.milli_cpu // 1000, asked.memory_bytes
            says_memory = says_cores = self.accelerated.states_size
        sizes = {"cpu": str(cores)} if says_cores else {}
        if says_memory:
            sizes["memory"] = format_bytes(memory)
        return {"resources": sizes} if sizes else {}


def is_staged(
    now: float, accelerated: AcceleratedWorkers, memory: Memory, found: QueueSignals
) -> bool:
    """Whether a job is tuned by stages: it reports several, or did.

    One whose accelerated data workers made room for a GPU pod may ask for one again after a while;
    not one of which somebody else took them.
    """
    if found.stages or memory.stages is None:
        return bool(found.stages)
    if memory.stages.workers[1]:
        return accelerated.desired > 0 or now - memory.asked_seconds < SETTLING_SECONDS
    return now - memory.grown_seconds >= MOVE_PAUSE_SECONDS


def next_step(
    now: float,
    job: JobView,
    accelerated: AcceleratedWorkers,
    memory: Memory,
    found: QueueSignals,
    have: Running,
) -> StagedStep:
    """What a job of several stages would try next.

    Args:
        now: the present time.
        job: the job.
        accelerated: what it may have of accelerated data workers.
        memory: what is remembered of it.
        found: its newest report.
        have: the data workers that are there.
    """
    tuning = memory.stages
    settled = now - memory.asked_seconds >= SETTLING_SECONDS
    second = accelerated.desired if tuning is None or settled else tuning.workers[1]
    asked = (memory.tuning.data_workers, second)
    if tuning is None or tuning.workers != asked:
        tuning = StageTuning(asked, why="as many as somebody asked for")
    most = (job.most_data_workers, accelerated.most)
    least = (max(1, job.least_data_workers), max(1, accelerated.least))
    ready = (have.ready, have.accelerated_ready)
    waits = found.enqueue < STARVED_RATIO * found.dequeue
    if waits and 0 in asked and most[asked.index(0)]:
        number = asked.index(0)
        workers = (*asked[:number], 1, *asked[number + 1 :])
        why = f"stage {number} has no worker, and the training waits: one"
        then = StageTuning(workers, full=tuning.full, why=why)
    elif any(there < own for there, own in zip(ready, asked, strict=True)):
        then = replace(tuning, why="wait: not all workers that were asked for make batches")
    elif not found.stages:
        then = replace(tuning, why="wait: what its stages do is not known yet")
    else:
        then = step(tuning, found.stages, found.dequeue, most, least)
    memory = replace(memory, seen_seconds=found.time_seconds)
    return StagedStep(job, accelerated, memory, found, max(1, have.cores), tuning, then)


def carry_out(
    now: float, one: StagedStep, rate: JobRates, count: int
) -> tuple[Change | None, Memory]:
    """What is asked for, where the job may get so many workers, and what is remembered."""
    then = one.granted(count)
    first = then.workers[0]
    tuning = replace(
        one.memory.tuning,
        stage=Stage.TUNED,
        data_workers=first,
        data_worker_cores=one.cores,
        needed=first,
        why=then.why,
    )
    memory = replace(one.memory, tuning=tuning, stages=then)
    if one.more and not count:
        waiting = memory.waiting_since
        if rate.starves and waiting is None:
            waiting = now
        return None, replace(memory, waiting_since=waiting)
    roles = one.roles(then)
    if not roles:
        return None, memory
    memory = replace(memory, asked_seconds=now, waiting_since=None)
    figures = {
        "enqueue": rate.enqueue,
        "dequeue": rate.dequeue,
        "throughput": rate.throughput,
        "data_workers": float(first),
        "data_worker_cores": float(one.cores),
        "accelerated_data_workers": float(then.workers[1]),
    }
    reason = Reason.DATA_STALL if one.more else Reason.TUNED
    return Change(one.job, roles, reason, then.why, figures), memory
