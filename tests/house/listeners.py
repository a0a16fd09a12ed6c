"""Finds where the source makes something that others can connect to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.test_layout import ROOMS, ROOT

SOCKET_METHODS = {"bind", "listen"}
"""Of a socket, where a module knows sockets; others have methods of these names."""

SERVERS = {
    "create_server",
    "create_unix_server",
    "start_server",
    "start_unix_server",
    "start_http_server",
    "HTTPServer",
    "ThreadingHTTPServer",
    "TCPServer",
    "ThreadingTCPServer",
    "UnixStreamServer",
    "UDPServer",
    "UnixDatagramServer",
    "SimpleXMLRPCServer",
    "WSGIServer",
    "TCPSite",
    "UnixSite",
    "SockSite",
    "run_app",
    "create_datagram_endpoint",
}
"""What makes a listener or serves one, in the standard library and in what we use."""

OF_A_LIBRARY = {
    "uvicorn": {"Config", "Server", "run"},
    "multiprocessing.connection": {"Listener"},
    "multiprocessing.managers": {"BaseManager", "SyncManager"},
}
NATIVE = {"TCPStore", "create_device"}
"""Listeners that a library makes in C++."""

OURS = {"create_listener", "create_local_listener", "make_server"}
_WORDS = {*SERVERS, *NATIVE, *OURS, "socket", *(one.partition(".")[0] for one in OF_A_LIBRARY)}
"""One of them stands in each module that makes a listener: most need not be parsed."""


@dataclass(frozen=True, slots=True, order=True)
class Made:
    """A call that makes a listener."""

    path: str
    line: int
    call: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.call}"


def made_in_rooms() -> list[Made]:
    """All calls in all rooms and in the embedded cluster."""
    return sorted(
        made
        for room in (*ROOMS, "cluster/penstock_cluster")
        for path in (ROOT / room).rglob("*.py")
        for made in made_in(path.read_text(), str(path.relative_to(ROOT)))
    )


def made_in(source: str, path: str = "") -> Iterator[Made]:
    """All calls in a module."""
    if not any(word in source for word in _WORDS):
        return
    tree = ast.parse(source)
    modules, names = _imported(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, owner = _called(node.func)
        origin = names.get(called, "")
        if (
            called in SERVERS | NATIVE | OURS
            or any(
                called in kinds and (modules.get(owner) == library or origin == library)
                for library, kinds in OF_A_LIBRARY.items()
            )
            or (called in SOCKET_METHODS and owner and "socket" in modules.values())
        ):
            yield Made(path, node.lineno, called)


def _called(node: ast.expr) -> tuple[str, str]:
    """What is called, and of what: the last name before it."""
    if isinstance(node, ast.Name):
        return node.id, ""
    if isinstance(node, ast.Attribute):
        below = node.value
        if isinstance(below, ast.Name):
            return node.attr, below.id
        return node.attr, below.attr if isinstance(below, ast.Attribute) else "?"
    return "", ""


def _imported(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    """Modules by the name that they have here, and where other names come from."""
    modules: dict[str, str] = {}
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                modules[(one.asname or one.name).rpartition(".")[2]] = one.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                names[one.asname or one.name] = node.module
                modules[one.asname or one.name] = f"{node.module}.{one.name}"
                if node.module == "socket":
                    modules["socket"] = "socket"
    return modules, names


def modules_of(made: list[Made]) -> set[str]:
    """The files in which something is made."""
    return {Path(each.path).as_posix() for each in made}
