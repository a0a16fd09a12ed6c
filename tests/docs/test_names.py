"""Every module, class or function that a page or a docstring names is where it says.

Read from the source: nothing is imported, so that the rooms with PyTorch are held as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

_ROOMS: Final = sorted(path.parent for path in ROOT.glob("*/penstock"))
_NAMED: Final = re.compile(r"`(penstock(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
_DATA: Final = frozenset({"penstock.dev"})
"""The API group, and labels under it: no modules."""
_PLUGINS: Final = frozenset({"penstock.algorithms", "penstock.commands"})
"""Groups of entry points."""
_NEVER_MADE: Final = frozenset({"penstock.cluster"})
"""Considered in a decision, and not taken."""


def _pages() -> Iterator[tuple[Path, str]]:
    """The pages; without the tables of decisions, which may list old names beside the new."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))):
        text = page.read_text(encoding="utf-8")
        if page.parent.name == "adr":
            text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
        yield page, text


def _docstrings() -> Iterator[tuple[Path, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted(ROOT.glob("*/penstock/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, documented) and (said := ast.get_docstring(node)):
                yield path, said


def _file_of(name: str) -> Path | None:
    """The file or the folder of a module or package of ours."""
    relative = Path(*name.split("."))
    for room in _ROOMS:
        place = room / relative
        for found in (place / "__init__.py", place.with_suffix(".py")):
            if found.is_file():
                return found
        if any(place.glob("*.py")):
            return place
    return None


@cache
def _names_in(path: Path) -> dict[str, ast.AST]:
    if path.is_dir():
        return {}
    return _bound(ast.parse(path.read_text(encoding="utf-8")).body)


def _bound(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """What statements bind, also under a condition, to the statement that does."""
    names: dict[str, ast.AST] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update({each.asname or each.name.split(".")[0]: node for each in node.names})
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names.update({n.id: node for n in ast.walk(target) if isinstance(n, ast.Name)})
        elif isinstance(node, ast.If | ast.Try):
            names.update(_bound([*node.body, *node.orelse]))
    return names


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        path = _file_of(".".join(parts[:length]))
        if path is not None:
            return _has(path, parts[length:])
    return False


def _has(path: Path, attributes: list[str]) -> bool:
    names = _names_in(path)
    if attributes and "__getattr__" in names:
        # Attributes that are looked up when they are asked for stand in the module as text.
        return attributes[0] in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    for attribute in attributes:
        found = names.get(attribute)
        if found is None:
            return False
        if isinstance(found, ast.ImportFrom | ast.Import):
            return True  # what it is of another module is not followed
        names = _bound(found.body) if isinstance(found, ast.ClassDef) else {}
    return True


def _untrue(text: str) -> list[str]:
    names = {name for name in _NAMED.findall(text) if name not in _PLUGINS | _NEVER_MADE}
    return sorted(
        name
        for name in names
        if not any(name == data or name.startswith(f"{data}.") for data in _DATA)
        and not _resolves(name)
    )


def test_what_a_page_names_is_there() -> None:
    pages = list(_pages())
    assert len({name for _, said in pages for name in _NAMED.findall(said)}) > 10
    assert [
        f"{page.relative_to(ROOT)}: {name}" for page, said in pages for name in _untrue(said)
    ] == []


def test_what_a_docstring_names_is_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, said in _docstrings()
        for name in _untrue(said)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "untrue"),
    [
        ("`penstock.crds`, `penstock.base.enums.Role.PS` and `penstock.base.enums.Role`", []),
        ("`penstock.base.enumerations.Role`", ["penstock.base.enumerations.Role"]),
        ("`penstock.base.enums.Rolle`", ["penstock.base.enums.Rolle"]),
        ("`penstock.base.enums.Role.SERVANT`", ["penstock.base.enums.Role.SERVANT"]),
    ],
)
def test_what_is_there_is_told_from_what_is_not(text: str, untrue: list[str]) -> None:
    assert _untrue(text) == untrue
