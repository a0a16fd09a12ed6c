"""The product's modules, classes and imports, read from the source: nothing is imported.

Imports under ``TYPE_CHECKING`` count as any others: who names a type of another module has to know
that module. A package's face (``__init__``) re-exports and is left out.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NOT_OURS = {"migrations", "hook"}
"""Written by a generator, or loaded by file name into other people's processes."""


@dataclass(frozen=True)
class Module:
    """One module: its dotted name, its package and its tree."""

    name: str
    package: str
    tree: ast.Module
    is_face: bool

    def methods(self) -> Iterator[tuple[str, int]]:
        """Every class with its number of methods."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
                yield node.name, sum(isinstance(each, kinds) for each in node.body)


class Structure:
    """All modules below the rooms' folders."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules: dict[str, Module] = {}
        for namespace in (*root.glob("*/penstock"), *root.glob("*/penstock_cluster")):
            for path in namespace.rglob("*.py"):
                parts = path.relative_to(namespace.parent).with_suffix("").parts
                if _NOT_OURS.isdisjoint(parts):
                    self._add(parts, path)

    def _add(self, parts: tuple[str, ...], path: Path) -> None:
        is_face = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_face else parts)
        package = name if is_face else ".".join(parts[:-1])
        self.modules[name] = Module(name, package, ast.parse(path.read_text()), is_face)

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """Which modules each module imports; faces import nothing here."""
        return {
            module.name: frozenset(self._imported(module)) - {module.name}
            for module in self.modules.values()
            if not module.is_face
        }

    def _imported(self, module: Module) -> Iterator[str]:
        for node in ast.walk(module.tree):
            names: Iterable[str] = ()
            if isinstance(node, ast.Import):
                names = (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                below = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in self.modules else node.module for name in below]
            yield from (name for name in names if name in self.modules)

    @cached_property
    def floors(self) -> frozenset[str]:
        """Modules of a package that its own subpackages reach, directly or through each other."""
        found: set[str] = set()
        for name, targets in self.imports.items():
            package, todo = self.modules[name].package, list(targets)
            while todo:
                target = todo.pop()
                above = self.modules[target].package
                if target not in found and package.startswith(f"{above}."):
                    found.add(target)
                    todo += [
                        one
                        for one in self.imports.get(target, ())
                        if self.modules[one].package == above
                    ]
        return frozenset(found)

    def folder(self, name: str) -> str:
        """The folder of a module.

        A package with subpackages is two: the floor that these stand on, and the front (commands,
        the application, whatever puts the parts together) that stands on them.
        """
        package = self.modules[name].package
        divided = any(other.startswith(f"{package}.") for other in self._packages)
        return f"{package} (front)" if divided and name not in self.floors else package

    @cached_property
    def _packages(self) -> frozenset[str]:
        return frozenset(module.package for module in self.modules.values())

    def folders(self) -> Mapping[str, frozenset[str]]:
        """Which folders each folder imports from."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, targets in self.imports.items():
            here = self.folder(name)
            found[here] |= {self.folder(one) for one in targets if not self.modules[one].is_face}
        return {folder: frozenset(others - {folder}) for folder, others in found.items()}


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return sorted(found)
