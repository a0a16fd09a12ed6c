"""Variables of a container, without a cluster."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_cluster.kubelet.container.environment import (
    ConfigError,
    ConfigSources,
    container_environment,
    expand,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1ytwo"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$", "$$"),
        ("$A ${A}", "$A ${A}"),
        ("$(NOPE)", "$(NOPE)"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$()", "$()"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "two"}) == expected


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_what_was_escaped_expands_to_itself(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "1"}) == text


POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"penstock.dev/rank": "3"},
        "annotations": {"a": 'say "hi"'},
    },
    "spec": {"nodeName": "n1", "serviceAccountName": "sa", "containers": []},
    "status": {"podIP": "127.64.0.1", "hostIP": "127.0.0.1"},
}
MAPS = {"m": {"kind": "ConfigMap", "data": {"k": "v", "bad name": "x", "1": "y"}}}
SECRETS = {"s": {"kind": "Secret", "data": {"t": base64.b64encode(b"top").decode()}}}
SOURCES = ConfigSources(MAPS.get, SECRETS.get)
ALLOCATABLE = {"cpu": 4000, "memory": 8 << 30}


def environment(*env: dict, given_variables: dict[str, str] | None = None, **container) -> dict:
    described = {"name": "main", "env": list(env), **container}
    return container_environment(POD, described, given_variables or {}, SOURCES, ALLOCATABLE)


def value(value_from: dict, **container) -> str | None:
    return environment({"name": "X", "valueFrom": value_from}, **container).get("X")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['penstock.dev/rank']", "3"),
        ("metadata.annotations['a']", 'say "hi"'),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.64.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, expected: str) -> None:
    assert value({"fieldRef": {"fieldPath": path}}) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "limits.memory"}, str(8 << 30)),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "513"),
    ],
)
def test_resources(reference: dict, expected: str) -> None:
    amounts = {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1", "memory": "524289Ki"}}
    assert value({"resourceFieldRef": reference}, resources=amounts) == expected


def test_later_variables_see_earlier_ones() -> None:
    found = environment(
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(C)$(GIVEN)"},
        {"name": "C", "value": "3"},
        given_variables={"GIVEN": "g"},
    )
    assert found["B"] == "1$(C)g"


def test_whole_objects_come_first_and_skip_what_is_no_name() -> None:
    found = environment(
        {"name": "P_k", "value": "own"},
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
    )
    assert found == {"P_k": "own", "P_1": "y", "t": "top"}


@pytest.mark.parametrize(
    ("value_from", "message"),
    [
        ({"configMapKeyRef": {"name": "x", "key": "k"}}, 'configmap "x" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "x"}}, "couldn't find key x in ConfigMap ns/m"),
        ({"secretKeyRef": {"name": "x", "key": "k"}}, 'secret "x" not found'),
        ({"secretKeyRef": {"name": "s", "key": "x"}}, "couldn't find key x in Secret ns/s"),
    ],
)
def test_what_is_missing_is_named_unless_it_is_optional(value_from: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        value(value_from)
    [reference] = value_from.values()
    assert value({next(iter(value_from)): {**reference, "optional": True}}) is None
