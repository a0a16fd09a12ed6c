"""The house in figures: ``python -m tests.house.measure [--root DIR] [--json]``.

What a reader meets who opens the source: sizes, broad classes, circles, arrows within a folder.
Tests hold some of them (`tests/house/test_structure.py`); the others compare two states of
the source, of which ``--root`` names one.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.house.structure import ROOT, Structure, cycles

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def arrows(structure: Structure) -> dict[str, tuple[int, int]]:
    """For each folder its modules, and the imports of each other among them."""
    found: dict[str, tuple[int, int]] = {}
    members: dict[str, set[str]] = defaultdict(set)
    for name in structure.imports:
        members[structure.folder(name)].add(name)
    for folder, names in members.items():
        inside = sum(len(structure.imports[name] & names) for name in names)
        found[folder] = (len(names), inside)
    return found


def deepest(structure: Structure) -> int:
    """Modules on the longest chain of imports."""
    depth: dict[str, int] = {}

    def visit(name: str, above: frozenset[str]) -> int:
        if name not in depth:
            targets = structure.imports.get(name, frozenset()) - above
            depth[name] = 1 + max((visit(one, above | {name}) for one in targets), default=0)
        return depth[name]

    return max(visit(name, frozenset()) for name in structure.imports)


def figures(root: Path) -> dict[str, Any]:
    """All figures of one state of the source."""
    structure = Structure(root)
    sources = {
        name: module for name, module in structure.modules.items() if not name.endswith("__main__")
    }
    lines = {name: max(_last_line(module.tree), 1) for name, module in sources.items()}
    functions = [one for module in sources.values() for one in _functions(module.tree)]
    long = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    inside = arrows(structure)
    text = "\n".join(path.read_text() for path in _product(root))
    tests = [path for path in root.rglob("test_*.py") if ".venv" not in path.parts]
    return {
        "modules": len(sources),
        "lines": sum(lines.values()),
        "files over 400 lines": sum(one > 400 for one in lines.values()),
        "files over 600 lines": sum(one > 600 for one in lines.values()),
        "largest file": max(lines.values()),
        "functions": len(functions),
        "functions over 60 lines": sum(one > 60 for one in long),
        "functions over 40 lines": sum(one > 40 for one in long),
        "functions with over 8 arguments": sum(_arguments(node) > 8 for node in functions),
        "classes over 20 methods": sum(
            count > 20 for module in sources.values() for _, count in module.methods()
        ),
        "circles of modules": len(cycles(structure.imports)),
        "circles of folders": len(cycles(structure.folders())),
        "deepest chain": deepest(structure),
        "most arrows per module in a folder": max(
            round(count / size, 2) for size, count in inside.values() if size > 2
        ),
        "folders over 1.5 arrows per module": sum(
            count > 1.5 * size for size, count in inside.values()
        ),
        "modules without docstring": sum(
            ast.get_docstring(module.tree) is None for module in sources.values()
        ),
        "type: ignore": len(re.findall(r"# type: ignore", text)),
        "fmt: skip": len(re.findall(r"# fmt: skip", text)),
        "forms of a logger": len(
            set(re.findall(r"^(\w+)(?:: Final)? = logging\.getLogger\((.*?)\)", text, re.MULTILINE))
        ),
        "test files": len(tests),
        "test functions": sum(
            len(re.findall(r"^(?:async )?def test_", path.read_text(), re.MULTILINE))
            for path in tests
        ),
    }


def _product(root: Path) -> Iterator[Path]:
    for namespace in (*root.glob("*/penstock"), *root.glob("*/penstock_cluster")):
        yield from namespace.rglob("*.py")


def _last_line(tree: ast.Module) -> int:
    return max((getattr(node, "end_lineno", 0) or 0 for node in tree.body), default=0)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = node.args
    return len([*given.posonlyargs, *given.args, *given.kwonlyargs])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="The house in figures.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the source to read")
    parser.add_argument("--folders", action="store_true", help="arrows per module of each folder")
    parser.add_argument("--json", action="store_true", help="one object")
    options = parser.parse_args()
    if options.folders:
        rows: dict[str, Any] = {
            folder: f"{count}/{size} = {count / size:.2f}"
            for folder, (size, count) in sorted(
                arrows(Structure(options.root)).items(), key=lambda one: -one[1][1] / one[1][0]
            )
        }
    else:
        rows = figures(options.root)
    if options.json:
        print(json.dumps(rows))
        return
    for name, value in rows.items():
        print(f"{value!s:>16}  {name}")


if __name__ == "__main__":
    main()
