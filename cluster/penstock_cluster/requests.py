"""What a pod asks of its node, and what a node has to give, as integers.

CPU is milli-cores, memory and ephemeral storage are bytes, extended resources (``nvidia.com/gpu``)
and ``pods`` are counts. The binder's filter, the kubelet's admission and the quality-of-service
class all read a pod's requests here, so that they can never disagree about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from penstock_cluster.quantity import format_bytes, format_milli_cpu, parse_bytes, parse_milli_cpu

Json = Mapping[str, Any]
Amounts = dict[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"


@lru_cache(maxsize=4096)
def parse_amount(resource: str, quantity: str | int) -> int:
    """The integer amount of one resource; raises ValueError for text that is no quantity."""
    return parse_milli_cpu(quantity) if resource == CPU else parse_bytes(quantity)


def format_amount(resource: str, amount: int) -> str:
    """The amount as the quantity that a status shows."""
    if resource == CPU:
        return format_milli_cpu(amount)
    return format_bytes(amount) if resource == MEMORY else str(amount)


def parse_amounts(quantities: Json | None) -> Amounts:
    """``{"cpu": "500m"}`` as ``{"cpu": 500}``."""
    return {name: parse_amount(name, text) for name, text in (quantities or {}).items()}


def is_sidecar(init_container: Json) -> bool:
    """Whether an init container keeps running beside the containers (restartPolicy Always)."""
    return init_container.get("restartPolicy") == "Always"


def container_requests(container: Json) -> Amounts:
    """One container's requests; a limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return {**parse_amounts(resources.get("limits")), **parse_amounts(resources.get("requests"))}


def pod_requests(pod: Json, *, count_pod: bool = True) -> Amounts:
    """The effective request of a pod, as kube-scheduler counts it.

    Containers and sidecars add up; a one-shot init container runs beside the sidecars declared
    before it, so the pod needs the largest of those moments; overhead comes on top. A container
    that is being shrunk in place still counts with what it was allocated. With ``count_pod`` the
    pod also takes one of the node's ``pods``.
    """
    allocated = {
        status["name"]: parse_amounts(status.get("allocatedResources"))
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if status.get("allocatedResources")
    }

    def wanted_by(container: Json) -> Amounts:
        wanted = container_requests(container)
        _raise_to(wanted, allocated.get(container["name"], {}))
        return wanted

    total = _of_all_containers(pod["spec"], wanted_by)
    if count_pod:
        total[PODS] = 1
    return {name: amount for name, amount in total.items() if amount}


def pod_limits(pod: Json) -> Amounts:
    """The effective limits of a pod: what its containers may use at most at one time.

    Containers without a limit add nothing.
    """

    def allowed(container: Json) -> Amounts:
        return parse_amounts((container.get("resources") or {}).get("limits"))

    return _of_all_containers(pod["spec"], allowed)


def _of_all_containers(spec: Json, of_one: Callable[[Json], Amounts]) -> Amounts:
    """The most that the containers of a pod have at one time, and the pod's overhead."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, of_one(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = of_one(container)
        if is_sidecar(container):
            _add(sidecars, wanted)
            _add(total, wanted)
            _raise_to(peak, sidecars)
        else:
            _add(wanted, sidecars)
            _raise_to(peak, wanted)
    _raise_to(total, peak)
    _add(total, parse_amounts(spec.get("overhead")))
    return total


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount


def _every_container(pod: Json) -> Iterator[Json]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"].get("containers") or ()


def quality_of_service(pod: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory of all containers."""
    requested: Amounts = {}
    limited: Amounts = {}
    every_container_is_limited = True
    for container in _every_container(pod):
        resources = container.get("resources") or {}
        limits = _compute(parse_amounts(resources.get("limits")))
        _add(requested, _compute(container_requests(container)))
        _add(limited, limits)
        every_container_is_limited &= limits.keys() == {CPU, MEMORY}
    if not requested and not limited:
        return "BestEffort"
    return "Guaranteed" if every_container_is_limited and requested == limited else "Burstable"


def _compute(amounts: Amounts) -> Amounts:
    return {name: amounts[name] for name in (CPU, MEMORY) if amounts.get(name)}


def is_finished(pod: Json) -> bool:
    """Whether the pod has ended and holds no resources any more."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
