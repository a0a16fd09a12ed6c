"""Label and field selectors."""

from __future__ import annotations

import pytest

from penstock_cluster.registry import ApiError
from penstock_cluster.registry.model.selectors import FieldSelector, LabelSelector

LABELS = {"tier": "gold", "env": "prod", "size": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("tier=gold", True),
        ("tier==gold", True),
        ("tier!=gold", False),
        ("absent!=x", True),
        ("tier in (gold,silver)", True),
        ("tier notin (gold, silver)", False),
        ("absent notin (x)", True),
        ("tier", True),
        ("!tier", False),
        ("!absent", True),
        ("tier=", False),
        ("env=prod,tier!=silver", True),
        ("size>4", True),
        ("size<5", False),
        ("", True),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    assert LabelSelector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a=b c", "unable to parse requirement: found 'c', expected: ',' or 'end of string'"),
        ("=a", "unable to parse requirement: found '=', expected: identifier"),
    ],
)
def test_faulty_label_selectors_are_refused(text: str, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        LabelSelector.parse(text)
    assert refusal.value.code == 400
    assert refusal.value.message == message


def test_selector_objects() -> None:
    selector = {
        "matchLabels": {"tier": "gold"},
        "matchExpressions": [
            {"key": "env", "operator": "In", "values": ["prod", "test"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    assert LabelSelector.of(selector).matches(LABELS)
    assert not LabelSelector.of(selector).matches({**LABELS, "old": "1"})
    assert LabelSelector.of({}).matches({})


def test_field_selectors() -> None:
    readers = {"spec.nodeName": lambda item: item.get("node", "")}
    selector = FieldSelector.parse("spec.nodeName=n1", readers)
    assert selector.matches({"node": "n1"})
    assert not selector.matches({})
    assert selector.exact("spec.nodeName") == "n1"
    assert FieldSelector.parse("spec.nodeName!=n1", readers).matches({})
    with pytest.raises(ApiError, match=r"field label not supported: spec\.size"):
        FieldSelector.parse("spec.size=1", readers)
    with pytest.raises(ApiError, match="invalid selector"):
        FieldSelector.parse("spec", readers)
