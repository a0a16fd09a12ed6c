"""Resource quotas as far as pods go: what a namespace's pods may ask for together.

A pod that would go beyond a quota is refused, and so is one that leaves out a request or limit that
a quota counts. What is used is worked out anew from the pods that are there, so it cannot drift;
pods that have ended do not count. Quotas on other things than pods count nothing and refuse
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.store import Change, Store
from penstock_cluster.registry.objects.workqueue import WorkQueue
from penstock_cluster.registry.operations.storage import Storage
from penstock_cluster.requests import (
    Amounts,
    format_amount,
    is_finished,
    parse_amount,
    pod_limits,
    pod_requests,
    quality_of_service,
)

QUOTAS = "resourcequotas"
_COUNTS = ("pods", "count/pods")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_SAID = ("cpu", "memory")


def _measured(name: str) -> tuple[str, str]:
    """``limits.cpu`` as (limits, cpu); ``cpu`` is short for ``requests.cpu``."""
    kind, dot, resource = name.partition(".")
    if dot and kind in ("requests", "limits"):
        return kind, resource
    return ("requests", name) if name in _COMPUTE else ("", name)


def usage(pod: Json, names: Iterable[str]) -> Amounts:
    """What a pod takes of the resources of a quota; those that no pod takes are left out."""
    if is_finished(pod):
        return {"count/pods": 1} if "count/pods" in names else {}
    taken = {"requests": pod_requests(pod, count_pod=False), "limits": pod_limits(pod)}
    found: Amounts = {}
    for name in names:
        kind, resource = _measured(name)
        if name in _COUNTS:
            found[name] = 1
        elif kind and not (kind == "requests" and resource == "storage"):
            found[name] = taken[kind].get(resource, 0)
    return found


def used(pods: Iterable[Json], names: Iterable[str]) -> Amounts:
    """What pods take together; 0 of what none of them takes."""
    tracked = usage({"spec": {}}, names)
    total = dict.fromkeys(tracked, 0)
    for pod in pods:
        for name, amount in usage(pod, tracked).items():
            total[name] += amount
    return total


def unsaid(pod: Json, names: Iterable[str]) -> str:
    """The requests and limits that a quota counts and a container does not say; empty: none."""
    missing: dict[str, set[str]] = {}
    spec = pod["spec"]
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        for name in names:
            kind, resource = _measured(name)
            if resource in _MUST_BE_SAID and resource not in (resources.get(kind) or {}):
                missing.setdefault(name, set()).add(container["name"])
    return "; ".join(
        f"{name} for: {','.join(sorted(containers))}"
        for name, containers in sorted(missing.items())
    )


def covers(spec: Json, pod: Json) -> bool:
    """Whether a quota is about a pod, by its scopes."""
    wanted = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(one, pod) for one in wanted)


def _in_scope(wanted: Json, pod: Json) -> bool:
    scope, operator = wanted["scopeName"], wanted.get("operator")
    ends = pod["spec"].get("activeDeadlineSeconds") is not None
    if scope in ("Terminating", "NotTerminating"):
        return ends is (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return (quality_of_service(pod) == "BestEffort") is (scope == "BestEffort")
    if scope == "PriorityClass":
        name, values = pod["spec"].get("priorityClassName"), wanted.get("values") or ()
        if operator in ("Exists", "DoesNotExist"):
            return bool(name) is (operator == "Exists")
        return (name in values) is (operator == "In")
    return False


def _shown(amounts: Amounts) -> str:
    return ",".join(f"{name}={_quantity(name, amounts[name])}" for name in sorted(amounts))


def _quantity(name: str, amount: int) -> str:
    return format_amount(_measured(name)[1], amount)


def _hard(quota: Json) -> Amounts:
    listed = (quota.get("spec") or {}).get("hard") or {}
    return {name: parse_amount(_measured(name)[1], text) for name, text in listed.items()}


class Quotas:
    """Refuses pods beyond a quota: :class:`ApiError` 403."""

    def __init__(self, store: Store) -> None:
        self._quotas = store.table(QUOTAS)
        self._pods = store.table("pods")

    def __call__(self, request: AdmissionRequest) -> None:
        pod = request.sized_pod
        if pod is None or not self._quotas.items:
            return
        quotas = [
            version.object
            for version in self._quotas.in_namespace(request.namespace)
            if covers(version.object.get("spec") or {}, pod)
        ]
        for quota in quotas:
            if missing := unsaid(pod, _hard(quota)):
                why = f"failed quota: {quota['metadata']['name']}: must specify {missing}"
                raise errors.forbidden(request.resource.name, request.name, why)
        for quota in quotas:
            if too_much := self._exceeded(quota, pod, request.old):
                raise errors.forbidden(request.resource.name, request.name, too_much)

    def _exceeded(self, quota: Json, new: Json, old: Json | None) -> str:
        """Why the pod does not fit; empty: it does."""
        hard = _hard(quota)
        before = usage(old, hard) if old is not None else {}
        requested = {
            name: amount - before.get(name, 0)
            for name, amount in usage(new, hard).items()
            if amount > before.get(name, 0)
        }
        if not requested:
            return ""
        spec = quota.get("spec") or {}
        namespace = quota["metadata"]["namespace"]
        present = [version.object for version in self._pods.in_namespace(namespace)]
        total = used((pod for pod in present if covers(spec, pod)), hard)
        over = {name for name, amount in requested.items() if total[name] + amount > hard[name]}
        if not over:
            return ""
        parts = (requested, total, hard)
        asked, taken, limit = (_shown({name: amounts[name] for name in over}) for amounts in parts)
        return (
            f"exceeded quota: {quota['metadata']['name']}, requested: {asked}, used: {taken}, "
            f"limited: {limit}"
        )


class QuotaController:
    """Keeps the status of quotas true to the pods that they are about."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._queue: WorkQueue[str] = WorkQueue("resource quota controller", self._look_at)

    def start(self) -> None:
        self._queue.start()
        store = self._storage.store
        for version in store.table(QUOTAS).items.values():
            self._queue.add(version.key[0])
        store.table(QUOTAS).listeners.append(self._on_change)
        store.table("pods").listeners.append(self._on_change)

    def stop(self) -> None:
        self._queue.stop()

    def _on_change(self, change: Change) -> None:
        if self._storage.store.table(QUOTAS).items:
            self._queue.add(change.after.key[0])

    def _look_at(self, namespace: str) -> None:
        store = self._storage.store
        pods = [version.object for version in store.table("pods").in_namespace(namespace)]
        for version in list(store.table(QUOTAS).in_namespace(namespace)):
            quota = version.object
            spec = quota.get("spec") or {}
            hard = spec.get("hard") or {}
            total = used((pod for pod in pods if covers(spec, pod)), hard)
            taken = {name: _quantity(name, total[name]) for name in sorted(total)}
            status = {"hard": hard, "used": taken} if hard else {}
            if status != quota.get("status"):
                document = {**quota, "metadata": dict(quota["metadata"]), "status": status}
                store.put(store.table(QUOTAS), version.key, document, version.managed)
