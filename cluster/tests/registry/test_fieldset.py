"""Sets of fields behave as sets, and comparison tells what changed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.registry.model import fieldset
from penstock_cluster.registry.model.documents import MISSING
from penstock_cluster.registry.model.shape import UNTYPED, Shape


def _normal(node: dict[str, Any]) -> dict[str, Any]:
    below = {key: _normal(item) for key, item in node.items() if key != "."}
    if "." in node and below:
        below["."] = {}
    return below


KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)
NODES = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from(["f:a", "f:b", "f:c", "."]), inner, min_size=1, max_size=3
    ),
    max_leaves=6,
).map(_normal)


def members(node: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if node is None:
        return set()
    found = {path} if fieldset.is_member(node) else set()
    for key, item in node.items():
        if key != ".":
            found |= members(item, (*path, key))
    return found


@given(NODES, NODES)
def test_union_difference_and_intersection_are_those_of_sets(left: Any, right: Any) -> None:
    a, b = members(left), members(right)
    assert members(fieldset.union(left, right)) == a | b
    assert members(fieldset.difference(left, right)) == a - b
    assert members(fieldset.intersection(left, right)) == a & b


@given(OBJECTS, OBJECTS)
def test_comparison_is_empty_only_for_equal_objects(old: Any, new: Any) -> None:
    changed, removed = fieldset.compare(UNTYPED, old, new)
    assert ((changed is None) and (removed is None)) is (old == new)


@given(OBJECTS)
def test_removing_all_that_an_object_owns_leaves_nothing(value: Any) -> None:
    owned = fieldset.owned(UNTYPED, value, added=True)
    assert fieldset.remove(UNTYPED, value, owned, None, MISSING) is MISSING


def test_keyed_lists_and_sets_have_members_of_their_own() -> None:
    element = Shape("object", fields={"type": Shape("string"), "status": Shape("string")})
    conditions = Shape("list", items=element, list_kind="map", keys=("type",))
    tags = Shape("list", items=Shape("string"), list_kind="set")
    shape = Shape("object", fields={"conditions": conditions, "tags": tags})
    value = {"conditions": [{"type": "Ready", "status": "True"}], "tags": ["x"]}
    assert fieldset.owned(shape, value, added=False) == {
        "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}},
        "f:tags": {'v:"x"': {}},
    }
    changed, removed = fieldset.compare(
        shape, value, {"conditions": [{"type": "Ready", "status": "False"}], "tags": ["y"]}
    )
    assert list(fieldset.paths(changed)) == ['.conditions[type="Ready"].status', '.tags[="y"]']
    assert list(fieldset.paths(removed)) == ['.tags[="x"]']
