"""What a policy may ask about rights: the variable ``authorizer`` and its functions.

``authorizer.group('').resource('pods').namespace('x').check('create').allowed()`` asks whether
whoever makes the request may do something else as well. What stands between two dots is a map: the
interpreter of rules knows no types but those of JSON. A decision gives no reason and no error.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_cluster.registry.admission.cel import Functions
from penstock_cluster.registry.admission.rbac import Attributes, Authorizer
from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model.call import User
from penstock_cluster.registry.model.errors import Json


def _adding(field: str) -> Callable[[Json, str], Json]:
    return lambda asked, value: {**asked, field: value}


_BUILDERS: Functions = {
    field: _adding(field) for field in ("group", "resource", "subresource", "namespace", "name")
}


def variable(request: AdmissionRequest) -> Json:
    """The value of ``authorizer`` for a request, before anything is asked of it."""
    resource = request.resource
    own = {
        "group": resource.group,
        "resource": resource.plural,
        "subresource": request.subresource,
        "namespace": request.namespace,
        "name": request.name,
    }
    return {"requestResource": own}


def functions(request: AdmissionRequest, authorizer: Authorizer) -> Functions:
    """The functions of ``authorizer``, as they answer about whoever makes the request."""
    caller = request.call.user

    def check(asked: Json, verb: str) -> Json:
        user = _account(*asked["account"]) if "account" in asked else caller
        path = asked.get("path", "")
        fields = {name: asked[name] for name in _BUILDERS if name in asked}
        wanted = Attributes(verb, path=path) if path else Attributes(verb, **fields)
        return {"allowed": authorizer.allowed(user, wanted)}

    return {
        **_BUILDERS,
        "path": _adding("path"),
        "serviceAccount": lambda asked, namespace, name: {**asked, "account": [namespace, name]},
        "check": check,
        "allowed": lambda decision: decision["allowed"],
        "reason": lambda _: "",
        "errored": lambda _: False,
        "error": lambda _: "",
    }


def _account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:{name}", (*groups, "system:authenticated"))
