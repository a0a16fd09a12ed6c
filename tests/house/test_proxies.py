"""No client of ours takes a proxy, or a password of a ``.netrc``, from the environment by itself.

A proxy that an image sets would be shown the tokens that our processes send to each other. Where
one is wanted, on the way to the API server, it is read in one place and given to the client.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.test_layout import ROOMS, ROOT

FUNCTIONS = {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream"}
OBEYS_THE_ENVIRONMENT = {
    "httpx": {"Client", "AsyncClient", "HTTPTransport", "AsyncHTTPTransport"} | FUNCTIONS,
    "requests": {"Session"} | FUNCTIONS,
    "urllib.request": {"urlopen", "build_opener", "Request", "urlretrieve"},
}
"""What looks for a proxy unless it is told not to, or may always do so."""

ASKS_ONLY_IF_TOLD = {"aiohttp": {"ClientSession"}}
"""What looks for none unless ``trust_env=True``."""


def faults(source: str) -> list[str]:
    """What in a module would obey the environment, with its line."""
    return list(_faults(ast.parse(source)))


def _faults(tree: ast.Module) -> Iterator[str]:
    names = _imported(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        module, _, called = _qualified(node.func, names).rpartition(".")
        trust = next((word.value for word in node.keywords if word.arg == "trust_env"), None)
        said = trust.value if isinstance(trust, ast.Constant) else None
        if called in OBEYS_THE_ENVIRONMENT.get(module, ()) and said is not False:
            yield f"line {node.lineno}: {module}.{called} without trust_env=False"
        if called in ASKS_ONLY_IF_TOLD.get(module, ()) and trust is not None and said is not False:
            yield f"line {node.lineno}: {module}.{called} with trust_env"


def _imported(tree: ast.Module) -> dict[str, str]:
    """What each name of a module stands for, wherever it is imported."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                names[one.asname or one.name] = f"{node.module}.{one.name}"
    return names


def _qualified(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


@pytest.mark.parametrize("room", [*ROOMS, "cluster/penstock_cluster"])
def test_no_client_of_a_room_obeys_the_environment(room: str) -> None:
    modules = sorted((ROOT / room).rglob("*.py"))
    assert modules
    found = [
        f"{path.relative_to(ROOT)}, {fault}"
        for path in modules
        for fault in faults(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import httpx\nhttpx.Client(base_url='x')",
        "import httpx as h\nasync def f():\n    return h.AsyncClient(trust_env=True)",
        "import httpx\ndef f(yes):\n    return httpx.Client(trust_env=yes)",
        "from httpx import Client\nClient()",
        "import httpx\nhttpx.get('x')",
        "import urllib.request\nurllib.request.urlopen('x')",
        "from urllib.request import urlopen as u\nu('x')",
        "import aiohttp\naiohttp.ClientSession(trust_env=True)",
    ],
)
def test_one_that_would_is_found(source: str) -> None:
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import httpx\nhttpx.Client(trust_env=False)",
        "import aiohttp\naiohttp.ClientSession()",
        "from urllib.request import getproxies\ngetproxies()",
        "def get(x): ...\nget('x')",
    ],
)
def test_one_that_would_not_is_left_alone(source: str) -> None:
    assert faults(source) == []
