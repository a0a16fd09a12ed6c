"""Which nodes come and go."""

from __future__ import annotations

import pytest

from penstock.scheduler.capacity.change import failed, resized
from penstock.scheduler.capacity.workload import HOSTNAME
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import Amounts
from tests.scheduler.capacity.clusters import GPU, amounts, cluster, hosted, pods


def test_new_nodes_are_like_the_most_common_and_lose_to_daemons_what_each_does() -> None:
    zone = {"zone": "a"}
    there = [
        hosted("a", 8, 2, labels={**zone, HOSTNAME: "a"}, others=Amounts(700, 30), other_pods=3),
        hosted("b", 8, 2, labels={**zone, HOSTNAME: "b"}, others=Amounts(500, 90), other_pods=2),
        hosted("big", 64, 8),
        hosted("new-1", 4, cordoned=True),
    ]
    change = resized(cluster(there), 2)
    assert [one.node.name for one in change.added] == ["new-2", "new-3"], "names are not taken"
    [first, second] = change.added
    assert first.node.allocatable == amounts(8, 2)
    assert (first.others, first.other_pods) == (Amounts(500, 30), 2)
    assert first.node.labels == {"zone": "a", HOSTNAME: "new-2"}
    assert second.node.labels[HOSTNAME] == "new-3"


def test_nodes_of_a_shape_of_ones_own_have_the_labels_of_those_with_the_same_accelerators() -> None:
    there = [
        hosted("a", 8, 2, labels={"zone": "gpus"}, others=Amounts(100, 0), other_pods=1),
        hosted("b", 8, labels={"zone": "cpus"}),
        hosted("c", 8, labels={"zone": "cpus"}),
    ]
    [one] = resized(cluster(there), 1, amounts(96, 8)).added
    assert one.node.allocatable == amounts(96, 8)
    assert one.node.labels == {"zone": "gpus"}
    assert one.others == Amounts(100, 0)
    [alone] = resized(cluster([]), 1, Amounts(1000, 1, ((GPU, 1),))).added
    assert alone.node.labels == {}


def test_those_that_go_are_the_ones_whose_loss_takes_least_from_jobs() -> None:
    there = [hosted(name, 8, 2) for name in "abc"]
    workload = cluster(there, pods("j", 2, on="a"), pods("k", 1, on="b"))
    assert resized(workload, -1).removed == ("c",)
    assert resized(workload, -2).removed == ("c", "b")


def test_a_node_that_fails_is_named() -> None:
    assert failed(cluster([hosted("a")]), "a").removed == ("a",)


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "nodes=0: "), (5000, "nodes=5000: "), (-3, "has 2 nodes of that shape")],
)
def test_numbers_that_make_no_sense_are_refused(count: int, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        resized(cluster([hosted("a"), hosted("b"), hosted("c", cordoned=True)]), count)


def test_a_node_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no node has this name"):
        failed(cluster([hosted("a")]), "z")
    with pytest.raises(InvalidRequestError, match="say the shape"):
        resized(cluster([hosted("a", cordoned=True)]), 1)
