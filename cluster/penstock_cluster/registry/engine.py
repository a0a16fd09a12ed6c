"""The engine: a Kubernetes API without HTTP.

An :class:`Engine` holds the store, knows the kinds, runs the controllers that a cluster cannot do
without, and hands out in-process clients (:meth:`Engine.api`). The HTTP server is a thin layer on
the same operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from penstock_cluster.registry import errors
from penstock_cluster.registry.api import Api
from penstock_cluster.registry.call import Call, User
from penstock_cluster.registry.controllers import Controllers
from penstock_cluster.registry.core_strategies import core_strategies, new_event_form
from penstock_cluster.registry.crds import CRDS, CrdStrategy, deletion_mark
from penstock_cluster.registry.documents import read
from penstock_cluster.registry.errors import Json
from penstock_cluster.registry.escalation import Escalation
from penstock_cluster.registry.hooks import Interceptor, LogSource, OpenWatch, RequestFacts
from penstock_cluster.registry.kinds import CORE_KINDS, Registry, core_resource
from penstock_cluster.registry.limit_ranges import LimitRanges
from penstock_cluster.registry.namespaces import namespace_mark
from penstock_cluster.registry.operations import Operations
from penstock_cluster.registry.persistence import Journal
from penstock_cluster.registry.pod_security import PodSecurity
from penstock_cluster.registry.policies import Policies
from penstock_cluster.registry.quotas import Quotas
from penstock_cluster.registry.rbac import Attributes, Authorizer, bootstrap_objects, explain
from penstock_cluster.registry.resource import Resource, Strategy
from penstock_cluster.registry.selectors import FieldReader, FieldSelector, LabelSelector
from penstock_cluster.registry.shape import CoreTypes
from penstock_cluster.registry.store import Store, Version
from penstock_cluster.registry.subresources import Subresources
from penstock_cluster.registry.tokens import Tokens
from penstock_cluster.registry.watch import Match

_SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_COMPACTION_SECONDS = 15.0
_EVENT_LIFETIME = timedelta(hours=1)
_MASTERS = ("system:masters", "system:authenticated")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is set up."""

    #: SQLite file that keeps the state over restarts; ``None``: in memory only.
    database: Path | None = None
    #: Enforce roles and bindings; off, every authenticated user may do everything.
    rbac: bool = False
    clock: Callable[[], datetime] = utc_now
    #: How long, and how many changes, of history watches can start from.
    history_seconds: float = 300.0
    history_changes: int = 50_000
    #: PEM of the certificate authority published in every namespace.
    ca_pem: str = ""
    #: The administrator's token; empty: a fresh one (or the one in the database).
    admin_token: str = ""
    #: Tokens end after this time, whatever was asked for; ``None``: as asked.
    longest_token_seconds: int | None = None
    #: Namespaces and roles that a cluster starts with.
    bootstrap: bool = True


def _reader(path: tuple[str, ...]) -> FieldReader:
    def value(document: Json) -> str:
        found = read(document, path)
        if found is None:
            return ""
        if found is True or found is False:
            return "true" if found else "false"
        return str(found)

    return value


def _paths(text: str) -> dict[str, FieldReader]:
    return {name: _reader(tuple(name.split("."))) for name in text.split()}


_COMMON_FIELDS = _paths("metadata.name metadata.namespace")
_EVENT_OBJECT = "kind namespace name uid apiVersion resourceVersion fieldPath"
_CORE_FIELDS: dict[str, dict[str, FieldReader]] = {
    "pods": _paths(
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName "
        "spec.hostNetwork status.phase status.podIP status.nominatedNodeName"
    ),
    "nodes": {**_paths("spec.unschedulable")},
    "namespaces": _paths("status.phase"),
    "secrets": _paths("type"),
    "events": {
        **_paths("reason type reportingComponent"),
        **{
            f"involvedObject.{name}": _reader(("involvedObject", name))
            for name in _EVENT_OBJECT.split()
        },
        "source": _reader(("source", "component")),
    },
    "events.events.k8s.io": {
        **_paths("reason type"),
        "reportingController": _reader(("reportingComponent",)),
        **{
            f"regarding.{name}": _reader(("involvedObject", name)) for name in _EVENT_OBJECT.split()
        },
    },
    "services": _paths("spec.clusterIP spec.type"),
    "jobs.batch": _paths("status.successful"),
}


class Engine:
    """One cluster. Use as an async context manager, or call :meth:`start` and :meth:`stop`."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.types = CoreTypes()
        self.meta_shape = self.types.shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        self.store = Store(
            self._monotonic_wall,
            history_seconds=self.options.history_seconds,
            history_changes=self.options.history_changes,
        )
        self.registry = Registry()
        self.operations = Operations(self.store)
        self._register_core()
        self._journal = Journal(self.options.database) if self.options.database else None
        secrets = self._journal.secrets() if self._journal else {}
        key = secrets.get("token-key") or Tokens.fresh_secret()
        admin = self.options.admin_token or secrets.get("admin-token") or Tokens.fresh_secret()
        if self._journal:
            self._journal.keep_secrets({"token-key": key, "admin-token": admin})
        self.tokens = Tokens(
            self.store, self.types, self.options.clock, key.encode(), admin,
            self.options.longest_token_seconds,
        )  # fmt: skip
        self.authorizer = Authorizer(self.store, enforced=self.options.rbac)
        self.subresources = Subresources(self)
        self.policies = Policies(self.store)
        # In the order of the real server, which decides the answer where several would refuse.
        self.operations.admission += (
            LimitRanges(self.store),
            PodSecurity(self.store),
            self.policies,
        )
        if self.options.rbac:
            self.operations.admission.append(Escalation(self.authorizer, self.registry))
        self.operations.admission.append(Quotas(self.store))
        self.operations.deletion_hooks["namespaces"] = namespace_mark
        self.operations.deletion_hooks[CRDS] = deletion_mark
        self.controllers = Controllers(self)
        #: Serves ``pods/log``; set by whoever runs the pods.
        self.logs: LogSource | None = None
        #: Sees every HTTP request; set by fault injection.
        self.interceptor: Interceptor | None = None
        #: The watches that clients have open over HTTP.
        self.open_watches: set[OpenWatch] = set()
        #: PEM of the authority of the serving certificate, for ``kube-root-ca.crt``.
        self.ca_pem = self.options.ca_pem
        self._loaded = False
        self._housekeeping: asyncio.Task[None] | None = None

    # Time

    def now(self) -> datetime:
        return self.options.clock()

    def timestamp(self) -> str:
        return self.options.clock().isoformat()[:19] + "Z"

    def _monotonic_wall(self) -> float:
        return self.options.clock().timestamp()

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Load the state, create what a cluster starts with, run the controllers."""
        self.load()
        self.controllers.start()
        if self._journal:
            self._journal.follow(self.store)
        self._housekeeping = asyncio.create_task(self._keep_house(), name="engine-housekeeping")

    async def stop(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
            self._housekeeping = None
        await self.controllers.stop()
        if self._journal:
            self._journal.close()

    def load(self) -> None:
        """Load or create the state; without controllers this is enough for pure tests."""
        if self._loaded:
            return
        self._loaded = True
        if self._journal:
            self._journal.restore(self.store)
            self.store.close_history()
        if self.options.bootstrap:
            self._bootstrap()

    def _bootstrap(self) -> None:
        call = self.system_call("kube-apiserver")
        for name in _SYSTEM_NAMESPACES:
            document = {"metadata": {"name": name}}
            self._ensure("namespaces", "", document, call)
        for plural, document in bootstrap_objects():
            self._ensure(f"{plural}.rbac.authorization.k8s.io", "", document, call)

    def _ensure(self, resource_name: str, namespace: str, document: Json, call: Call) -> None:
        resource = self.registry.named(resource_name)
        key = (namespace, document["metadata"]["name"])
        if key not in self.store.table(resource.storage).items:
            self.operations.create(resource, namespace, document, call)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_COMPACTION_SECONDS)
            self.store.compact()
            self.expire_events()

    def expire_events(self) -> None:
        """Forget the events of more than an hour ago, as the real server does."""
        table = self.store.table("events")
        oldest = (self.now() - _EVENT_LIFETIME).isoformat()[:19] + "Z"
        for version in list(table.items.values()):
            event = version.object
            seen = max(
                str(event["metadata"].get("creationTimestamp") or ""),
                str(event.get("lastTimestamp") or ""),
                str((event.get("series") or {}).get("lastObservedTime") or ""),
            )
            if seen < oldest:
                self.store.remove(table, version.key)

    def publish_authority(self, ca_pem: str) -> None:
        """Put another certificate authority into the bundle of every namespace."""
        self.ca_pem = ca_pem
        self.controllers.namespaces.refill()

    def close_watches(self, match: Callable[[RequestFacts], bool] = lambda _: True) -> int:
        """End the open watches over HTTP that match, as a restarting server does; their number."""
        chosen = [watch for watch in self.open_watches if match(watch.facts)]
        for watch in chosen:
            watch.finish()
        return len(chosen)

    # Kinds

    def _register_core(self) -> None:
        strategies = core_strategies()
        strategies[CRDS] = CrdStrategy()
        plain = Strategy()
        for row in CORE_KINDS:
            name = f"{row.plural}.{row.group}" if row.group else row.plural
            resource = core_resource(row, self.types, strategies.get(name, plain))
            if name == "events.events.k8s.io":
                resource.view = lambda version: new_event_form(version.object)
                resource.stored_elsewhere = True
            self.registry.add(resource)

    def selectable(self, resource: Resource) -> dict[str, FieldReader]:
        """The fields of a kind that may stand in a field selector."""
        readers = dict(_COMMON_FIELDS)
        readers.update(_CORE_FIELDS.get(resource.name.qualified, {}))
        for item in resource.crd_version.get("selectableFields") or ():
            path = item["jsonPath"].lstrip(".")
            readers[path] = _reader(tuple(path.split(".")))
        return readers

    def matcher(self, resource: Resource, labels: str, fields: str) -> Match | None:
        """A test for stored versions; ``None`` when everything matches."""
        by_label = LabelSelector.parse(labels) if labels else None
        by_field = FieldSelector.parse(fields, self.selectable(resource)) if fields else None
        if not by_label and not by_field:
            return None
        if not by_field:
            assert by_label is not None
            selector = by_label
            return lambda version: selector.matches(version.object["metadata"].get("labels"))
        field_selector = by_field

        def match(version: Version) -> bool:
            if not field_selector.matches(version.object):
                return False
            if by_label is None:
                return True
            return by_label.matches(version.object["metadata"].get("labels"))

        return match

    # Callers

    def api(
        self,
        user: str = "system:penstock",
        groups: tuple[str, ...] = _MASTERS,
        *,
        manager: str = "penstock",
    ) -> Api:
        """An in-process client; ``manager`` owns the fields it writes."""
        return Api(self, User(user, groups), manager)

    def system_call(self, manager: str) -> Call:
        """A request of a part of the engine itself."""
        return Call(User(f"system:{manager}", _MASTERS), manager, self.timestamp())

    def authorize(
        self,
        user: User,
        verb: str,
        resource: Resource,
        subresource: str,
        namespace: str,
        name: str,
    ) -> None:
        """Raise :class:`ApiError` 403 unless ``user`` may do this."""
        wanted = Attributes(verb, resource.group, resource.plural, subresource, namespace, name)
        if not self.authorizer.allowed(user, wanted):
            raise errors.forbidden(resource.name, name, explain(user, wanted))
