"""The comparison finds what differs: a replay that could not fail would prove nothing."""

from __future__ import annotations

import pytest

from cluster.tests.golden.comparison import differences
from cluster.tests.golden.placeholders import Bindings
from cluster.tests.golden.recordings import load
from cluster.tests.golden.trimming import trimmed

UID = "11111111-2222-4333-8444-555555555555"


def test_a_placeholder_is_bound_when_first_seen_and_the_same_ever_after() -> None:
    bindings = Bindings()
    assert differences({"uid": "<uid-1>"}, {"uid": UID}, bindings) == []
    assert differences({"uid": "<uid-1>"}, {"uid": UID}, bindings) == []
    assert differences({"uid": "<uid-1>"}, {"uid": UID.replace("1", "9")}, bindings) != []


def test_two_placeholders_cannot_stand_for_one_value() -> None:
    bindings = Bindings()
    assert bindings.match("<uid-1>", UID)
    assert not bindings.match("<uid-2>", UID)


@pytest.mark.parametrize(("later", "equal"), [("120", True), ("100", False), ("90", False)])
def test_a_later_version_is_a_larger_number(later: str, equal: bool) -> None:
    bindings = Bindings()
    assert bindings.match("<rv-1>", "100")
    assert bindings.match("<rv-2>", later) is equal


def test_placeholders_inside_a_message_are_bound() -> None:
    bindings = Bindings()
    assert bindings.match("pod <uid-1> at <rv-3>", f"pod {UID} at 17")
    assert bindings.filled("?resourceVersion=<rv-3>") == "?resourceVersion=17"


@pytest.mark.parametrize(
    ("recorded", "got", "place"),
    [
        ({"a": 1}, {"a": "1"}, "body.a"),
        ({"a": 1}, {"a": True}, "body.a"),
        ({"a": 1}, {}, "body.a"),
        ({}, {"a": 1}, "body.a"),
        ({"a": None}, {}, "body.a"),
        ([1, 2], [3, 2], "body[0]"),
        ([1], [1, 2], "body[1]"),
        ({"t": "<time>"}, {"t": "soon"}, "body.t"),
        ({"details": {"causes": [{"field": "a"}]}}, {"details": {"causes": []}}, "body.details"),
    ],
)
def test_every_kind_of_difference_is_found(recorded: object, got: object, place: str) -> None:
    found = differences(recorded, got, Bindings())
    assert len(found) == 1
    assert found[0].startswith(place)


def test_causes_may_come_in_any_order_but_must_be_the_same() -> None:
    one, two, three = ({"field": name, "message": "m"} for name in "abc")
    recorded = {"causes": [one, two]}
    assert differences(recorded, {"causes": [two, one]}, Bindings()) == []
    assert differences(recorded, {"causes": [two, three]}, Bindings()) != []


def test_the_faults_in_a_message_may_come_in_any_order() -> None:
    recorded = {"message": 'Widget "a" is invalid: [spec.a: x, spec.b: y]'}
    swapped = {"message": 'Widget "a" is invalid: [spec.b: y, spec.a: x]'}
    other = {"message": 'Widget "a" is invalid: [spec.b: y, spec.c: x]'}
    assert differences(recorded, swapped, Bindings()) == []
    assert differences(recorded, other, Bindings()) != []


def test_a_diff_of_internal_fields_is_cut_but_not_what_stands_before_it() -> None:
    recorded = "spec: Forbidden: may not change\n@@ -1 +1 @@\n- a\n"
    assert differences(recorded, "spec: Forbidden: may not change\n", Bindings()) == []
    assert differences(recorded, "spec: Forbidden: may change\n", Bindings()) != []


def test_every_note_about_a_cut_is_understood() -> None:
    for scenario in (load("pods"), load("list-selectors"), load("discovery"), load("openapi")):
        for step in scenario.steps:
            response = step.response
            if "trimmed" in response:
                again = trimmed(response["trimmed"], response["body"], response["body"])
                left_out = "left out" in response["trimmed"]
                assert left_out or again == response["body"]
