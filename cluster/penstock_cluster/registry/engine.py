"""The engine: a Kubernetes API without HTTP.

An :class:`Engine` holds the store, knows the kinds, runs the controllers that a cluster cannot do
without, and hands out in-process clients (:meth:`Engine.api`). The HTTP server is a thin layer on
the same operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from penstock_cluster.registry.admission.escalation import Escalation
from penstock_cluster.registry.admission.limit_ranges import LimitRanges
from penstock_cluster.registry.admission.pod_security import PodSecurity
from penstock_cluster.registry.admission.policies import Policies
from penstock_cluster.registry.admission.rbac import Authorizer
from penstock_cluster.registry.api import Api
from penstock_cluster.registry.bootstrap import bootstrap
from penstock_cluster.registry.controllers.crds import CRDS, CrdStrategy, deletion_mark
from penstock_cluster.registry.controllers.expiry import expire_events
from penstock_cluster.registry.controllers.manager import Controllers
from penstock_cluster.registry.controllers.namespaces import namespace_mark
from penstock_cluster.registry.controllers.quotas import Quotas
from penstock_cluster.registry.hooks import Interceptor, LogSource, OpenWatch, RequestFacts
from penstock_cluster.registry.model.call import Call, User
from penstock_cluster.registry.objects.kinds import CORE_KINDS, core_resource
from penstock_cluster.registry.objects.persistence import Journal
from penstock_cluster.registry.objects.resource import Strategy
from penstock_cluster.registry.operations.storage import MASTERS, Storage, utc_now
from penstock_cluster.registry.strategies.core_strategies import core_strategies, new_event_form
from penstock_cluster.registry.subresources import Subresources
from penstock_cluster.registry.tokens import Tokens

_COMPACTION_SECONDS = 15.0


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


class Engine:
    """One cluster. Use as an async context manager, or call :meth:`start` and :meth:`stop`."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.storage = storage = Storage(
            self.options.clock,
            history_seconds=self.options.history_seconds,
            history_changes=self.options.history_changes,
        )
        self.types, self.store = storage.types, storage.store
        self.registry, self.operations = storage.registry, storage.operations
        self._register_core()
        self._journal = Journal(self.options.database) if self.options.database else None
        key = self.secret("token-key") or Tokens.fresh_secret()
        admin = self.options.admin_token or self.secret("admin-token") or Tokens.fresh_secret()
        self.keep_secret("token-key", key)
        self.keep_secret("admin-token", admin)
        self.tokens = Tokens(
            self.store,
            self.types,
            self.options.clock,
            key.encode(),
            admin,
            self.options.longest_token_seconds,
        )
        self.authorizer = Authorizer(self.store, enforced=self.options.rbac)
        self.subresources = Subresources(storage, self.tokens)
        self.policies = Policies(self.store, self.authorizer)
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
        self.controllers = Controllers(storage, self.options.ca_pem)
        #: Serves ``pods/log``; set by whoever runs the pods.
        self.logs: LogSource | None = None
        #: Sees every HTTP request; set by fault injection.
        self.interceptor: Interceptor | None = None
        #: The watches that clients have open over HTTP.
        self.open_watches: set[OpenWatch] = set()
        self._loaded = False
        self._housekeeping: asyncio.Task[None] | None = None

    # Time

    def now(self) -> datetime:
        """The cluster's time."""
        return self.storage.now()

    def timestamp(self) -> str:
        """The cluster's time as objects have it."""
        return self.storage.timestamp()

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

    @property
    def unsaved(self) -> str:
        """Why changes cannot be saved at present; empty: they can."""
        return self._journal.problem if self._journal else ""

    async def saved(self) -> str:
        """Wait until all changes so far are saved; says why they could not be, or nothing."""
        return await self._journal.saved() if self._journal else ""

    def load(self) -> None:
        """Load or create the state; without controllers this is enough for pure tests."""
        if self._loaded:
            return
        self._loaded = True
        if self._journal:
            self._journal.restore(self.store)
            self.store.close_history()
        if self.options.bootstrap:
            bootstrap(self.storage)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_COMPACTION_SECONDS)
            self.store.compact()
            expire_events(self.storage)

    def secret(self, name: str) -> str | None:
        """What `keep_secret` kept in the database; None: nothing, or there is no database."""
        return self._journal.secret(name) if self._journal else None

    def keep_secret(self, name: str, text: str) -> None:
        """Keep it for the next run, where there is a database; raises OSError that names it."""
        if self._journal:
            self._journal.keep_secret(name, text)

    def publish_authority(self, ca_pem: str) -> None:
        """Put another certificate authority into the bundle of every namespace."""
        self.controllers.namespaces.publish(ca_pem)

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

    # Callers

    def api(
        self,
        user: str = "system:penstock",
        groups: tuple[str, ...] = MASTERS,
        *,
        manager: str = "penstock",
    ) -> Api:
        """An in-process client; ``manager`` owns the fields it writes."""
        return Api(self.storage, self.subresources, self.authorizer, User(user, groups), manager)

    def system_call(self, manager: str) -> Call:
        """A request of a part of the engine itself."""
        return self.storage.system_call(manager)
