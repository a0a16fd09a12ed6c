"""The calls of the Kubernetes API that the client makes, as values: pure, nothing is sent here.

The two clients (`cluster_client` and `async_cluster_client` beside this) only carry these out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from penstock.client.errors import (
    ClusterError,
    ClusterRefusedError,
    ClusterUnreachableError,
    ForbiddenError,
    InvalidObjectError,
    NotInstalledError,
    ObjectConflictError,
    ObjectNotFoundError,
)
from penstock.crds.group import API_VERSION, ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL

FIELD_MANAGER: Final = "penstock-client"
PAGE: Final = 500
BUSY: Final = frozenset({429, 502, 503, 504})
"""Answers of a server that is overloaded or being replaced: the same call may succeed later."""

NO_SERVER: Final = "is this the address of a Kubernetes API server, and not of a login page?"
INSTALL: Final = "install or upgrade Penstock (`penstock doctor` looks further)"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object, as it stands in a path."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str = ""
    ) -> str:
        """The path of one object, of those of a namespace, or (None) of all.

        Raises:
            InvalidObjectError: A name that would make it the path of something else.
        """
        parts = ["/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", _segment("namespace", namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment("name", name))
        return "/".join([*parts, *filter(None, (subresource,))])


def _segment(what: str, name: str) -> str:
    # An empty name would turn the deletion of one job into that of all; and the API server decodes
    # what is escaped before it looks for slashes, so that escaping alone does not keep them out.
    if name in ("", ".", "..") or {*name} & {"/", "%"} or not name.isprintable():
        rule = f"{name!r} is the name of nothing: lower-case letters, digits and hyphens expected"
        raise InvalidObjectError(f"{what}: {rule}", code=400, fields=[(what, rule)])
    return quote(name, safe=":")


JOBS: Final = Resource(API_VERSION, ELASTICJOB_PLURAL)
SCALES: Final = Resource(API_VERSION, SCALE_PLURAL)
PODS: Final = Resource("v1", "pods")
EVENTS: Final = Resource("v1", "events")
SERVICES: Final = Resource("v1", "services")
CONFIG_MAPS: Final = Resource("v1", "configmaps")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCall:
    """One request to the API server."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    content_type: str = "application/json"

    @property
    def name(self) -> str:
        """The call for error messages."""
        return f"{self.method} {self.path}"

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()

    def result(self, status: int, content: bytes) -> Json:
        """The object of the answer.

        Raises:
            ClusterRefusedError: The cluster will not take a Scale, for a reason that trying again
                does not change.
            ClusterUnreachableError: The server is too busy or starts.
            ClusterError: This is no answer of an API server.
        """
        if status >= 400:
            raise refused(self, status, content)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ClusterError(f"{self.name}: HTTP {status} without JSON; {NO_SERVER}") from error
        if status >= 300 or not isinstance(found, dict):
            raise ClusterError(f"{self.name}: HTTP {status} without an object; {NO_SERVER}")
        return found


def get(resource: Resource, name: str, namespace: str | None = None) -> ClusterCall:
    return ClusterCall(method="GET", path=resource.path(namespace, name))


def listed(
    resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
) -> ClusterCall:
    """The objects of a namespace, or of all, in pages."""
    query = {"limit": str(PAGE)}
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    return ClusterCall(method="GET", path=resource.path(namespace), query=query)


def following(call: ClusterCall, page: Json) -> ClusterCall | None:
    """The call for the next page; None after the last one."""
    token = (page.get("metadata") or {}).get("continue")
    if not token:
        return None
    if token == call.query.get("continue"):
        raise ClusterError(f"{call.path}: the page after this one is that page again")
    return ClusterCall(method="GET", path=call.path, query={**call.query, "continue": token})


def create(resource: Resource, body: Json, namespace: str | None = None) -> ClusterCall:
    """Create an object; a field that the server does not know is an error."""
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    return ClusterCall(method="POST", path=resource.path(namespace), query=query, body=body)


def patch(resource: Resource, name: str, body: Json, namespace: str | None = None) -> ClusterCall:
    """A JSON merge patch; a field that the server does not know is an error."""
    return ClusterCall(
        method="PATCH",
        path=resource.path(namespace, name),
        query={"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
        body=body,
        content_type="application/merge-patch+json",
    )


def delete(
    resource: Resource, name: str, namespace: str | None = None, *, uid: str | None = None
) -> ClusterCall:
    """Delete an object, only that of `uid` where one is given."""
    body: Json = {"propagationPolicy": "Background"}
    if uid:
        body["preconditions"] = {"uid": uid}
    return ClusterCall(method="DELETE", path=resource.path(namespace, name), body=body)


def refused(call: ClusterCall, status: int, content: bytes) -> ClusterError:
    """The error for an answer that is none of success."""
    document = _status(content)
    details = document.get("details") or {}
    causes = [
        (str(cause.get("field") or ""), str(cause.get("message") or ""))
        for cause in details.get("causes") or ()
        if cause.get("field") != "<nil>"  # only says that rules were left out for the others
    ]
    message = str(document.get("message") or content[:200].decode(errors="replace")).strip()
    if status == 404 and not details.get("name"):
        if f"/apis/{GROUP}/" in call.path:
            message = f"the cluster has no ElasticJobs of version {API_VERSION}: {INSTALL}"
        return NotInstalledError(message or f"{call.path}: not there", code=status)
    if status == 404:
        return ObjectNotFoundError(message, code=status)
    if status == 401:
        message = "the cluster does not know these credentials: log in again, or see kubeconfig"
        return ForbiddenError(message, code=status)
    if status == 403:
        return ForbiddenError(message, code=status)
    if status in (400, 422):
        return InvalidObjectError(_what_is_wrong(message, causes), code=status, fields=causes)
    if status == 409:
        return ObjectConflictError(message, code=status)
    said = f"{call.name}: HTTP {status}: {message}"
    if status in BUSY:
        return ClusterUnreachableError(f"{said}; try again in a moment")
    return ClusterRefusedError(said, code=status, fields=causes)


def _what_is_wrong(message: str, causes: list[tuple[str, str]]) -> str:
    if causes:
        return "; ".join(f"{where}: {rule}" if where else rule for where, rule in causes)
    _, _, said = message.partition("strict decoding error: ")
    return said or message


def _status(content: bytes) -> Json:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
