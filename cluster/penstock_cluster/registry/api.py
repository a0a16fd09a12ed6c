"""The in-process client: the engine's operations for the controllers that run beside it.

Calls take and give plain dicts. What comes out is shared with the store: copy it with
:func:`~penstock_cluster.registry.model.documents.thaw` before changing it. Objects come without
``metadata.managedFields``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Self

from penstock_cluster.registry.admission.rbac import Attributes, Authorizer
from penstock_cluster.registry.model.call import Call, User
from penstock_cluster.registry.model.errors import ApiError, Json
from penstock_cluster.registry.objects.field_selectors import matcher, selected_name
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.watch import Subscription, WatchEvent, bookmark
from penstock_cluster.registry.operations.deletion import DeleteOptions, Preconditions
from penstock_cluster.registry.operations.storage import Storage
from penstock_cluster.registry.subresources import Subresources

PatchKind = Literal["merge", "strategic", "json", "apply"]
_BOOKMARK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A list at one version of the store."""

    items: list[Json]
    resource_version: str


class Api:
    """One caller's access; made by :meth:`Engine.api`."""

    def __init__(
        self,
        storage: Storage,
        subresources: Subresources,
        authorizer: Authorizer,
        user: User,
        manager: str,
    ) -> None:
        self._storage = storage
        self._operations = storage.operations
        self._subresources = subresources
        self._authorizer = authorizer
        self.user = user
        self.manager = manager

    def _resource(self, name: str) -> Resource:
        return self._storage.registry.named(name)

    def _call(
        self, verb: str, resource: Resource, namespace: str, name: str = "", subresource: str = ""
    ) -> Call:
        wanted = Attributes(verb, resource.group, resource.plural, subresource, namespace, name)
        self._authorizer.check(self.user, wanted, resource.name)
        return Call(self.user, self.manager, self._storage.timestamp(), verb=verb)

    async def get(self, resource: str, name: str, namespace: str = "") -> Json:
        found = self._resource(resource)
        self._call("get", found, namespace, name)
        return self._operations.form(found, self._operations.get(found, namespace, name))

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        found = self._resource(resource)
        self._call("list", found, namespace or "", selected_name(field_selector))
        match = matcher(found, label_selector, field_selector)
        table = self._storage.store.table(found.storage)
        items = [
            self._operations.form(found, version)
            for version in table.in_namespace(namespace or "")
            if match is None or match(version)
        ]
        return ObjectList(items, str(self._storage.store.number))

    async def create(
        self,
        resource: str,
        document: Json,
        namespace: str | None = None,
        *,
        name: str = "",
        subresource: str = "",
    ) -> Json:
        found = self._resource(resource)
        place = self._place(found, document, namespace)
        call = self._call("create", found, place, name, subresource)
        if subresource:
            return self._subresources.create(found, place, name, subresource, document, call)
        return self._operations.create(found, place, document, call).object

    async def update(self, resource: str, document: Json, *, subresource: str = "") -> Json:
        found = self._resource(resource)
        name = document["metadata"]["name"]
        place = self._place(found, document, None)
        call = self._call("update", found, place, name, subresource)
        version, _ = self._subresources.update(found, place, name, subresource, document, call)
        return version.object

    async def patch(
        self,
        resource: str,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        force: bool = False,
    ) -> Json:
        found = self._resource(resource)
        call = self._call("patch", found, namespace, name, subresource)
        version, _ = self._subresources.patch(
            found, namespace, name, subresource, kind, body, call, force=force
        )
        return version.object

    async def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        propagation: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> Json:
        """Delete; the result is the object as it was left or as it last was."""
        found = self._resource(resource)
        call = self._call("delete", found, namespace, name)
        options = DeleteOptions(
            grace_period_seconds, propagation, Preconditions(uid, resource_version)
        )
        return self._operations.delete(found, namespace, name, options, call).version.object

    async def delete_collection(
        self, resource: str, namespace: str = "", *, label_selector: str = ""
    ) -> int:
        """Delete all that match; the result is their number."""
        found = self._resource(resource)
        call = self._call("deletecollection", found, namespace)
        match = matcher(found, label_selector, "")
        table = self._storage.store.table(found.storage)
        chosen = [
            version for version in table.in_namespace(namespace) if match is None or match(version)
        ]
        return len(self._operations.delete_collection(found, chosen, DeleteOptions(), call))

    def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        bookmarks: bool = False,
    ) -> Watch:
        """Watch; use as an async context manager and iterate.

        Without ``resource_version`` the first events are one ADDED per present object; with that
        of a list, only what came after it.
        """
        found = self._resource(resource)
        self._call("watch", found, namespace or "", selected_name(field_selector))
        match = matcher(found, label_selector, field_selector)
        table = self._storage.store.table(found.storage)
        after = self._storage.store.number if resource_version is None else int(resource_version)
        subscription = Subscription(table, namespace or "", match, after)
        return Watch(
            self._storage,
            found,
            subscription,
            with_state=resource_version is None,
            bookmarks=bookmarks,
        )

    @staticmethod
    def _place(resource: Resource, document: Json, namespace: str | None) -> str:
        if not resource.namespaced:
            return ""
        if namespace is not None:
            return namespace
        return (document.get("metadata") or {}).get("namespace") or "default"


class Watch:
    """An open watch: ``async with api.watch(...) as events: async for event in events``.

    Events are delivered from the moment the watch is entered. Ends with an ERROR event (a Status
    with code 410) when the consumer fell too far behind or the version asked for is compacted.
    """

    def __init__(
        self,
        storage: Storage,
        resource: Resource,
        subscription: Subscription,
        *,
        with_state: bool,
        bookmarks: bool,
    ) -> None:
        self._storage = storage
        self._resource = resource
        self._subscription = subscription
        self._with_state = with_state
        self._bookmarks = bookmarks
        self._first: list[Json] = []
        self._failure: ApiError | None = None

    async def __aenter__(self) -> Self:
        try:
            if self._with_state:
                form = self._storage.operations.form
                versions = self._subscription.open_with_state()
                self._first = [form(self._resource, version) for version in versions]
            else:
                self._subscription.open()
        except ApiError as error:
            self._failure = error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._subscription.close()

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        for document in self._first:
            yield WatchEvent("ADDED", document)
        self._first = []
        form = self._storage.operations.form
        while self._failure is None:
            if self._subscription.finished:
                return
            try:
                wait = _BOOKMARK_SECONDS if self._bookmarks else None
                events = await self._subscription.take(wait)
            except ApiError as error:
                self._failure = error
                break
            for event in events:
                yield WatchEvent(event.type, form(self._resource, event.version))
            if not events and self._bookmarks:
                number = self._storage.store.number
                resource = self._resource
                yield WatchEvent("BOOKMARK", bookmark(resource.api_version, resource.kind, number))
        yield WatchEvent("ERROR", self._failure.status)
