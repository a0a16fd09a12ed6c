"""An ElasticJob as the planner sees it: who may have data workers, how many, and of what size.

A job is left alone where a person, or its spec, has decided already: input that stays with the
training workers (``offload: Never``), a fixed number of data workers, a job that is suspended, has
ended, or is run by another controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.enums import Offload, Role
from penstock.base.fields import MAX_REPLICAS
from penstock.crds.conditions import JobCondition
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import read_request
from penstock.scheduler.request import Request

Json = Mapping[str, Any]

MOST_DATA_WORKERS: Final = 64
"""Data workers of a job that does not say how many it may have."""

DEFAULT_CORES: Final = 8
"""Cores of a training worker, or the most of a data worker, where the template does not say."""

DEFAULT_MEMORY_BYTES: Final = 2 * 1024**3
"""Memory of a data worker that is made from the training worker's template, as the Brain's."""


@dataclass(frozen=True, slots=True)
class AcceleratedWorkers:
    """What a job may have of accelerated data workers.

    Attributes:
        request: what one asks for.
        states_size: whether a Scale has to say its CPU and memory, as the training worker's own
            would be too much.
        most: that it may have.
        least: that it is to have.
        desired: that somebody has asked for.
    """

    request: Request
    states_size: bool
    most: int
    least: int
    desired: int


@dataclass(frozen=True, slots=True)
class JobView:
    """One job; `hands_off` says why its data workers are not the scheduler's business, if so."""

    uid: str
    namespace: str
    name: str
    hands_off: str
    offload: Offload
    most_data_workers: int
    data_worker_cores: int
    training_cores: int
    accelerators: int
    shape: Request
    """What a data worker asks for, but for its CPU."""
    states_memory: bool
    """Whether a Scale has to say the memory: the training worker's own would be too much."""
    desired_data_workers: int = 0
    least_data_workers: int = 0
    share_group: str = ""
    """The group that it shares batches with; empty: none."""
    accelerated: AcceleratedWorkers | None = None
    """None: there is nothing of which one could be made."""
    together: int = 0
    """Workers and parameter servers that start together or not at all; 0: it is no gang."""
    strategy: str = ""
    signature: tuple[tuple[str, str], ...] = ()
    """As the spec has it: what finished jobs like this one have in common with it."""

    def request(self, cores: int) -> Request:
        """What a data worker of that many cores asks for."""
        return replace(self.shape, milli_cpu=1000 * cores)


def read_job(document: Json) -> JobView:
    """A job from its JSON form; a template that cannot be read leaves the job alone."""
    metadata, spec = document["metadata"], document["spec"]
    status = document.get("status") or {}
    roles = spec.get("replicaSpecs") or {}
    worker, own = roles.get(Role.WORKER) or {}, roles.get(Role.DATA_WORKER) or {}
    said = spec.get("input") or {}
    offload = Offload(said.get("offload") or Offload.AUTO)
    hands_off = _hands_off(spec, status, own, offload)
    training = data = Request()
    accelerated: AcceleratedWorkers | None = None
    try:
        training = read_request(_pod_spec(worker), where=f"{metadata['name']}: worker")
        data = read_request(_pod_spec(own or worker), where=f"{metadata['name']}: dataWorker")
        accelerated = _accelerated(metadata["name"], roles, status, training)
    except InvalidRequestError as error:
        hands_off = hands_off or str(error)
    greatest = own.get("maxReplicas")
    counts = ((status.get("replicas") or {}).get(Role.DATA_WORKER)) or {}
    return JobView(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        hands_off=hands_off,
        offload=offload,
        most_data_workers=min(MOST_DATA_WORKERS if greatest is None else greatest, MAX_REPLICAS),
        data_worker_cores=_cores(data.milli_cpu) if own else DEFAULT_CORES,
        training_cores=_cores(training.milli_cpu),
        accelerators=training.accelerators,
        shape=Request(
            memory_bytes=data.memory_bytes if own else DEFAULT_MEMORY_BYTES,
            constraints=data.constraints,
        ),
        states_memory=not own,
        desired_data_workers=int(counts.get("desired") or 0),
        least_data_workers=int(own.get("minReplicas") or 0),
        share_group=(said.get("share") or {}).get("group") or "",
        accelerated=accelerated,
        together=_together(roles) if spec.get("gang") is not None else 0,
        strategy=str(spec.get("strategy") or ""),
        signature=tuple(
            (str(key), str(value)) for key, value in sorted((spec.get("signature") or {}).items())
        ),
    )


def _together(roles: Json) -> int:
    """The least of workers and parameter servers, as the controller counts a gang's members."""
    of_gang = [roles.get(role) or {} for role in (Role.WORKER, Role.PS)]
    return sum(int(own.get("replicas") or own.get("minReplicas", 1) or 0) for own in of_gang if own)


def _accelerated(
    name: str, roles: Json, status: Json, training: Request
) -> AcceleratedWorkers | None:
    """As the controller makes them: from the spec, or else with one of the worker's accelerators.

    Raises:
        InvalidRequestError: the template cannot be read.
    """
    role = Role.ACCELERATED_DATA_WORKER
    own = roles.get(role) or {}
    if own:
        request = read_request(_pod_spec(own), where=f"{name}: {role.value}")
    elif training.accelerators:
        cores = max(1, _cores(training.milli_cpu) // training.accelerators)
        request = replace(
            training, milli_cpu=1000 * cores, memory_bytes=DEFAULT_MEMORY_BYTES, accelerators=1
        )
    else:
        return None
    fixed, greatest = own.get("replicas") or 0, own.get("maxReplicas")
    counts = ((status.get("replicas") or {}).get(role)) or {}
    return AcceleratedWorkers(
        request=request,
        states_size=not own,
        most=fixed or min(MOST_DATA_WORKERS if greatest is None else greatest, MAX_REPLICAS),
        least=fixed or int(own.get("minReplicas") or 0),
        desired=int(counts.get("desired") or 0),
    )


def _hands_off(spec: Json, status: Json, own: Json, offload: Offload) -> str:
    if spec.get("managedBy"):
        return "another controller manages it"
    if spec.get("suspend"):
        return "it is suspended"
    if offload is Offload.NEVER:
        return "its spec says input.offload: Never"
    if own.get("replicas"):
        return "its spec fixes the number of data workers"
    ended = {JobCondition.SUCCEEDED, JobCondition.FAILED}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ended and condition.get("status") == "True":
            return "it has ended"
    return ""


def _pod_spec(role: Json) -> Json:
    found: Json = (role.get("template") or {}).get("spec") or {}
    return found


def _cores(milli_cpu: int) -> int:
    """Whole cores of a container; what is less than one counts as one."""
    return max(1, milli_cpu // 1000) if milli_cpu else DEFAULT_CORES
