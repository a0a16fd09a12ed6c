"""The first plan of a job that resembles none before it (DLRover, section 4.2).

With parameter servers, the job starts on one worker and a few servers that are as large as a pod
may be, so that the next stage measures what they really use. With AllReduce it starts on the
fewest workers that the job allows, since each count that is tried costs one restart and the
marginal speed can only be measured from below. CPU comes from the template where it asks for
some, else from an equal share of the job's limits.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    RolePlan,
    RoleSpec,
)
from penstock.brain.sizes import CORE, GIB, MEMORY_STEP_BYTES, pod_memory_bytes, pod_milli_cpu


class ColdCreateParams(Params):
    """What a job gets of which nothing is known."""

    servers: Annotated[int, Field(ge=1, le=64)] = 4
    """Parameter servers to start on: enough that most jobs never need another number of them."""
    memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 8 * GIB
    """Memory of a parameter server, and of a worker that uses one, where nothing says more."""
    worker_memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 2 * GIB
    """Memory of a worker without parameter servers, where nothing says more."""
    worker_milli_cpu: Annotated[int, Field(ge=100)] = CORE
    """CPU of a worker without parameter servers, where neither template nor limits say more."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: ColdCreateParams
) -> Plan | None:
    """A plan of stage Create; None once the job has a plan."""
    if history.plans:
        return None
    if job.strategy is Strategy.PARAMETER_SERVER:
        roles = _with_servers(job, limits, params)
    else:
        roles = {Role.WORKER: _workers(job, limits, params)}
    return Plan(
        stage=Stage.CREATE,
        algorithm="cold_create",
        roles=roles,
        reason=PlanReason.NO_HISTORY,
        message=_message(roles),
        evidence=Evidence(figures={"pod_milli_cpu": limits.pod_milli_cpu}),
    )


def _with_servers(
    job: JobDescription, limits: Limits, params: ColdCreateParams
) -> dict[Role, RolePlan]:
    worker, server = job.role(Role.WORKER), job.role(Role.PS)
    workers, servers = worker.clamp(1), server.clamp(params.servers)
    pods = workers + servers
    cpu = limits.pod_milli_cpu
    if limits.milli_cpu is not None:
        # Fewer servers before smaller ones: a large server is what shows the real need.
        while servers > server.clamp(1) and (workers + servers) * 2 * CORE > limits.milli_cpu:
            servers -= 1
        pods = workers + servers
        cpu = min(cpu, _share(limits.milli_cpu, pods))
    memory = params.memory_bytes
    if limits.memory_bytes is not None:
        memory = min(memory, _memory_share(limits.memory_bytes, pods))
    return {
        Role.WORKER: _sized(workers, worker, cpu, memory, limits),
        Role.PS: _sized(servers, server, cpu, memory, limits),
    }


def _workers(job: JobDescription, limits: Limits, params: ColdCreateParams) -> RolePlan:
    spec = job.role(Role.WORKER)
    count = 1 if job.strategy is Strategy.LOCAL else spec.clamp(1)
    most = count if job.strategy is Strategy.LOCAL else spec.clamp(_most_workers(job))
    cpu = params.worker_milli_cpu
    if limits.milli_cpu is not None:
        cpu = max(cpu, _share(limits.milli_cpu, most))
        # The quota is kept even where it leaves a worker less than the default.
        cpu = min(cpu, _share(limits.milli_cpu, count))
    memory = params.worker_memory_bytes
    if limits.memory_bytes is not None:
        memory = min(memory, _memory_share(limits.memory_bytes, most))
    return _sized(count, spec, cpu, memory, limits)


def _most_workers(job: JobDescription) -> int:
    spec = job.role(Role.WORKER)
    return spec.maximum or job.slots_per_step or 64


def _share(total_milli_cpu: int, pods: int) -> int:
    """An equal share in whole cores where it has one, else in tenths of a core."""
    share = total_milli_cpu // max(pods, 1)
    return share // CORE * CORE if share >= CORE else share // 100 * 100


def _memory_share(total_bytes: int, pods: int) -> int:
    """An equal share, rounded down as sizes are rounded up: together they keep to the quota."""
    return total_bytes // pods // MEMORY_STEP_BYTES * MEMORY_STEP_BYTES


def _sized(
    replicas: int, spec: RoleSpec, milli_cpu: int, memory_bytes: int, limits: Limits
) -> RolePlan:
    """The template's own requests stand; the plan fills in what it leaves open."""
    return RolePlan(
        replicas=replicas,
        milli_cpu=pod_milli_cpu(spec.milli_cpu or milli_cpu, limits),
        memory_bytes=pod_memory_bytes(spec.memory_bytes or memory_bytes, limits),
    )


def _message(roles: dict[Role, RolePlan]) -> str:
    worker, server = roles[Role.WORKER], roles.get(Role.PS)
    text = f"no similar job has finished lately: start on {_pods(worker, 'worker')}"
    if server is not None:
        text += f" and {_pods(server, 'parameter server')}"
    return text + " and measure what they use"


def _pods(role: RolePlan, noun: str) -> str:
    cores = (role.milli_cpu or 0) / CORE
    plural = "" if role.replicas == 1 else "s"
    return f"{role.replicas} {noun}{plural} of {cores:g} core{'' if cores == 1 else 's'}"


ALGORITHM: Final = Algorithm(
    name="cold_create",
    version="1",
    summary="First plan of a job without history: few and, with servers, large pods.",
    stages=frozenset({Stage.CREATE}),
    triggers=frozenset({Trigger.CREATED, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=ColdCreateParams,
    plan=plan,
)
