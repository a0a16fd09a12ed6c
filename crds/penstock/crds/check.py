"""Checking an object without a server, before it is sent: for the command line and for messages.

The models find what concerns one field: its presence, type, bounds and notation. Rules between
fields and on changes are the API server's to evaluate, so an object without faults here may still
be refused there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from penstock.base.structural import PRESERVE_UNKNOWN
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.group import API_VERSION
from penstock.crds.scale import SCALE
from penstock.crds.schema import structural_schema

_RESOURCES: Final = {resource.kind: resource for resource in (ELASTICJOB, SCALE)}
_SHOWN_LENGTH: Final = 60  # of a value in a message
_SUBJECT: Final = re.compile(r"^(Value error, |(Input|String|List|Dictionary) (?=should))")
_SAYS_THE_VALUE: Final = frozenset({"duplicate_item", "min_properties"})


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an object.

    Attributes:
        field: path of the field at fault, such as ``spec.replicaSpecs.worker.replicas``.
        message: the rule, and the value that breaks it.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def faults_in(document: Mapping[str, Any]) -> list[Fault]:
    """What is wrong with an ElasticJob or a Scale, field by field; empty: nothing was found.

    A field that the resource does not have is a fault too: the API server would drop it.
    """
    resource = _RESOURCES.get(str(document.get("kind")))
    if resource is None:
        return [Fault("kind", f"should be one of {', '.join(_RESOURCES)}")]
    if document.get("apiVersion") != API_VERSION:
        return [Fault("apiVersion", f"should be {API_VERSION}")]
    schema = _schema_of(resource.kind)
    unknown = [Fault(path, "no such field") for path in _unknown(schema, document, "")]
    try:
        resource.model.model_validate(document)
    except ValidationError as error:
        named = {fault.field for fault in unknown}
        return unknown + [fault for fault in faults_of(error) if fault.field not in named]
    return unknown


@functools.cache
def _schema_of(kind: str) -> dict[str, Any]:
    """The structural schema, which takes far longer to generate than an object to check."""
    return structural_schema(_RESOURCES[kind])


def faults_of(error: ValidationError) -> list[Fault]:
    """What a model's refusal says, with the fields spelt as in the YAML."""
    return [
        Fault(_path(detail["loc"]), _message(detail)) for detail in error.errors(include_url=False)
    ]


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "is required"
    rule = _SUBJECT.sub("", detail["msg"]).replace(" after validation, not", "; there are")
    value = detail["input"]
    if detail["type"] in _SAYS_THE_VALUE or not isinstance(value, str | int | float):
        return rule
    text = repr(value)
    return f"{rule}, got {text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + '...'}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        if step == "[key]":  # the fault is the key before it, not its value
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.lstrip(".")


def _unknown(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(schema.get("items", {}), item, f"{path}[{index}]")
    if not isinstance(value, Mapping) or path == "metadata":
        return
    for key, item in value.items():
        inside = f"{path}.{key}" if path else str(key)
        child = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        if child is not None:
            yield from _unknown(child, item, inside)
        elif not schema.get(PRESERVE_UNKNOWN):
            yield inside
