"""The generated schemas are structural, described and bounded throughout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

from penstock.base.structural import Keywords, Model, Rule
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.resource import CustomResource
from penstock.crds.scale import SCALE
from penstock.crds.schema import UnsupportedSchemaError, crd, structural_schema
from tests.crds.schemas import schema_of

KINDS = ["ElasticJob", "Scale"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema but those of the metadata, which is the server's."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        if f"{path}.{name}" != ".metadata":
            yield from nodes(child, f"{path}.{name}")
    for inside in ("items", "additionalProperties"):
        if inside in schema:
            yield from nodes(schema[inside], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_in_a_sentence(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        assert schema["description"].endswith("."), path
        assert "\n" not in schema["description"], path


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_list_and_map_is_bounded(kind: str) -> None:
    bound = {"array": "maxItems", "string": "maxLength"}
    for path, schema in nodes(schema_of(kind)):
        if path in (".apiVersion", ".kind") or "enum" in schema or "format" in schema:
            continue
        if schema.get("type") in bound:
            assert bound[schema["type"]] in schema, path
        if schema.get("x-kubernetes-int-or-string"):
            assert "maxLength" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_a_bounded_integer_that_survives_any_json_reader(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        assert schema.get("type") != "number", path
        if schema.get("type") == "integer":
            assert schema["format"] in ("int32", "int64"), path
            assert -(2**53) < schema["minimum"] <= schema["maximum"] < 2**53, path
            assert schema["format"] == "int64" or schema["maximum"] < 2**31, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_pattern_is_anchored_and_has_no_look_around(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        if "pattern" in schema:
            assert schema["pattern"].startswith("^"), path
            assert schema["pattern"].endswith("$"), path
            assert "(?" not in schema["pattern"], path


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_says_how_appliers_share_it(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        if schema.get("type") == "array":
            assert schema["x-kubernetes-list-type"] in ("map", "set", "atomic"), path


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_json_schema_that_is_not_structural(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        assert not schema.keys() & {"$ref", "$defs", "title", "const", "propertyNames"}, path
        assert {"type": "null"} not in schema.get("anyOf", []), path
        if isinstance(schema.get("additionalProperties"), dict):
            assert "properties" not in schema, path


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_guards_the_optional_fields_that_it_reads(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        optional = {
            name
            for name, field in schema.get("properties", {}).items()
            if name not in schema.get("required", []) and "default" not in field
        } - {"metadata"}
        for rule in schema.get("x-kubernetes-validations", []):
            for name in optional:
                if f"self.{name}" in rule["rule"]:
                    assert f"has(self.{name})" in rule["rule"], (path, name)


def test_metadata_declares_the_name_alone() -> None:
    # A rule's fieldPath needs it; the API server refuses a description there.
    for kind in KINDS:
        metadata = schema_of(kind)["properties"]["metadata"]
        assert metadata == {"type": "object", "properties": {"name": {"type": "string"}}}


def test_only_the_spec_is_required() -> None:
    assert [schema_of(kind)["required"] for kind in KINDS] == [["spec"], ["spec"]]


def test_names_and_subresources_of_an_elasticjob() -> None:
    spec = crd(ELASTICJOB)["spec"]
    (version,) = spec["versions"]
    assert spec["names"]["shortNames"] == ["ej"]
    assert spec["names"]["categories"] == ["all", "elastic"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
        "statusReplicasPath": ".status.replicas.worker.created",
        "labelSelectorPath": ".status.selector",
    }


@pytest.mark.parametrize("resource", [ELASTICJOB, SCALE], ids=lambda resource: resource.kind)
def test_every_column_shows_a_field_that_exists(resource: CustomResource) -> None:
    schema = structural_schema(resource)
    for column in resource.columns:
        at = schema
        for step in column.json_path.partition("[?")[0].strip(".").split("."):
            if step == "metadata":
                break
            at = at["properties"][step]


def test_columns_of_kubectl_get() -> None:
    def shown(resource: CustomResource, wide: bool) -> list[str]:
        return [column.name for column in resource.columns if column.wide is wide]

    assert shown(ELASTICJOB, wide=False) == ["State", "Workers", "Data", "Plan", "Age"]
    assert shown(ELASTICJOB, wide=True) == ["Accelerated", "PS", "Strategy", "Optimize"]
    assert shown(SCALE, wide=False)[-1] == "Age"


def test_schemas_are_the_same_each_time() -> None:
    assert [crd(ELASTICJOB), crd(SCALE)] == [crd(ELASTICJOB), crd(SCALE)]


def resource_of(model: type[Model]) -> CustomResource:
    return CustomResource(model, "Thing", "things", (), (), ())


def test_a_union_is_refused_with_the_field() -> None:
    class Thing(Model):
        """A thing."""

        spec: int | list[int] = Field(description="Either.")

    with pytest.raises(UnsupportedSchemaError, match=r"Thing\.spec: .* no unions"):
        structural_schema(resource_of(Thing))


def test_a_keyword_that_kubernetes_ignores_is_refused_with_the_field() -> None:
    class Thing(Model):
        """A thing."""

        spec: Annotated[int, Field(multiple_of=2)] = Field(description="Even.")

    with pytest.raises(
        UnsupportedSchemaError,
        match=r"Thing\.spec: .* 'multipleOf'",
    ):
        structural_schema(resource_of(Thing))


def test_rules_of_a_model_and_of_its_field_add_up() -> None:
    class Inner(Model):
        """Inside."""

        rules = (Rule("true", "of the model"),)

    class Thing(Model):
        """A thing."""

        spec: Annotated[Inner, Keywords(Rule("true", "of the field"))] = Field(description="It.")
        maybe: Annotated[Inner | None, Keywords(Rule("true", "of the field"))] = Field(
            default=None, description="Perhaps."
        )

    fields = structural_schema(resource_of(Thing))["properties"]
    for name in ("spec", "maybe"):
        messages = [rule["message"] for rule in fields[name]["x-kubernetes-validations"]]
        assert messages == ["of the model", "of the field"]
