"""Node selection, taints and cordon read as the API reference says."""

from __future__ import annotations

import pytest

from cluster.tests.scheduler.objects import node
from penstock_cluster.scheduler.nodes.fit import may_use
from penstock_cluster.scheduler.nodes.selectors import matches_node_selection, untolerated_taint


def required(*terms: dict) -> dict:
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
            }
        }
    }


def expression(operator: str, key: str = "gen", *values: str) -> dict:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("operator", "key", "values", "matches"),
    [
        ("In", "zone", ["a", "b"], True),
        ("In", "zone", ["b"], False),
        ("In", "absent", ["b"], False),
        ("NotIn", "zone", ["b"], True),
        ("NotIn", "absent", ["b"], True),
        ("NotIn", "zone", ["a"], False),
        ("Exists", "zone", [], True),
        ("Exists", "absent", [], False),
        ("DoesNotExist", "absent", [], True),
        ("DoesNotExist", "zone", [], False),
        ("Gt", "gen", ["4"], True),
        ("Gt", "gen", ["5"], False),
        ("Lt", "gen", ["6"], True),
        ("Gt", "zone", ["4"], False),
        ("Lt", "absent", ["4"], False),
    ],
)
def test_operators(operator: str, key: str, values: list[str], matches: bool) -> None:
    labelled = node(labels={"zone": "a", "gen": "5"})
    assert matches_node_selection(required(expression(operator, key, *values)), labelled) is matches


def test_terms_are_alternatives_and_requirements_are_not() -> None:
    labelled = node(labels={"zone": "a", "gen": "5"})
    fails, holds = expression("In", "zone", "b"), expression("Exists", "gen")
    both = {"matchExpressions": fails["matchExpressions"] + holds["matchExpressions"]}
    assert matches_node_selection(required(fails, holds), labelled)
    assert not matches_node_selection(required(both), labelled)


def test_an_empty_term_matches_nothing() -> None:
    assert not matches_node_selection(required({}), node())


def test_match_fields_pins_to_one_node() -> None:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    assert matches_node_selection(required(pin), node("n2"))
    assert not matches_node_selection(required(pin), node("n1"))


def test_node_selector_and_affinity_must_both_hold() -> None:
    spec = required(expression("In", "zone", "a")) | {"nodeSelector": {"disk": "ssd"}}
    assert not matches_node_selection(spec, node(labels={"zone": "a"}))
    assert matches_node_selection(spec, node(labels={"zone": "a", "disk": "ssd"}))


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu", "value": "yes", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict, tolerated: bool) -> None:
    assert (untolerated_taint({"tolerations": [toleration]}, [TAINT]) is None) is tolerated


def test_a_preference_keeps_nobody_out() -> None:
    assert untolerated_taint({}, [TAINT | {"effect": "PreferNoSchedule"}]) is None


def test_cordon_keeps_out_all_but_those_that_tolerate_it() -> None:
    cordoned = node(unschedulable=True)
    refused = may_use({}, cordoned)
    assert refused is not None
    assert refused.reasons == ("node(s) were unschedulable",)
    daemon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert may_use({"tolerations": [daemon]}, cordoned) is None
