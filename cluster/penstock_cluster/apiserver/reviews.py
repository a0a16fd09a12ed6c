"""Reviews: kinds that are asked, not stored. Who is this token, and may they do that?"""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry import Engine
from penstock_cluster.registry.admission.rbac import Attributes
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import User
from penstock_cluster.registry.model.errors import FieldFault, Json, ResourceName
from penstock_cluster.registry.model.typed import DecodeError, decode
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.tokens import AUDIENCE, TokenError


def answer(engine: Engine, resource: Resource, document: Json, user: User, namespace: str) -> Json:
    """The reply to a review; :class:`ApiError` 400 or 422 for one that asks nothing."""
    try:
        decoded, _ = decode(resource.shape, document)
    except DecodeError as error:
        raise errors.bad_request(
            f'{resource.kind} in version "v1" cannot be handled as a {resource.kind}: {error}'
        ) from None
    reply: Json = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": decoded.get("metadata") or {},
    }
    if resource.kind == "SelfSubjectReview":
        reply["metadata"] = {"creationTimestamp": engine.timestamp()}
        reply["status"] = {"userInfo": user_info(user)}
        return reply
    spec: Json = decoded.get("spec") or {}
    reply["spec"] = spec
    if resource.kind == "TokenReview":
        reply["status"] = _review_token(engine, spec)
    elif resource.kind == "SelfSubjectRulesReview":
        reply["status"] = _rules(engine, user, spec.get("namespace", ""))
    else:
        reply["status"] = _access(engine, resource, spec, user, namespace)
    return reply


def user_info(user: User) -> Json:
    info: Json = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info


def _review_token(engine: Engine, spec: Json) -> Json:
    audiences = tuple(spec.get("audiences") or (AUDIENCE,))
    try:
        user, shared = engine.tokens.review(spec.get("token", ""), audiences)
    except TokenError as fault:
        return {"user": {}, "error": str(fault)}
    return {"authenticated": True, "user": user_info(user), "audiences": shared}


def _access(engine: Engine, resource: Resource, spec: Json, user: User, namespace: str) -> Json:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (about is None) is (path is None):
        shown = "null" if about is None else "{...}"
        message = (
            f"Invalid value: {shown}: exactly one of nonResourceAttributes or resourceAttributes "
            "must be specified"
        )
        fault = FieldFault("spec.resourceAttributes", "FieldValueInvalid", message)
        raise errors.invalid(ResourceName(resource.group, "", ""), "", [fault])
    if not resource.kind.startswith("Self"):
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        if not user.name and not user.groups:
            fault = FieldFault(
                "spec.user",
                "FieldValueInvalid",
                'Invalid value: "": at least one of user or group must be specified',
            )
            raise errors.invalid(ResourceName(resource.group, "", ""), "", [fault])
    if path is not None:
        wanted = Attributes(path.get("verb", ""), path=path.get("path", ""))
    else:
        assert about is not None
        wanted = Attributes(
            about.get("verb", ""),
            about.get("group", ""),
            about.get("resource", ""),
            about.get("subresource", ""),
            about.get("namespace", "") or namespace,
            about.get("name", ""),
        )
    return {"allowed": engine.authorizer.allowed(user, wanted)}


def _rules(engine: Engine, user: User, namespace: str) -> Json:
    resources: list[Json] = []
    others: list[Json] = []
    everything: list[Any] = ["*"]
    if "system:masters" in user.groups or not engine.authorizer.enforced:
        resources.append({"verbs": everything, "apiGroups": everything, "resources": everything})
        others.append({"verbs": everything, "nonResourceURLs": everything})
    for rule in engine.authorizer.rules(user, namespace):
        (others if rule.get("nonResourceURLs") else resources).append(rule)
    return {"resourceRules": resources, "nonResourceRules": others, "incomplete": False}
