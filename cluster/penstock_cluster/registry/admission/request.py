"""What admission is asked about: one request, after all checks and before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.resource import Resource


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request as admission sees it."""

    resource: Resource
    verb: str
    """CREATE, UPDATE or DELETE."""
    subresource: str
    new: Json | None
    """The object as it shall be; None when it is deleted."""
    old: Json | None
    """The object as it is; None when it is created."""
    call: Call

    @property
    def metadata(self) -> Json:
        """That of the object, as it shall be or else as it is."""
        return (self.new or self.old or {}).get("metadata") or {}

    @property
    def name(self) -> str:
        """The object's; empty as long as it has none."""
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        """The object's; empty for kinds that have none."""
        return str(self.metadata.get("namespace", ""))

    @property
    def sized_pod(self) -> Json | None:
        """The pod, when the request creates or resizes one: what quotas and limits are about."""
        if self.resource.name.qualified != "pods":
            return None
        return self.new if self.verb == "CREATE" or self.subresource == "resize" else None


Admission = Callable[[AdmissionRequest], None]
"""Returns for what it admits, and raises :class:`ApiError` for what it refuses."""
