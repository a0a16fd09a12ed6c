"""One interval of the allocation: every job's tuning takes a step, the policy says who may grow.

The tuning of a job (`penstock.scheduler.tuning`) knows what it would try next; whether it may is
decided over all jobs at once by an allocation policy (`penstock.scheduler.policies`), one data
worker more per job and interval, while there is room. What a job gives up needs no permission.

Guarantees:
- a job that reports nothing new, no numbers, or what was measured before its last change had its
  full effect, is left as it is;
- a job that does not wait for data gets no data worker;
- one that waits for storage, as a model of it says, gets none either, which is said once;
- one that a model has found for some time to need fewer gives the others back;
- no Scale is written that asks for what was asked for last;
- a job that has data workers already, as after a restart of the planner, goes on from there;
- jobs that share batches get together what the fastest of them needs (`share_groups`);
- a job whose input is made in several stages is tuned stage by stage (`staged_jobs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.enums import Offload, Role
from penstock.base.quantity import format_bytes
from penstock.scheduler.allocation_job import STARVED_RATIO, JobRates
from penstock.scheduler.model.decisions import Reason
from penstock.scheduler.model.job_memory import SETTLING_SECONDS, Change, Memory, Running
from penstock.scheduler.model.job_view import JobView
from penstock.scheduler.model.signals import QueueSignals
from penstock.scheduler.planner.preemption import Standing
from penstock.scheduler.planner.share_groups import Having, gain_of_all, members_by_job, parts
from penstock.scheduler.planner.staged_jobs import StagedStep, carry_out, is_staged, next_step
from penstock.scheduler.policies.allocate import MOVE_PAUSE_SECONDS, Allocation, allocate
from penstock.scheduler.policies.policy import AllocationPolicy
from penstock.scheduler.request import Request
from penstock.scheduler.tuning import Limits, Measured, Stage, Tuning, begin, step

REOPEN_INTERVALS: Final = 3
"""Intervals in a row for which a tuned job must wait for data before it is tuned again."""


MOST_TRAINING_GROWTH: Final = 2
"""A training worker gets at most so many times the cores that its template asks for."""

STORAGE_INTERVALS: Final = 2
"""After so many intervals in a row it is said that a job waits for its storage."""

MEASURING_SECONDS: Final = 11.0
"""How old a job's newest change must be at the time of a report that tells what came of it.

A report's queue covers five seconds and may be five more old; a second passes on its way.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one interval decided; `left_alone` says of which jobs nothing can be said, and why.

    `notices` are changes of nothing, to be told people: their roles are empty.
    """

    changes: tuple[Change, ...]
    memories: Mapping[str, Memory]
    standings: Mapping[str, Standing]
    left_alone: Mapping[str, str]
    notices: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    """A job, where its tuning is, and where it wants to go."""

    job: JobView
    memory: Memory
    signals: QueueSignals
    now: Tuning
    then: Tuning

    @property
    def grows(self) -> bool:
        return self.then.data_cores > self.now.data_cores

    @property
    def by_trial(self) -> bool:
        """Whether it grows to see what comes of it, and not because a model says by how much."""
        return self.then.stage is not Stage.PREDICTED and self.now.stage is not Stage.FEWER


HasRoom = Callable[[JobView, Request, int, bool], bool]
"""Reserves room for the job's next data worker, the how many-th of this interval, or says no.

The last argument says whether a smaller one would do, because it is a worker of its own.
"""


class Interval:
    """Takes one interval's decisions.

    Args:
        policy: who goes first.
        tunes_training: whether the training workers' CPU is tuned, too, down and up. That resizes
            their pods in place, and where the cluster cannot do that the controller replaces them,
            so it is a choice.
    """

    def __init__(self, policy: AllocationPolicy, *, tunes_training: bool = False) -> None:
        self._policy = policy
        self._tunes_training = tunes_training

    def decide(
        self,
        now: float,
        jobs: Mapping[str, JobView],
        running: Mapping[str, Running],
        signals: Mapping[str, QueueSignals],
        memories: Mapping[str, Memory],
        has_room: HasRoom,
    ) -> Outcome:
        """Every job's next step. Jobs that are gone are forgotten."""
        left_alone: dict[str, str] = {}
        kept: dict[str, Memory] = {}
        steps: dict[str, _Step] = {}
        staged: dict[str, StagedStep] = {}
        sharing = members_by_job(jobs)
        signals = _with_parts(jobs, running, signals, sharing)
        for uid, job in sorted(jobs.items()):
            known = memories.get(uid)
            if job.hands_off:
                left_alone[uid] = job.hands_off
                continue
            have = running.get(uid, Running())
            memory = known or Memory(self._first(job, have))
            found = signals.get(uid)
            if found is None or found.time_seconds <= memory.seen_seconds:
                left_alone[uid] = "it reports nothing new about its data queue"
                kept[uid] = memory
                continue
            memory = self._overruled(now, job, memory)
            if memory.rests_until > now:
                left_alone[uid] = "somebody took its data workers away: it rests for a while"
                kept[uid] = memory
                continue
            changed = max(memory.asked_seconds, have.since_seconds)
            shared_cores = have.cores * have.ready
            for other in sharing.get(uid, ()):  # what one is given, all have
                theirs = running.get(other, Running())
                asked = memories[other].asked_seconds if other in memories else changed
                changed = max(changed, asked, theirs.since_seconds)
                shared_cores += theirs.cores * theirs.ready if other != uid else 0
            if found.time_seconds - changed < MEASURING_SECONDS:
                left_alone[uid] = "its report is of a time before its last change had effect"
                kept[uid] = memory
                continue
            if job.accelerated is not None and is_staged(now, job.accelerated, memory, found):
                staged[uid] = next_step(now, job, job.accelerated, memory, found, have)
                continue
            steps[uid] = self._step(job, memory, found, have, shared_cores)
        rates = {uid: self._rates(one, now) for uid, one in steps.items()}
        _share(steps, rates, signals, sharing)
        rates |= {uid: one.rates(now) for uid, one in staged.items()}
        for uid, rate in rates.items():
            if (problem := rate.problem()) is not None:
                left_alone[uid] = problem
        allocation = self._allocate(now, steps, staged, rates, left_alone, has_room, sharing)
        changes, notices = [], []
        for uid, one in steps.items():
            change, kept[uid] = self._carry_out(now, one, rates[uid], allocation, left_alone)
            if change is not None:
                changes.append(change)
            notice, kept[uid] = _of_storage(one, rates[uid], kept[uid])
            if notice is not None:
                notices.append(notice)
        for uid, stage in staged.items():
            kept[uid] = stage.memory
            if uid not in left_alone:
                change, kept[uid] = carry_out(now, stage, rates[uid], allocation.grow.get(uid, 0))
                changes += [change] if change is not None else []
        standings = {
            uid: Standing(
                0.0 if uid in left_alone else self._policy.key(rates[uid]),
                1000 * kept[uid].tuning.surplus_cores,
            )
            for uid in rates
        }
        return Outcome(tuple(changes), kept, standings, left_alone, tuple(notices))

    def _first(self, job: JobView, have: Running) -> Tuning:
        limits = self._limits(job)
        tuning = begin(limits)
        if have.live:  # an earlier planner's: go on from there; what the baseline was is not known
            cores = max(1, have.cores)
            return replace(
                tuning,
                stage=Stage.DATA_WORKERS,
                data_workers=have.live,
                data_worker_cores=cores,
                max_data_worker_cores=cores,
                why=f"{have.live} data workers of {cores} cores were there already",
            )
        return tuning

    def _overruled(self, now: float, job: JobView, memory: Memory) -> Memory:
        """Take over a number of data workers that somebody else has decided on.

        That is a person, or the controller after data workers failed one after the other.
        """
        tuning, wanted = memory.tuning, job.desired_data_workers
        settled = now - memory.asked_seconds >= SETTLING_SECONDS
        if wanted == tuning.data_workers or not settled:
            return memory
        if not wanted:
            fresh = replace(begin(self._limits(job)), why="somebody took its data workers away")
            return replace(memory, tuning=fresh, rests_until=now + MOVE_PAUSE_SECONDS)
        why = f"somebody asked for {wanted} data workers"
        cores = max(1, tuning.data_worker_cores)
        taken_over = replace(
            tuning,
            stage=Stage.TUNED,
            data_workers=wanted,
            data_worker_cores=cores,
            needed=wanted,
            why=why,
        )
        return replace(memory, tuning=taken_over, grown_seconds=now)

    @staticmethod
    def _limits(job: JobView) -> Limits:
        return Limits(
            job.training_cores,
            job.data_worker_cores,
            job.most_data_workers,
            job.least_data_workers,
        )

    def _step(
        self, job: JobView, memory: Memory, found: QueueSignals, have: Running, shared_cores: int
    ) -> _Step:
        tuning = memory.tuning
        granted = have.ready >= tuning.data_workers and (
            not have.live or have.cores >= tuning.data_worker_cores
        )
        busy = found.training_cores_used / max(1, tuning.training_cores)
        measured = Measured(found.throughput, found.enqueue, found.dequeue, granted, busy)
        memory = replace(
            memory,
            seen_seconds=found.time_seconds,
            starved_intervals=0 if measured.is_ideal else memory.starved_intervals + 1,
            gain=memory.gain.measured(1000 * shared_cores, found.throughput),
        )
        if tuning.stage is Stage.TUNED and memory.starved_intervals >= REOPEN_INTERVALS:
            waited = found.time_seconds - memory.grown_seconds >= MOVE_PAUSE_SECONDS
            if waited and 0 < tuning.data_workers < job.most_data_workers:
                why = "tuned, but it waits for data again"
                tuning = replace(tuning, stage=Stage.DATA_WORKERS, before=0.0, why=why)
        predicted = found.predicted
        if job.offload is Offload.ALWAYS and predicted is not None and not predicted.data_workers:
            predicted = None  # it is to have some, whatever a model says
        limits = self._limits(job)
        if self._tunes_training:
            most = min(
                tuning.training_cores + have.spare_training_cores,
                MOST_TRAINING_GROWTH * job.training_cores,
            )
            limits = replace(limits, most_training_cores=most)
        then = step(tuning, measured, limits, predicted)
        if not self._tunes_training and then.stage is Stage.TRAINING_WORKER_SIZE:
            why = f"{then.data_workers} data workers of {then.data_worker_cores} cores do"
            then = replace(
                then,
                stage=Stage.TUNED,
                training_cores=tuning.training_cores,
                surplus_cores=0,
                why=why,
            )
        return _Step(job, memory, found, tuning, then)

    @staticmethod
    def _rates(one: _Step, now: float) -> JobRates:
        found, tuning = one.signals, one.now
        more = max(1000, 1000 * (one.then.data_cores - tuning.data_cores))
        since = one.memory.waiting_since
        always = one.job.offload is Offload.ALWAYS and not tuning.data_workers
        model = found.predicted
        modelled = None if model is None else model.gain_per_core(found.throughput) / 1000
        at_once = 1
        if one.then.stage is Stage.PREDICTED or one.now.stage is Stage.FEWER:
            at_once = max(1, one.then.data_workers - tuning.data_workers)
        return JobRates(
            job=one.job.uid,
            enqueue=0.0 if always else found.enqueue,
            dequeue=found.dequeue,
            throughput=found.throughput,
            ideal_throughput=found.ideal_throughput,
            accelerators=max(1, one.job.accelerators),
            remaining_steps=found.remaining_steps,
            data_milli_cpu=1000 * tuning.data_cores,
            next_milli_cpu=more,
            gain=one.memory.gain.next_gain(more, modelled),
            waiting_seconds=0.0 if since is None else max(0.0, now - since),
            data_workers=tuning.data_workers,
            at_once=at_once,
        )

    def _allocate(
        self,
        now: float,
        steps: Mapping[str, _Step],
        staged: Mapping[str, StagedStep],
        rates: Mapping[str, JobRates],
        left_alone: Mapping[str, str],
        has_room: HasRoom,
        sharing: Mapping[str, tuple[str, ...]],
    ) -> Allocation:
        asked: dict[str, int] = {}
        tried: dict[tuple[str, ...], str] = {}  # by group, who tries one more in this interval

        def room(rate: JobRates) -> bool:
            if rate.job in staged:
                stage = staged[rate.job]
                number = asked[rate.job] = asked.get(rate.job, 0) + 1
                return number <= stage.more and has_room(stage.job, stage.request(), number, False)
            one = steps[rate.job]
            if not one.grows:
                return False
            group = sharing.get(rate.job)
            if group and one.by_trial and tried.get(group, rate.job) != rate.job:
                return False
            number = asked[rate.job] = asked.get(rate.job, 0) + 1
            by_size = one.then.data_worker_cores > one.now.data_worker_cores > 0
            if number > 1 and (
                by_size or one.now.data_workers + number > one.job.most_data_workers
            ):
                return False
            cores = one.then.data_worker_cores
            if by_size:  # the worker that is there grows by what it lacks
                cores -= one.now.data_worker_cores
            request = one.job.request(cores)
            if by_size:
                request = replace(request, memory_bytes=0)
            found = has_room(one.job, request, number, not by_size)
            if found and group and one.by_trial:
                tried[group] = rate.job
            return found

        resting = {
            uid for uid, one in steps.items() if now - one.memory.grown_seconds < MOVE_PAUSE_SECONDS
        }
        sound = [rate for uid, rate in rates.items() if uid not in left_alone]
        return allocate(sound, self._policy, room, resting)

    def _carry_out(
        self,
        now: float,
        one: _Step,
        rate: JobRates,
        allocation: Allocation,
        left_alone: Mapping[str, str],
    ) -> tuple[Change | None, Memory]:
        uid, memory, then = one.job.uid, one.memory, one.then
        if uid in left_alone:
            return None, memory
        count = allocation.grow.get(uid, 0)
        if one.grows and not count:
            waiting = memory.waiting_since
            if rate.starves and waiting is None:
                waiting = now
            why = "it waits: no room" if rate.starves else "the queue is full enough"
            held = replace(one.now, why=why)
            return None, replace(memory, tuning=held, waiting_since=waiting)
        reason = Reason.TUNED
        if one.grows:
            reason = Reason.DATA_STALL
            memory = replace(memory, waiting_since=None, grown_seconds=now)
            if count > 1 or then.stage is Stage.PREDICTED:
                workers = min(one.now.data_workers + count, one.job.most_data_workers)
                then = _with_fewer(one, then, workers)
        elif then.stage is Stage.FALLEN_BACK:
            reason = Reason.FELL_BACK
        taken = allocation.shrink.get(uid, 0)
        if taken and not one.grows:
            reason = Reason.TAKEN_BACK
            left = max(0, then.data_workers - taken)
            why = f"{taken} data workers go to a job with less work left"
            then = replace(then, data_workers=left, why=why)
        change = _change(one, then, reason, rate)
        if change is not None:
            memory = replace(memory, asked_seconds=now)
        return change, replace(memory, tuning=then)


def _with_parts(
    jobs: Mapping[str, JobView],
    running: Mapping[str, Running],
    signals: Mapping[str, QueueSignals],
    sharing: Mapping[str, tuple[str, ...]],
) -> Mapping[str, QueueSignals]:
    """The signals, in which what a model says of a member is its part of the group's need."""
    if not sharing:
        return signals
    told = dict(signals)
    for group in sorted(set(sharing.values())):
        having = {}
        for uid in group:
            have, found = running.get(uid, Running()), signals.get(uid)
            active = found is not None and not jobs[uid].hands_off
            predicted = found.predicted if found is not None else None
            having[uid] = Having(have.live * max(1, have.cores), predicted, active)
        for uid, part in parts(having).items():
            told[uid] = replace(told[uid], predicted=part)
    return told


def _share(
    steps: dict[str, _Step],
    rates: dict[str, JobRates],
    signals: Mapping[str, QueueSignals],
    sharing: Mapping[str, tuple[str, ...]],
) -> None:
    """Count what each step is worth to all who share, and hold those that would cost another."""
    alone = dict(rates)
    for uid, one in steps.items():
        others = [alone[other] for other in sharing.get(uid, ()) if other in alone]
        if not others:
            continue
        sound = [other for other in others if other.problem() is None]
        if alone[uid].problem() is None:
            rates[uid] = replace(alone[uid], gain=gain_of_all(alone[uid], sound))
        waits = any(
            signals[other].enqueue < STARVED_RATIO * signals[other].dequeue
            for other in sharing[uid]
            if other != uid and other in signals
        )
        if waits and one.then.data_cores < one.now.data_cores:
            why = "others of its share group wait for data: it keeps its data workers"
            steps[uid] = replace(one, then=replace(one.now, why=why))


def _with_fewer(one: _Step, then: Tuning, workers: int) -> Tuning:
    """As many data workers as there is room for; then less is promised, too."""
    if then.stage is not Stage.PREDICTED or workers >= then.data_workers:
        return replace(then, data_workers=workers)
    share = (workers - one.now.data_workers) / (then.data_workers - one.now.data_workers)
    return replace(
        then,
        data_workers=workers,
        promised=then.baseline + share * (then.promised - then.baseline),
        why=f"{then.why}; there is room for {workers}",
    )


def _of_storage(one: _Step, rate: JobRates, memory: Memory) -> tuple[Change | None, Memory]:
    """Tells once that a job waits for its storage, and again after it did not for a while.

    A program that has just begun reads its own libraries: it is looked at twice.
    """
    found = one.signals.predicted
    stalls = found is not None and found.waits_for_storage and rate.starves
    if not stalls or found is None:
        return None, replace(memory, storage_intervals=0)
    memory = replace(memory, storage_intervals=memory.storage_intervals + 1)
    if memory.storage_intervals != STORAGE_INTERVALS:
        return None, memory
    figures = {"enqueue": rate.enqueue, "dequeue": rate.dequeue, "throughput": rate.throughput}
    notice = Change(one.job, {}, Reason.FETCH_STALL, found.why, figures)
    return notice, memory


def _change(one: _Step, then: Tuning, reason: Reason, rate: JobRates) -> Change | None:
    before = one.now
    roles: dict[str, Any] = {}
    if (then.data_workers, then.data_worker_cores) != (
        before.data_workers,
        before.data_worker_cores,
    ):
        data: dict[str, Any] = {"replicas": then.data_workers}
        if then.data_workers:
            data["resources"] = {"cpu": str(then.data_worker_cores)}
            if one.job.states_memory:
                data["resources"]["memory"] = format_bytes(one.job.shape.memory_bytes)
        roles[Role.DATA_WORKER.value] = data
    if then.training_cores != before.training_cores:
        roles[Role.WORKER.value] = {"resources": {"cpu": str(then.training_cores)}}
    if not roles:
        return None
    figures = {
        "enqueue": rate.enqueue,
        "dequeue": rate.dequeue,
        "throughput": rate.throughput,
        "data_workers": float(then.data_workers),
        "data_worker_cores": float(then.data_worker_cores),
        "training_cores": float(then.training_cores),
    }
    return Change(one.job, roles, reason, then.why, figures)
