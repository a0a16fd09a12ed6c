"""What a path asks for: a resource and a verb, or something outside of resources."""

from __future__ import annotations

from dataclasses import dataclass

_NAMESPACE_PATHS = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Target:
    """One request's path, taken apart. ``resource`` is empty outside of resources."""

    path: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    #: The old form ``/watch/...``.
    watch_path: bool = False


_ONE = {
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "POST": "create",
}
_MANY = {
    "GET": "list",
    "HEAD": "list",
    "POST": "create",
    "DELETE": "deletecollection",
    "PUT": "update",
    "PATCH": "patch",
}


def parse(method: str, path: str, *, watching: bool) -> Target:
    """Take a path apart; the verb is the one that roles name."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Target(path, method.lower() if method != "HEAD" else "get")
    watch_path = rest[0] == "watch" and len(rest) > 1
    if watch_path:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_PATHS:
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    verb = (_ONE if name else _MANY).get(method, method.lower())
    if (verb == "list" and (watching or watch_path)) or (watch_path and verb == "get"):
        verb = "watch"
    return Target(path, verb, group, version, resource, subresource, namespace, name, watch_path)
