"""Merge patch, JSON patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.registry import ApiError, thaw
from penstock_cluster.registry.merging.patch import json_patch, merge
from penstock_cluster.registry.merging.strategic import strategic_merge
from penstock_cluster.registry.model.shape import CoreTypes

POD = CoreTypes().shape("io.k8s.api.core.v1.Pod")
KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.one_of(st.integers(0, 3), st.text("xy", max_size=2), st.lists(st.integers(0, 3))),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


# The examples of RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_once_and_changes_nothing_in_place(target: Any, patch: Any) -> None:
    before = thaw(target)
    once = merge(target, patch)
    assert merge(once, patch) == once
    assert target == before


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}),
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3]}),
        ([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "replace", "path": "/a", "value": {}}], {"a": {}}),
        ([{"op": "replace", "path": "/new", "value": 1}], {"a": [1, 2], "new": 1}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}),
        ([{"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}),
        ([{"op": "test", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": [1, 2], "x/y~z": 1}),
        ([], {"a": [1, 2]}),
    ],
)
def test_json_patch(operations: list[Any], result: Any) -> None:
    assert json_patch({"a": [1, 2]}, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "add", "path": "/missing/deep", "value": 1},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/b"},
        {"op": "copy", "from": "/missing", "path": "/b"},
        {"op": "jump", "path": "/a"},
        {"op": "replace", "path": "no-slash", "value": 1},
        {"path": "/a"},
    ],
)
def test_an_impossible_json_patch_is_refused_and_changes_nothing(operation: Any) -> None:
    target = {"a": [1, 2]}
    with pytest.raises(ApiError) as refusal:
        json_patch(target, [operation])
    assert refusal.value.code == 422
    assert target == {"a": [1, 2]}


def test_copies_that_double_a_document_are_bounded() -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    with pytest.raises(ApiError, match="accumulated size increase of copy") as refusal:
        json_patch({"a": {"text": "x" * 100}}, operations)
    assert refusal.value.code == 413


def test_many_small_copies_are_no_fault() -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/b/{number}"} for number in range(5_000)]
    patched = json_patch({"a": "é" * 100, "b": {}}, operations)
    assert len(patched["b"]) == 5_000


@pytest.mark.parametrize("op", ["copy", "move", "add", "replace"])
def test_no_operation_nests_without_bound(op: str) -> None:
    path = ""
    operations: list[dict[str, Any]] = []
    for _ in range(2_000):
        path += "/a"
        if op == "copy":
            operations.append({"op": op, "from": "", "path": path})
        elif op == "move":
            operations.append({"op": "add", "path": "/b", "value": {}})
            operations.append({"op": op, "from": "/b", "path": path})
        else:
            operations.append({"op": op, "path": path, "value": {}})
    with pytest.raises(ApiError) as refusal:
        json_patch({}, operations)
    assert refusal.value.code in (413, 422)


def test_containers_merge_by_name() -> None:
    target = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patched = strategic_merge(
        POD, target, {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}}
    )
    assert patched["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "2"},
        {"name": "c"},
    ]


def test_directives() -> None:
    target = {
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x/a", "x/b"]},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
    }
    patch = {
        "metadata": {
            "labels": {"$patch": "replace", "only": "this"},
            "$deleteFromPrimitiveList/finalizers": ["x/a"],
        },
        "spec": {
            "containers": [{"$patch": "delete", "name": "a"}, {"name": "c"}],
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
        },
    }
    assert strategic_merge(POD, target, patch) == {
        "metadata": {"labels": {"only": "this"}, "finalizers": ["x/b"]},
        "spec": {"containers": [{"name": "c"}, {"name": "b"}]},
    }


def test_an_element_without_its_merge_key_is_refused() -> None:
    target = {"spec": {"containers": [{"name": "a"}]}}
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        strategic_merge(POD, target, {"spec": {"containers": [{"image": "x"}]}})
