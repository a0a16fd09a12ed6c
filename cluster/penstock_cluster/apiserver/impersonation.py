"""Acting as somebody else: the ``Impersonate-*`` headers, as ``kubectl --as`` sends them.

Whoever may ``impersonate`` the user, the groups and the rest that are named is from then on treated
as that user; whoever may not is refused before anything else about the request is looked at.
"""

from __future__ import annotations

from urllib.parse import unquote

from penstock_cluster.registry.admission.rbac import Attributes, Authorizer, explain
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import User

_PREFIX = b"impersonate-"
_EXTRA = "extra-"
_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATED = "system:authenticated"


def impersonated(user: User, headers: list[tuple[bytes, bytes]], authorizer: Authorizer) -> User:
    """Whom the request is made as: ``user`` unless the headers name somebody else.

    Raises :class:`ApiError` 403 when ``user`` may not act so, 500 when groups come without a user.
    """
    asked = [
        (name[len(_PREFIX) :].decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.startswith(_PREFIX)
    ]
    if not asked:
        return user
    name = next((value for part, value in asked if part == "user"), "")
    groups = [value for part, value in asked if part == "group"]
    uid = next((value for part, value in asked if part == "uid"), "")
    extra: dict[str, list[str]] = {}
    for part, value in asked:
        if part.startswith(_EXTRA):
            extra.setdefault(unquote(part[len(_EXTRA) :]), []).append(value)
    if not name:
        raise errors.internal(f"requested {groups or uid or extra} without impersonating a user")
    _check_user(user, name, authorizer)
    for group in groups:
        _check(user, Attributes("impersonate", "", "groups", name=group), authorizer)
    if uid:
        wanted = Attributes("impersonate", "authentication.k8s.io", "uids", name=uid)
        _check(user, wanted, authorizer)
    for key, values in extra.items():
        for value in values:
            wanted = Attributes(
                "impersonate", "authentication.k8s.io", "userextras", key, name=value
            )
            _check(user, wanted, authorizer)
    return User(name, tuple(_with_implied(name, groups)), uid, extra)


def _check_user(user: User, name: str, authorizer: Authorizer) -> None:
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        wanted = Attributes("impersonate", "", "serviceaccounts", namespace=namespace, name=account)
    else:
        wanted = Attributes("impersonate", "", "users", name=name)
    _check(user, wanted, authorizer)


def _check(user: User, wanted: Attributes, authorizer: Authorizer) -> None:
    if not authorizer.allowed(user, wanted):
        resource = errors.ResourceName(wanted.group, wanted.resource, "")
        raise errors.forbidden(resource, wanted.name, explain(user, wanted))


def _with_implied(name: str, groups: list[str]) -> list[str]:
    found = list(groups)
    if not found and name.startswith(_ACCOUNT):
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        found += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    implied = "system:unauthenticated" if name == "system:anonymous" else _AUTHENTICATED
    if implied not in found:
        found.append(implied)
    return found
