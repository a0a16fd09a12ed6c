"""The one error of the embedded cluster: a refusal that carries a Kubernetes ``Status``.

Every layer raises :class:`ApiError`; HTTP writes its ``status`` as the body and in-process callers
read ``code`` and ``reason``. The constructors below hold the wording that clients and
controllers match on, so that no other module spells a message of the API machinery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One fault of one field: a cause of a 422."""

    field: str
    reason: str
    message: str

    def as_cause(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}


@dataclass(frozen=True, slots=True)
class ResourceName:
    """What an error names: ``widgets`` of ``golden.dev``, and the kind for faults of content."""

    group: str
    plural: str
    kind: str

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class ApiError(Exception):
    """A request was refused; ``status`` is the Kubernetes ``Status`` that says why."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        *,
        metadata: Json | None = None,
        headers: Mapping[str, str] | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers: dict[str, str] = dict(headers or {})
        #: When set, HTTP answers with this plain text in place of a Status.
        self.text = text
        #: Content type of the reply, where it is not JSON.
        self.media_type = ""
        #: Fields that a body of another version had (for warnings).
        self.unknown: list[str] = []
        self._metadata = metadata or {}

    @property
    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self._metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body

    @property
    def is_not_found(self) -> bool:
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        return self.code == 409 and self.reason == "Conflict"

    @property
    def is_already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        return self.code == 410


@dataclass(slots=True)
class Faults:
    """Collects the faults of one request, so that all of them come in one answer."""

    items: list[FieldFault] = field(default_factory=list)

    def add(self, path: str, reason: str, message: str) -> None:
        self.items.append(FieldFault(path, reason, message))

    def invalid(self, path: str, shown: str, why: str) -> None:
        self.add(path, "FieldValueInvalid", f"Invalid value: {shown}: {why}")

    def required(self, path: str, why: str = "") -> None:
        message = f"Required value: {why}" if why else "Required value"
        self.add(path, "FieldValueRequired", message)

    def forbidden(self, path: str, why: str) -> None:
        self.add(path, "FieldValueForbidden", f"Forbidden: {why}")

    def unsupported(self, path: str, shown: str, supported: Iterable[str]) -> None:
        values = ", ".join(f'"{value}"' for value in supported)
        message = f"Unsupported value: {shown}: supported values: {values}"
        self.add(path, "FieldValueNotSupported", message)

    def duplicate(self, path: str, shown: str) -> None:
        self.add(path, "FieldValueDuplicate", f"Duplicate value: {shown}")

    def too_long(self, path: str, limit_bytes: int) -> None:
        message = f"Too long: may not be more than {limit_bytes} bytes"
        self.add(path, "FieldValueTooLong", message)

    def __bool__(self) -> bool:
        return bool(self.items)


def _details(name: str, resource: ResourceName, *, kind: bool = False) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    shown = resource.kind if kind else resource.plural
    if shown:
        details["kind"] = shown
    return details


def page_not_found() -> ApiError:
    """A path that no handler owns: plain text, as from a Go mux."""
    return ApiError(404, "NotFound", "404 page not found", text="404 page not found\n")


def resource_not_found() -> ApiError:
    """An unknown resource below a group that is served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(resource: ResourceName, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(name, resource))


def already_exists(resource: ResourceName, name: str, *, being_deleted: bool = False) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    if being_deleted:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, _details(name, resource))


def generated_name_taken(resource: ResourceName, name: str) -> ApiError:
    message = (
        f'{resource.qualified} "{name}" already exists, the server was not able to generate a '
        "unique name for the object"
    )
    details = _details(name, resource) | {"retryAfterSeconds": 1}
    return ApiError(409, "AlreadyExists", message, details, headers={"Retry-After": "1"})


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(
    resource: ResourceName, name: str, why: str = MODIFIED, *, kind: bool = False
) -> ApiError:
    shown = resource.qualified_kind if kind else resource.qualified
    message = f'Operation cannot be fulfilled on {shown} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, resource, kind=kind))


def invalid(
    resource: ResourceName, name: str, faults: Iterable[FieldFault], *, plural: bool = False
) -> ApiError:
    """A 422 with all its causes; ``plural`` names the resource instead of the kind."""
    causes = list(faults)
    shown = resource.qualified if plural else resource.qualified_kind
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listing = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(name, resource, kind=not plural)
    details["causes"] = [cause.as_cause() for cause in causes]
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {listing}', details)


def invalid_options(kind: str, faults: Iterable[FieldFault]) -> ApiError:
    return invalid(ResourceName("meta.k8s.io", "", kind), "", faults)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(
    resource: ResourceName, name: str, why: str, causes: list[Json] | None = None
) -> ApiError:
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    details = _details(name, resource)
    if causes is not None:
        details["causes"] = causes
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def forbidden_path(user: str, verb: str, path: str) -> ApiError:
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def method_not_allowed(verb: str = "", resource: ResourceName | None = None) -> ApiError:
    if resource is None:
        message = "the server does not allow this method on the requested resource"
        return ApiError(405, "MethodNotAllowed", message, {})
    message = f'{verb} is not supported on resources of kind "{resource.qualified}"'
    return ApiError(405, "MethodNotAllowed", message, _details("", resource))


def not_acceptable(accepted: Iterable[str]) -> ApiError:
    message = "only the following media types are accepted: " + ", ".join(accepted)
    return ApiError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def too_large(limit_bytes: int) -> ApiError:
    message = f"Request entity too large: limit is {limit_bytes}"
    return ApiError(413, "RequestEntityTooLarge", message)


def expired(message: str, *, continue_token: str = "") -> ApiError:
    metadata = {"continue": continue_token} if continue_token else {}
    return ApiError(410, "Expired", message, metadata=metadata)


def version_too_large(wanted: int, current: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    details: Json = {"causes": [cause], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", message, details, headers={"Retry-After": "1"})


def unprocessable() -> ApiError:
    """What a JSON patch that cannot be carried out gets, whatever the fault."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def plain_internal(message: str) -> ApiError:
    """A 500 without a reason: how the real server shows an error it did not foresee."""
    return ApiError(500, "", message)


def internal(message: str) -> ApiError:
    details = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details)


def too_many_requests(message: str, *, retry_after: int = 1, cause: Json | None = None) -> ApiError:
    details: Json = {"causes": [cause]} if cause else {}
    headers: dict[str, str] = {}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
        headers["Retry-After"] = str(retry_after)
    return ApiError(429, "TooManyRequests", message, details, headers=headers)


def service_unavailable(message: str, *, retry_after: int = 1) -> ApiError:
    details: Json = {"retryAfterSeconds": retry_after} if retry_after else {}
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return ApiError(503, "ServiceUnavailable", message, details, headers=headers)
