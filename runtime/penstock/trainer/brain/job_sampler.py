"""What a trainer measures of its job for the Brain: one `Sample` every few seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from penstock.base.enums import Role
from penstock.base.fields import EXACT_INT_MAX
from penstock.data.dispatcher import Dispatcher
from penstock.data.job_input import JobInput
from penstock.job.protocol import GpuUsage
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import ServerFigures
from penstock.throughput.profiles.profile import Profile
from penstock.trainer.brain.launched_speed import LaunchedSpeed
from penstock.trainer.brain.stage_rates import StageRates
from penstock.trainer.cluster.job_view import PodLimits, RolePods
from penstock.trainer.control import queries
from penstock.trainer.control.coordinator import Coordinator
from penstock.wire.samples import QueueSample, RankSample, Sample, ShareSample

LEAST_BUSY: Final = 0.05
"""A training that does less between two batches is taken to do this: how much faster it would be is
not known."""

MOST_CORES: Final = 100_000.0
"""Other jobs say what their data workers do, who may say anything: what no Brain takes is cut."""


class JobSampler:
    """Measures one job: its trainer's state, its dispatcher's, and the limits of its pods."""

    def __init__(self, coordinator: Coordinator, dispatcher: Dispatcher | None = None) -> None:
        self._coordinator = coordinator
        self._dispatcher = dispatcher
        self._limits: Mapping[tuple[Role, int], PodLimits] = {}
        self._accelerated: frozenset[str] = frozenset()
        self._input = JobInput()
        self._stages = StageRates()
        self._figures: dict[ServerId, ServerFigures] = {}  # as of the last sample
        self._launched = LaunchedSpeed()

    def note_pods(self, pods: RolePods) -> None:
        """The job's pods are these now."""
        self._limits, self._accelerated = pods.limits, pods.accelerated

    def note_stages(self, now: float) -> None:
        """Look at what data workers say of the last second; to be called as often."""
        if self._dispatcher is not None:
            self._stages.note(self._dispatcher.workers(now), self._accelerated, now)

    def measure(self, interval: float, now: float) -> Sample:
        """The job as it is now; ``interval``: seconds since the last sample."""
        state, dispatcher = self._coordinator.state, self._dispatcher
        order = state.order
        speed = state.progress.steps_per_second(now, max(interval, 1.0) * 1.5)
        committed = state.committed_steps
        # A program that does not use the API says nothing of steps: it takes one batch in each.
        taken = 0
        if dispatcher is not None and order is None:
            taken = dispatcher.batches_taken(now)
            speed = speed or dispatcher.batches_per_second(now)
        if state.rendezvous.members.launched:
            # Ranks that step together each take a batch: their number counts as well.
            measured = self._launched.measure(state.agents.processes(now))
            taken = self._launched.steps or taken
            if self._launched.counts:
                speed = measured
            elif self._launched.steps:
                speed = 0.0
        return Sample(
            time=time.time(),
            step=committed or taken,
            epoch=committed // order.steps_per_epoch if order else 0,
            steps_per_second=speed,
            samples_per_second=speed * order.samples_per_step if order else 0.0,
            world_size=queries.world_size(state, now) * state.replica_groups.pods
            or self._running_workers(),
            interval_seconds=max(interval, 0.001),
            roles=self._ranks(now),
            queue=self._queue(now),
            share=self._share(now),
        )

    def measure_input(self, now: float) -> Profile | None:
        """The job's input over the last half minute; None where nobody takes enough batches."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return None
        own = [one for one in dispatcher.workers(now) if one.name not in self._accelerated]
        # Several processes of one pod are one data worker, of as many cores.
        workers = round(sum(1 / one.processes for one in (*own, *dispatcher.guests(now))))
        self._input.note(dispatcher.consumers(now), workers, now)
        sizes = [
            limits.milli_cpu / 1000
            for (role, _), limits in self._limits.items()
            if role is Role.DATA_WORKER and limits.milli_cpu
        ]
        return self._input.profile(max(sizes, default=1.0))

    def _queue(self, now: float) -> QueueSample | None:
        """What the training processes say of their input queues; None when none takes batches.

        Where memory or the sampler bounds what is under way, more data workers would get nothing to
        do: the job then takes what it would take.
        """
        queue = self._dispatcher.queue(now) if self._dispatcher is not None else None
        if queue is None:
            return None
        busy = 1.0 if queue.limit else max(1 - queue.wait_share, LEAST_BUSY)
        ideal = queue.dequeued_per_second / busy
        return QueueSample(
            enqueued_per_second=queue.enqueued_per_second,
            dequeued_per_second=queue.dequeued_per_second,
            ideal_per_second=ideal,
            received_bytes_per_second=queue.received_bytes_per_second,
            stages=self._stages.stages(),
        )

    def _share(self, now: float) -> ShareSample | None:
        """What the job's share group does; None where it has none."""
        group = self._dispatcher.group(now) if self._dispatcher is not None else None
        if group is None:
            return None
        said = asdict(group)
        name, cores = said.pop("name"), min(said.pop("cpu_cores"), MOST_CORES)
        counts = {field: min(count, EXACT_INT_MAX) for field, count in said.items()}
        return ShareSample(group=name, cpu_cores=cores, **counts)

    def _running_workers(self) -> int:
        """Workers of a job whose script does not use the API."""
        if self._coordinator.state.data is not None:
            return 0
        used = self._coordinator.state.agents.usage(time.monotonic())
        return sum(role == Role.WORKER for role, _ in used)

    def _ranks(self, now: float) -> dict[Role, dict[int, RankSample]]:
        known = {role.value: role for role in Role}
        found: dict[Role, dict[int, RankSample]] = {}
        state, servers = self._coordinator.state, self._coordinator.servers
        members = state.rendezvous.members.present
        speeds = {member.id.rank: member.report.slot_seconds for member in members}
        slots = queries.slots_by_rank(state)
        waits = self._dispatcher.wait_shares(now) if self._dispatcher is not None else {}
        for (name, rank), usage in self._coordinator.state.agents.usage(now).items():
            report = self._coordinator.state.agents.agents[name, rank].report
            if name not in known:
                continue
            trains = known[name] is Role.WORKER
            slot_seconds = speeds.get(rank) if trains else None
            alone = servers.find_worker(rank) if trains else None
            own = alone.report.lease.slot_seconds if alone is not None else None
            step_seconds = slot_seconds * slots.get(rank, 0) if slot_seconds else own
            found.setdefault(known[name], {})[rank] = RankSample(
                cpu_cores=usage.cpu_cores,
                memory_bytes=usage.memory_bytes,
                **self._limits_of(known[name], rank),
                steps_per_second=1 / own if own else None,
                step_seconds=step_seconds,
                wait_share=waits.get(rank) if trains else None,
                **_sum_up(usage.gpus),
                node=report.node,
                incarnation=report.incarnation,
            )
        if (measured := self._measure_servers()) is not None:
            found[Role.PS] = measured
        for worker in self._dispatcher.workers(now) if self._dispatcher is not None else ():
            accelerated = worker.name in self._accelerated
            role = Role.ACCELERATED_DATA_WORKER if accelerated else Role.DATA_WORKER
            ranks = found.setdefault(role, {})
            sample = RankSample(
                cpu_cores=worker.cpu_cores,
                memory_bytes=worker.memory_bytes,
                node=worker.node,
                incarnation=worker.incarnation,
            )
            if worker.processes > 1 and (other := ranks.get(worker.rank)) is not None:
                sample = _beside(other, sample)
            ranks[worker.rank] = sample
        return found

    def _measure_servers(self) -> dict[int, RankSample] | None:
        """The servers of the layout that is served; None for a job without servers.

        A server's step is one update: the time for which it was at work for each.
        """
        servers = self._coordinator.servers
        if not servers.active:
            return None
        found: dict[int, RankSample] = {}
        before, self._figures = self._figures, {}
        for owner in servers.layout.servers if servers.layout is not None else ():
            known = servers.find_server(owner.id)
            usage = known.report.usage if known is not None else None
            if known is None or usage is None:
                continue
            self._figures[owner.id] = figures = known.report.figures
            last = before.get(owner.id)
            if last is None:
                continue  # a row is of a server that was there through the whole interval
            updates = figures.pushes - last.pushes
            busy = figures.busy_seconds - last.busy_seconds
            found[owner.id.rank] = RankSample(
                cpu_cores=usage.cpu_cores,
                memory_bytes=usage.memory_bytes,
                **self._limits_of(Role.PS, owner.id.rank),
                step_seconds=busy / updates if updates > 0 else None,
                node=known.report.node,
                incarnation=owner.id.incarnation,
            )
        return found

    def _limits_of(self, role: Role, rank: int) -> dict[str, Any]:
        """The limits of a pod, where it has any."""
        limits = self._limits.get((role, rank))
        if limits is None:
            return {}
        cpu = limits.milli_cpu / 1000 if limits.milli_cpu else None
        return {"cpu_limit_cores": cpu, "memory_limit_bytes": limits.memory_bytes or None}


def _beside(one: RankSample, other: RankSample) -> RankSample:
    """Two processes of one pod as that pod."""
    both = {
        "cpu_cores": min(one.cpu_cores + other.cpu_cores, MOST_CORES),
        "memory_bytes": min(one.memory_bytes + other.memory_bytes, EXACT_INT_MAX),
    }
    return other.model_copy(update=both)


def _sum_up(gpus: Sequence[GpuUsage]) -> dict[str, Any]:
    """The devices of one pod as fields of its sample; none where no device is measured."""
    if not gpus:
        return {}
    busy = [each.utilization for each in gpus if each.utilization is not None]
    used = [each.memory_bytes for each in gpus if each.memory_bytes is not None]
    total = [each.memory_total_bytes for each in gpus if each.memory_total_bytes is not None]
    power = [each.power_watts for each in gpus if each.power_watts is not None]
    return {
        "gpus": len(gpus),
        "gpu_utilization": min(1.0, math.fsum(busy) / len(busy)) if busy else None,
        "gpu_memory_bytes": sum(used) if used else None,
        "gpu_memory_total_bytes": sum(total) if total else None,
        "gpu_power_watts": math.fsum(power) if power else None,
    }
