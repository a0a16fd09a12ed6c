"""The CustomResourceDefinitions, derived from the models.

pydantic says what a model's JSON schema is; a structural schema, which is what Kubernetes takes,
is a stricter form of it: no references, no titles, no nulls (a null is an absent field), a default
at every level by which the object is filled in, and each field described. This module rewrites one
into the other and wraps it with the names, columns and subresources of the resource.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.structural import VALIDATIONS
from penstock.crds.group import GROUP, VERSION
from penstock.crds.resource import Column, CustomResource

_ORDER: Final = (
    "description",
    "type",
    "format",
    "anyOf",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    VALIDATIONS,
    "properties",
    "additionalProperties",
    "items",
)
"""Order of keywords for a reader: what it is, its bounds, its rules, then what is inside."""

_DROPPED: Final = frozenset({"$defs", "title", "propertyNames"})
_IDENTITY: Final = {
    "apiVersion": "Group and version of this object's schema.",
    "kind": "Kind of this object.",
}


class UnsupportedSchemaError(TypeError):
    """A model uses what a structural schema cannot express; the message names field and keyword."""


def crd(resource: CustomResource) -> dict[str, Any]:
    """The CustomResourceDefinition of a resource, as an object to apply."""
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(resource),
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
        "schema": {"openAPIV3Schema": structural_schema(resource)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def structural_schema(resource: CustomResource) -> dict[str, Any]:
    """The structural schema of a resource's objects.

    Raises:
        UnsupportedSchemaError: the model uses what a structural schema cannot express.
    """
    generated = resource.model.model_json_schema(by_alias=True, mode="validation")
    schema = _Rewriter(generated.get("$defs", {})).rewrite(generated, resource.kind)
    for name, description in _IDENTITY.items():
        schema["properties"][name] = {"description": description, "type": "string"}
    schema["required"] = [name for name in schema["required"] if name != "metadata"]
    return schema


class _Rewriter:
    """Rewrites one JSON schema, whose definitions it holds, into a structural schema."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def rewrite(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """The structural form of the schema at that path, which errors name."""
        flat = self._without_null(self._inlined(schema))
        result: dict[str, Any] = {}
        for keyword, value in flat.items():
            if keyword in _DROPPED or (keyword == "default" and value is None):
                continue
            if keyword == "default" and isinstance(value, dict):
                result["default"] = {}  # each field inside has a default of its own
            elif keyword == "properties":
                result[keyword] = {
                    name: self.rewrite(field, f"{path}.{name}") for name, field in value.items()
                }
            elif keyword == VALIDATIONS:
                result[keyword] = [
                    {part: rule[part] for part in ("rule", "message", "fieldPath") if part in rule}
                    for rule in value
                ]
            elif keyword in ("items", "additionalProperties"):
                result[keyword] = self.rewrite(value, f"{path}[]")
            elif keyword in _ORDER or keyword.startswith("x-kubernetes-"):
                result[keyword] = value
            elif keyword != "const":
                raise UnsupportedSchemaError(
                    f"{path}: a structural schema has no keyword {keyword!r}"
                )
        if "anyOf" in result and not result.get("x-kubernetes-int-or-string"):
            raise UnsupportedSchemaError(
                f"{path}: a structural schema has no unions but int-or-string"
            )
        return dict(sorted(result.items(), key=_position))

    def _inlined(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with the definition that it refers to in place of the reference."""
        if "$ref" not in schema:
            return schema
        definition = self._definitions[schema["$ref"].rpartition("/")[2]]
        return _beside(self._inlined(definition), schema, "$ref")

    def _without_null(self, schema: dict[str, Any]) -> dict[str, Any]:
        """An optional field as what it is when present."""
        choices = schema.get("anyOf", [])
        present = [choice for choice in choices if choice != {"type": "null"}]
        if len(present) == len(choices) or len(present) != 1:
            return schema
        return _beside(self._without_null(self._inlined(present[0])), schema, "anyOf")


def _beside(inner: dict[str, Any], outer: dict[str, Any], replaced: str) -> dict[str, Any]:
    """What ``replaced`` stands for, with the keywords beside it, which win; rules add up."""
    merged = {**inner, **{key: value for key, value in outer.items() if key != replaced}}
    if rules := [*inner.get(VALIDATIONS, []), *outer.get(VALIDATIONS, [])]:
        merged[VALIDATIONS] = rules
    return merged


def _position(item: tuple[str, Any]) -> tuple[int, str]:
    keyword = item[0]
    extension = _ORDER.index("required")  # list types and the like stand before what is inside
    return (_ORDER.index(keyword) if keyword in _ORDER else extension, keyword)


def _subresources(resource: CustomResource) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if resource.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": resource.scale.spec_replicas_path,
            "statusReplicasPath": resource.scale.status_replicas_path,
            "labelSelectorPath": resource.scale.label_selector_path,
        }
    return subresources


def _column(column: Column) -> dict[str, Any]:
    shown = {
        "name": column.name,
        "type": column.type,
        "description": column.description,
        "jsonPath": column.json_path,
    }
    return {**shown, "priority": 1} if column.wide else shown
