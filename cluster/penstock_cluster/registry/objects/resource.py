"""A kind as it is served, and what is special about it.

That is decoding, defaults, checks, and which path may write which field. :class:`Strategy` is that
of a plain built-in kind; kinds with rules of their own derive from it (:mod:`core_strategies`,
:mod:`pods`), custom kinds have :class:`penstock_cluster.registry.strategies.custom`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock_cluster.registry.model import names, objectmeta, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import ApiError, Faults, Json, ResourceName, bad_request
from penstock_cluster.registry.model.shape import Shape
from penstock_cluster.registry.model.structural_sharing import identical
from penstock_cluster.registry.objects.store import Store, Version

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """One path below an object, e.g. ``status`` or ``binding``."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(slots=True, eq=False)
class Resource:
    """One kind in one version, as it is served."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    shape: Shape
    strategy: Strategy
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: dict[str, Subresource] = field(default_factory=dict)
    #: Name of the table; kinds that are two views of one store share it.
    storage: str = ""
    custom: bool = False
    #: Name of the type in the OpenAPI document.
    definition: str = ""
    #: Gives a stored object this version's form (``None``: stored as it is served).
    view: Callable[[Version], Json] | None = None
    #: Whether objects of this kind are stored at all (reviews are not).
    stored: bool = True
    #: Changes when a version's form does: part of cache keys.
    epoch: int = 0
    #: The store keeps another form than this one (its strategy converts when decoding).
    stored_elsewhere: bool = False
    #: Objects of an older schema may be there: defaults show when they are read.
    outlived: bool = False
    #: Is being removed: no creates.
    terminating: bool = False
    storage_version: str = ""
    #: The version's entry in its CRD (columns, scale paths); empty for built-in kinds.
    crd_version: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.list_kind = self.list_kind or f"{self.kind}List"
        self.storage = self.storage or self.name.qualified

    @property
    def name(self) -> ResourceName:
        return ResourceName(self.group, self.plural, self.kind)

    @property
    def fault_name(self) -> ResourceName:
        """What faults of content name: events of both groups are checked as those of ``v1``."""
        return ResourceName("", self.plural, self.kind) if self.stored_elsewhere else self.name

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_version_hash(self) -> str:
        version = self.storage_version or self.version
        text = f"{self.group}/{version}/{self.kind}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()

    @property
    def cache_view(self) -> str:
        return f"{self.api_version}/{self.kind}/{self.epoch}"


class Strategy:
    """A built-in kind without rules of its own."""

    #: PUT creates an object that does not exist.
    creates_on_update = False
    #: PUT must carry a resourceVersion.
    requires_version = False
    #: ``metadata.generation`` counts changes of the desired state.
    counts_generation = False
    #: ``status`` given on create is kept.
    keeps_status_on_create = False
    #: ``status`` is written by the path ``/status`` only.
    has_status = False
    #: The status path takes labels and annotations too.
    status_takes_metadata = True

    def name_faults(self, name: str) -> list[str]:
        return names.subdomain_faults(name)

    def decode(self, resource: Resource, document: Json) -> tuple[Json, list[str]]:
        """The stored form of a document and the unknown fields it lost; :class:`DecodeError`."""
        api_version, kind = document.get("apiVersion"), document.get("kind")
        if type(kind) is str and kind != resource.kind and kind:
            raise bad_request(
                f'{kind} in version "{_version(api_version)}" cannot be handled as a '
                f"{resource.kind}: converting ({_version(api_version)}.{kind}) to "
                f"(core.{resource.kind}): unknown conversion"
            )
        if api_version and api_version != resource.api_version:
            raise wrong_version(api_version, resource)
        decoded, unknown = typed.decode(resource.shape, document)
        body: Json = {"kind": resource.kind, "apiVersion": resource.api_version}
        body["metadata"] = decoded.pop("metadata", {})
        decoded.pop("kind", None)
        decoded.pop("apiVersion", None)
        body.update(decoded)
        return body, unknown

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        """Set defaults and drop what a create may not set, in place."""
        if self.has_status and not self.keeps_status_on_create:
            document.pop("status", None)
        self.default(document)

    def default(self, document: Json) -> None:
        """Fill in defaults, in place."""

    def admit_create(self, document: Json, namespace: str, call: Call, store: Store) -> None:
        """Mutating admission of a create, in place; raises :class:`ApiError`."""

    def validate_create(self, document: Json, faults: Faults, call: Call, store: Store) -> None:
        objectmeta.check(document["metadata"], self.name_faults, faults, custom=False)
        self.check(document, faults)

    def check(self, document: Json, faults: Faults) -> None:
        """Check the content of a new or changed object."""

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        """Restore what this path may not write, in place."""
        if not self.has_status:
            self.default(new)
            return
        if subresource == "status":
            metadata = new["metadata"]
            for key in list(new):
                if key not in ("metadata", "status", "kind", "apiVersion"):
                    del new[key]
            for key, value in old.items():
                if key not in ("metadata", "status"):
                    new[key] = value
            new["metadata"] = self.status_metadata(metadata, old["metadata"])
        else:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        self.default(new)

    def status_metadata(self, metadata: Json, old: Json) -> Json:
        if not self.status_takes_metadata:
            return dict(old)
        return metadata

    def validate_update(
        self, new: Json, old: Json, subresource: str, faults: Faults, store: Store
    ) -> None:
        objectmeta.check_update(new["metadata"], old["metadata"], faults, custom=False)
        self.check(new, faults)
        self.check_change(new, old, faults)

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        """Check what may not change."""

    def desired_changed(self, new: Json, old: Json) -> bool:
        """Whether a change counts for ``generation``."""
        return any(
            not identical(new.get(key), old.get(key))
            for key in {*new, *old}
            if key not in ("metadata", "status", "kind", "apiVersion")
        )

    def reset_fields(self, subresource: str) -> tuple[str, ...]:
        """Top-level fields that an apply through this path neither sets nor owns."""
        if not self.has_status:
            return ()
        return ("spec",) if subresource == "status" else ("status",)

    def grace_seconds(self, document: Json, requested: int | None) -> int | None:
        """The grace period of a deletion; ``None`` for kinds that have none."""
        return None

    def after_write(self, document: Json) -> None:
        """Called with every stored object, e.g. to follow its meaning."""


def _version(api_version: Any) -> str:
    return str(api_version or "v1").rpartition("/")[2]


def wrong_version(api_version: Any, resource: Resource) -> ApiError:
    return bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version "
        f"({resource.api_version})"
    )
