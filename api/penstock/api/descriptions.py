"""What the fields of the wire mean, in the schema of the service: the strings behind them.

pydantic can read them as a class is made, from its source (``use_attribute_docstrings``). That
takes longer than all else of the import of `penstock.wire`, which agents, trainers and commands
pay for at each start and none of them shows. So they are read here, by who does.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from penstock.wire.base import WireModel
from penstock.wire.problems import FieldProblem, Problem


def describe_fields(schemas: dict[str, Any]) -> None:
    """Put the descriptions of the wire's models into the schemas of an OpenAPI document.

    What has a description already keeps it.
    """
    known: list[type[BaseModel]] = [*_below(WireModel), FieldProblem, Problem]
    models = {one.__name__: one for one in known}
    for schema in schemas.values():
        name, _, _ = schema.get("title", "").partition("[")  # of a generic one: its own name
        if name in models:
            _describe(schema, models[name])


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    said: dict[str, str] = {}
    for one in model.__mro__:
        if issubclass(one, BaseModel) and one is not BaseModel:
            said = _strings(one.__module__).get(one.__name__, {}) | said
    for name, field in model.model_fields.items():
        shown = schema.get("properties", {}).get(field.alias or name)
        if shown is not None and name in said:
            shown.setdefault("description", said[name])


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """It and all that derive from it; of a generic one itself, and not what it was made into."""
    if "[" not in model.__name__:
        yield model
        for one in model.__subclasses__():
            yield from _below(one)


@cache
def _strings(module: str) -> dict[str, dict[str, str]]:
    """The strings behind the fields of a module's classes, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: dict(_behind(one)) for one in tree.body if isinstance(one, ast.ClassDef)}


def _behind(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, string in pairwise(model.body):
        match field, string:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
