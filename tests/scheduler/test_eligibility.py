from __future__ import annotations

import pytest

from penstock.scheduler.eligibility import NodeTraits, allows
from penstock.scheduler.request import Constraints, Expression, Taint, Term, Toleration

NODE = NodeTraits(
    "n1", {"zone": "a", "size": "8"}, (Taint("gpu", "yes"), Taint("old", "", "PreferNoSchedule"))
)
TOLERANT = (Toleration("gpu", "Exists"),)


def expression(operator: str, *values: str, key: str = "zone") -> Constraints:
    term = Term(labels=(Expression(key, operator, values),))
    return Constraints(affinity=(term,), tolerations=TOLERANT)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "yes"), False),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
        (Toleration("gpu", "Exists", effect="NoSchedule"), True),
    ],
)
def test_hard_taints_must_be_tolerated(toleration: Toleration, expected: bool) -> None:
    assert allows(NODE, Constraints(tolerations=(toleration,))) is expected


def test_an_untolerated_taint_keeps_pods_away() -> None:
    assert not allows(NODE, Constraints())


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        (expression("In", "a", "b"), True),
        (expression("In", "b"), False),
        (expression("NotIn", "b"), True),
        (expression("NotIn", "b", key="absent"), True),
        (expression("Exists"), True),
        (expression("DoesNotExist"), False),
        (expression("Gt", "7", key="size"), True),
        (expression("Lt", "7", key="size"), False),
        (expression("Gt", "many", key="size"), False),
        (expression("Unheard", "a"), False),
    ],
)
def test_required_affinity_filters(constraints: Constraints, expected: bool) -> None:
    assert allows(NODE, constraints) is expected


def test_terms_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    here = Term(fields=(Expression("metadata.name", "In", ("n1",)),))
    assert allows(NODE, Constraints(affinity=(Term(), here), tolerations=TOLERANT))
    assert not allows(NODE, Constraints(affinity=(Term(),), tolerations=TOLERANT))
    assert not allows(NODE, Constraints(affinity=(), tolerations=TOLERANT))


def test_the_node_selector_asks_for_every_label() -> None:
    selector = (("size", "8"), ("zone", "a"))
    assert allows(NODE, Constraints(node_selector=selector, tolerations=TOLERANT))
    assert not allows(NODE, Constraints(node_selector=(("zone", "b"),), tolerations=TOLERANT))
