"""Every type that a template's fields may wrongly have is named with its field."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.crds.pod_shape import TemplateError, check_pod_spec, check_template

CONTAINER = {"name": "main", "image": "image"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def template(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{**CONTAINER, **(container or {})}], **spec}}


def term(value: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": value}}}


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (template({"env": {"A": "b"}}), "spec.containers[0].env"),
        (template({"env": "x"}), "spec.containers[0].env"),
        (template({"env": [None]}), "spec.containers[0].env[0]"),
        (template({"env": [{"value": "b"}]}), "spec.containers[0].env[0].name"),
        (template({"resources": "abc"}), "spec.containers[0].resources"),
        (template({"resources": {"requests": ["cpu"]}}), "spec.containers[0].resources.requests"),
        (template({"resources": {"limits": "cpu"}}), "spec.containers[0].resources.limits"),
        (template({"name": ["main"]}), "spec.containers[0].name"),
        (template(initContainers="abc"), "spec.initContainers"),
        (template(initContainers=[None]), "spec.initContainers[0]"),
        (template(initContainers={"a": 1}), "spec.initContainers"),
        (template(affinity="x"), "spec.affinity"),
        (template(affinity=term([None])), f"{TERMS}[0]"),
        (
            template(affinity=term([{"matchExpressions": [{"operator": "Exists"}]}])),
            f"{TERMS}[0].matchExpressions[0].key",
        ),
        (template(tolerations=["x"]), "spec.tolerations[0]"),
        (template(tolerations=5), "spec.tolerations"),
        (template(nodeSelector="x"), "spec.nodeSelector"),
        (template(nodeSelector=["x"]), "spec.nodeSelector"),
        (template(nodeSelector={"zone": 1}), "spec.nodeSelector[zone]"),
        (template(overhead="x"), "spec.overhead"),
        (template(schedulingGates=["x"]), "spec.schedulingGates[0]"),
        ({**template(), "metadata": "abc"}, "metadata"),
        ({**template(), "metadata": {"labels": ["a"]}}, "metadata.labels"),
        ({**template(), "metadata": {"annotations": ["a"]}}, "metadata.annotations"),
        ({"spec": "x"}, "spec"),
        ({"spec": {}}, "spec.containers"),
        ("x", "template"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(broken: Any, field: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check_template(broken)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_nulls_are_absent_and_what_nobody_reads_is_nobodys_business() -> None:
    check_template(
        {
            "metadata": None,
            "spec": {
                "containers": [{**CONTAINER, "env": None, "resources": {"limits": None}}],
                "initContainers": None,
                "affinity": {"nodeAffinity": None, "podAffinity": "x"},
                "volumes": "x",
            },
        }
    )


def test_an_overlay_needs_no_containers() -> None:
    check_template({"spec": {"nodeSelector": {"zone": "a"}}}, partial=True)
    with pytest.raises(TemplateError, match="env: 'x': must be a list"):
        check_template({"spec": {"containers": [{"name": "trainer", "env": "x"}]}}, partial=True)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(TemplateError) as caught:
        check_pod_spec({"overhead": "x" * 5000})
    assert len(str(caught.value)) < 150
