"""Versions share what they have in common, and never more than that."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.tests.registry.running import run
from cluster.tests.registry.samples import pod, widget
from penstock_cluster.registry import Api, Engine
from penstock_cluster.registry.model.structural_sharing import identical, share

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_sharing_changes_neither_value(new: Any, old: Any) -> None:
    texts = json.dumps(new), json.dumps(old)
    same = share(new, old)
    assert (json.dumps(new), json.dumps(old)) == texts
    assert same is identical(new, old)


@given(VALUES)
def test_what_is_equal_becomes_one(value: Any) -> None:
    new, old = {"x": copy.deepcopy(value)}, {"x": value, "y": 1}
    share(new, old)
    assert new["x"] is old["x"]


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (1, 1.0), ([0], [False]), ({"a": 1}, {"a": True}), ({"a": None}, {}), ("1", 1)],
)
def test_values_that_only_look_equal(left: Any, right: Any) -> None:
    assert not identical(left, right)
    assert identical(left, copy.deepcopy(left))


def test_a_write_of_the_whole_object_keeps_its_parts() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        first = await api.create("pods", pod("one"), "default")
        whole = copy.deepcopy(first)
        whole["status"]["phase"] = "Running"
        second = await api.update("pods", whole, subresource="status")
        assert second["spec"] is first["spec"]
        assert second["metadata"]["labels"] is first["metadata"]["labels"]
        assert first["status"]["phase"] == "Pending"

    run(scenario)


def test_one_is_not_true() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        first = await api.create("widgets.test.dev", widget(free={"x": 1}), "default")
        patch = {"spec": {"free": {"x": True}}}
        second = await api.patch("widgets.test.dev", "one", patch, "default")
        assert second["spec"]["free"] == {"x": True}
        assert second["spec"]["free"]["x"] is True
        assert second["metadata"]["generation"] == first["metadata"]["generation"] + 1
        third = await api.patch("widgets.test.dev", "one", patch, "default")
        assert third["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]

    run(scenario, widgets=True)
