"""Server-side apply: what the applier spells out holds, and nothing of others is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.registry import ApiError
from penstock_cluster.registry.merging.apply import apply
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model.shape import Shape

LEAF = Shape("integer")
SPEC = Shape("object", fields=dict.fromkeys("abcd", LEAF))
SHAPE = Shape(
    "object", fields={"spec": SPEC, "tags": Shape("list", items=Shape("string"), list_kind="set")}
)
CONFIGS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), max_size=4)


def _apply(
    live: Any, entries: Entries, config: Any, manager: str, *, force: bool = True
) -> tuple[Any, Entries]:
    return apply(
        SHAPE,
        live,
        entries,
        config,
        manager=manager,
        api_version="v1",
        subresource="",
        force=force,
        now="2001-01-01T00:00:00Z",
        reset=(),
    )


@given(st.lists(st.tuples(st.sampled_from(["alpha", "beta"]), CONFIGS), max_size=8))
def test_after_any_applies_the_last_of_each_field_holds(steps: list[tuple[str, Any]]) -> None:
    """A model: each field has a value and owners; a manager owns what it applied last."""
    live: Any = {"spec": {}}
    entries: Entries = ()
    values: dict[str, int] = {}
    owners: dict[str, set[str]] = {}
    for manager, config in steps:
        live, entries = _apply(live, entries, {"spec": config}, manager)
        for name in list(owners):
            if manager in owners[name] and name not in config:
                owners[name].discard(manager)
                if not owners[name]:
                    del owners[name], values[name]
        for name, value in config.items():
            if name in values and values[name] != value:
                owners[name] = set()
            owners.setdefault(name, set()).add(manager)
            values[name] = value
        assert (live.get("spec") or {}) == values
        found = {
            name: {
                entry.manager for entry in entries if f"f:{name}" in (entry.set.get("f:spec") or {})
            }
            for name in values
        }
        assert found == owners


def test_another_managers_value_is_a_conflict_unless_forced() -> None:
    live, entries = _apply({}, (), {"spec": {"a": 1}}, "alpha")
    with pytest.raises(ApiError) as refusal:
        _apply(live, entries, {"spec": {"a": 2}}, "beta", force=False)
    assert refusal.value.code == 409
    assert refusal.value.message == 'Apply failed with 1 conflict: conflict with "alpha": .spec.a'
    live, entries = _apply(live, entries, {"spec": {"a": 2}}, "beta")
    assert live["spec"] == {"a": 2}
    assert [entry.manager for entry in entries] == ["beta"]


def test_the_same_again_changes_nothing() -> None:
    live, entries = _apply({}, (), {"spec": {"a": 1}, "tags": ["x"]}, "alpha")
    again, same = _apply(live, entries, {"spec": {"a": 1}, "tags": ["x"]}, "alpha")
    assert (again, same) == (live, entries)


def test_sets_merge_by_member() -> None:
    live, entries = _apply({}, (), {"tags": ["x", "y"]}, "alpha")
    live, entries = _apply(live, entries, {"tags": ["z"]}, "beta")
    assert live["tags"] == ["x", "y", "z"]
    live, entries = _apply(live, entries, {"tags": ["y"]}, "alpha")
    assert live["tags"] == ["y", "z"]
