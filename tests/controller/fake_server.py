"""A small API server in memory that behaves, where a controller can tell, as the real one does.

Resource versions grow with every change and with none that changes nothing; names are taken, uids
are new; deletes honour uid preconditions, status writes resource versions; a watcher gets events
later, or never. It is far faster than a real server, which is what lets a state machine run a
hundred thousand lives of a job; that it is faithful is checked by the tests against real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import orjson

from penstock.kube.api import Page
from penstock.kube.errors import ApiRefusedError, ApiUnavailableError

Json = dict[str, Any]
T = TypeVar("T")

_JSON_ONLY = (
    orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_NON_STR_KEYS
)

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def copied(value: T) -> T:
    """A deep copy of JSON data. Lives of a job consist of copying, so this is what they cost."""
    result: T = orjson.loads(orjson.dumps(value, option=_JSON_ONLY))
    return result


class CrashError(BaseException):
    """The controller's process ends here; nothing of it may go on."""


@dataclass
class Event:
    """One change as a watch would show it."""

    resource: str
    kind: str
    object: Json


class FakeServer:
    """Objects by resource and name, in one namespace."""

    def __init__(self) -> None:
        self.now = START
        self.version = 100
        self.objects: dict[str, dict[str, Json]] = {
            kind: {}
            for kind in (
                "elasticjobs",
                "scales",
                "pods",
                "secrets",
                "services",
                "serviceaccounts",
                "roles",
                "rolebindings",
                "events",
                "leases",
                "podgroups.scheduling.x-k8s.io",
                "podgroups.scheduling.volcano.sh",
            )
        }
        self.unknown_kinds: set[str] = set()
        self.pending: list[Event] = []
        self.calls: list[tuple[str, str, str]] = []
        self.created_pods: list[tuple[str, int, int]] = []
        self.logs: dict[str, str] = {}
        self.refuses_pod: Callable[[Mapping[str, Any]], None] | None = None
        self._uids = 0

    # The clock and the watch

    def clock(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _changed(self, resource: str, kind: str, found: Json) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        if resource in {"elasticjobs", "scales", "pods"}:
            self.pending.append(Event(resource, kind, copied(found)))

    def stamp(self, moment: datetime | None = None) -> str:
        return (moment or self.now).strftime("%Y-%m-%dT%H:%M:%SZ")

    # What others do

    def put(self, resource: str, found: Json) -> Json:
        """Create an object as somebody else would."""
        metadata = found["metadata"]
        name = metadata["name"]
        if name in self.objects[resource]:
            raise ApiRefusedError(f"{name} exists", code=409, reason="AlreadyExists")
        self._uids += 1
        metadata.setdefault("namespace", "ns")
        metadata["uid"] = f"uid-{self._uids}"
        metadata["creationTimestamp"] = self.stamp()
        metadata.setdefault("generation", 1)
        found.pop("status", None)
        self.objects[resource][name] = found
        if resource == "pods":
            found["status"] = {"phase": "Pending"}
            labels = metadata["labels"]
            self.created_pods.append(
                (
                    labels["penstock.dev/role"],
                    int(labels["penstock.dev/rank"]),
                    int(labels["penstock.dev/incarnation"]),
                )
            )
        self._changed(resource, "ADDED", found)
        return found

    def edit(self, resource: str, name: str, change: Callable[[Json], None]) -> Json | None:
        """Change an object as somebody else would; spec changes raise its generation."""
        found = self.objects[resource].get(name)
        if found is None:
            return None
        before = copied(found)
        change(found)
        if found == before:
            return found
        if found.get("spec") != before.get("spec") and resource != "pods":
            found["metadata"]["generation"] += 1
        self._changed(resource, "MODIFIED", found)
        return found

    def remove(self, resource: str, name: str) -> None:
        """An object vanishes at once, with what it alone owns where it is a job."""
        found = self.objects[resource].pop(name, None)
        if found is None:
            return
        self._changed(resource, "DELETED", found)
        uid = found["metadata"]["uid"]
        for kind, named in self.objects.items():
            for other in list(named):
                owners = named[other]["metadata"].get("ownerReferences") or ()
                left = [owner for owner in owners if owner["uid"] != uid]
                if len(left) == len(owners):
                    continue
                if not self._alive(left):
                    self.remove(kind, other)
                    continue
                named[other]["metadata"]["ownerReferences"] = left
                self._changed(kind, "MODIFIED", named[other])

    def _alive(self, owners: list[Json]) -> bool:
        """Whether one of them is there."""
        uids = {one["metadata"]["uid"] for named in self.objects.values() for one in named.values()}
        return any(owner["uid"] in uids for owner in owners)

    # The calls of the controller

    def get(self, resource: str, name: str) -> Json:
        found = self.objects[resource].get(name)
        if found is None:
            raise ApiRefusedError(f"{resource} {name!r} not found", code=404, reason="NotFound")
        return copied(found)

    def patch(self, resource: str, name: str, body: Json, subresource: str) -> Json:
        found = self.objects[resource].get(name)
        if found is None:
            raise ApiRefusedError(f"{resource} {name!r} not found", code=404, reason="NotFound")
        wanted = body.get("metadata") or {}
        for precondition in ("resourceVersion", "uid"):
            if (
                wanted.get(precondition, found["metadata"][precondition])
                != found["metadata"][precondition]
            ):
                text = f"{name}: {precondition} does not match"
                raise ApiRefusedError(text, code=409, reason="Conflict")
        before = copied(found)
        if subresource == "status":
            found["status"] = merged(found.get("status") or {}, body["status"])
            if resource == "scales":
                _keep_admission(before, found)
        elif resource == "services":  # a strategic merge, by uid
            owners = found["metadata"].get("ownerReferences") or []
            added = {owner["uid"]: owner for owner in body["metadata"]["ownerReferences"]}
            kept = [owner for owner in owners if owner["uid"] not in added]
            found["metadata"]["ownerReferences"] = [*kept, *added.values()]
        elif resource == "scales":
            found["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"]
        elif subresource == "resize":
            resize(found, body)
        else:
            gates = found["spec"].get("schedulingGates") or []
            dropped = {gate["name"] for gate in body["spec"]["schedulingGates"]}
            found["spec"]["schedulingGates"] = [g for g in gates if g["name"] not in dropped]
        if found != before:
            self._changed(resource, "MODIFIED", found)
        return copied(found)

    def check(self, resource: str, body: Mapping[str, Any]) -> None:
        """A dry run: refused as the object itself would be."""
        if resource in self.unknown_kinds:
            text = "the server could not find the requested resource"
            raise ApiRefusedError(text, code=404, reason="NotFound")
        if self.refuses_pod is not None and resource == "pods":
            self.refuses_pod(body)

    def delete(self, resource: str, name: str, uid: str) -> Json:
        found = self.objects[resource].get(name)
        if found is None:
            raise ApiRefusedError(f"{resource} {name!r} not found", code=404, reason="NotFound")
        if found["metadata"]["uid"] != uid:
            raise ApiRefusedError("uid does not match", code=409, reason="Conflict")
        if resource == "pods" and found["spec"].get("nodeName") and not has_ended(found):
            if "deletionTimestamp" not in found["metadata"]:
                found["metadata"]["deletionTimestamp"] = self.stamp()
                self._changed(resource, "MODIFIED", found)
            return copied(found)
        gone = copied(found)
        self.remove(resource, name)
        return gone


def has_ended(pod: Json) -> bool:
    return pod["status"]["phase"] in {"Succeeded", "Failed"}


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """RFC 7386."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def resize(pod: Json, body: Json) -> None:
    wanted = body["spec"]["containers"][0]
    for container in pod["spec"]["containers"]:
        if container["name"] == wanted["name"]:
            resources = container.setdefault("resources", {})
            if not resources.get("requests"):
                text = "Pod QOS Class may not change as a result of resizing"
                raise ApiRefusedError(text, code=422, reason="Invalid")
            for kind in ("requests", "limits"):
                resources[kind] = {**(resources.get(kind) or {}), **wanted["resources"][kind]}


def _keep_admission(before: Json, after: Json) -> None:
    """The CRD's rule: a Scale is admitted or refused once."""
    old = {c["type"]: c for c in (before.get("status") or {}).get("conditions") or ()}
    new = {c["type"]: c for c in after["status"].get("conditions") or ()}
    was = old.get("Admitted")
    if (
        was
        and was["status"] != "Unknown"
        and new.get("Admitted", {}).get("status") != was["status"]
    ):
        raise ApiRefusedError("condition Admitted is final", code=422, reason="Invalid")


class FakeApi:
    """`penstock.kube.api.Api` on a `FakeServer`, with failures on demand.

    ``fault`` is asked before every call with its number; it answers None, or one of: ``refuse``
    (429, nothing done), ``lose`` (nothing done, but the caller cannot know), ``blind`` (done, but
    the caller cannot know), ``crash-before``, ``crash-after``.
    """

    def __init__(self, server: FakeServer, fault: Callable[[int], str | None]) -> None:
        self._server = server
        self._fault = fault
        self._number = 0

    def _call(self, verb: str, resource: str, name: str, do: Callable[[], Any]) -> Any:
        self._number += 1
        self._server.calls.append((verb, resource, name))
        fault = self._fault(self._number)
        if fault == "refuse":
            raise ApiRefusedError("too many requests", code=429, reason="TooManyRequests")
        if fault == "lose":
            raise ApiUnavailableError("no answer", code=0, reason="Disconnected")
        if fault == "crash-before":
            raise CrashError
        result = do()
        if fault == "blind":
            raise ApiUnavailableError("no answer", code=0, reason="Disconnected")
        if fault == "crash-after":
            raise CrashError
        return result

    async def get(
        self, resource: str, namespace: str, name: str, *, metadata_only: bool = False
    ) -> Json:
        result: Json = self._call("get", resource, name, lambda: self._server.get(resource, name))
        return result

    async def list(
        self,
        resource: str,
        namespace: str | None,
        selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> Page:
        found = copied(list(self._server.objects[resource].values()))
        return Page(found, str(self._server.version))

    async def create(self, resource: str, namespace: str, body: Mapping[str, Any]) -> Json:
        name = body["metadata"]["name"]

        def do() -> Json:
            self._server.check(resource, body)
            return copied(self._server.put(resource, copied(dict(body))))

        result: Json = self._call("create", resource, name, do)
        return result

    async def submit(self, resource: str, namespace: str, body: Mapping[str, Any]) -> None:
        await self.create(resource, namespace, body)

    async def check(self, resource: str, namespace: str, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        self._call("check", resource, name, lambda: self._server.check(resource, body))

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> Json:
        def do() -> Json:
            return self._server.patch(resource, name, copied(dict(body)), subresource)

        result: Json = self._call("patch", f"{resource}/{subresource}", name, do)
        return result

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> Json:
        result: Json = self._call(
            "delete", resource, name, lambda: self._server.delete(resource, name, uid)
        )
        return result

    async def log(self, namespace: str, pod: str, container: str, lines: int) -> str:
        def do() -> str:
            if pod not in self._server.objects["pods"]:
                raise ApiRefusedError("not found", code=404, reason="NotFound")
            return self._server.logs.get(pod, "")

        text: str = self._call("get", "pods/log", pod, do)
        return text
