"""What is stateless, against reachability; why the rest stays; Algorithm 1 as printed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given

from penstock.data.partition.graph import Graph, Node, Trait
from penstock.data.partition.maximal import DataStage, maximal
from penstock.data.partition.state import Reason, stateless
from tests.data.partition.graphs import graphs, stays_in


def paths_from(graph: Graph, cause: str) -> dict[str, int]:
    """Edges of the shortest path to each node that descends from this one."""
    found, layer = {cause: 0}, {cause}
    while layer:
        layer = {
            node.name for node in graph.nodes if node.name not in found and layer & set(node.inputs)
        }
        distance = max(found.values()) + 1
        found |= dict.fromkeys(layer, distance)
    return found


@given(graph=graphs(max_nodes=12))
def test_what_stays_is_what_a_stateful_node_reaches_and_the_nearest_is_the_cause(
    graph: Graph,
) -> None:
    reasons = stateless(graph)
    assert list(reasons) == [node.name for node in graph.nodes]
    assert {name for name, reason in reasons.items() if reason} == stays_in(graph)
    stateful = {node.name: node for node in graph.nodes if node.traits}
    distances = {name: paths_from(graph, name) for name in stateful}
    for name, reason in reasons.items():
        if reason is not None:
            assert reason.trait in stateful[reason.cause].traits
            nearest = min(found[name] for found in distances.values() if name in found)
            assert distances[reason.cause][name] == nearest


@given(graph=graphs(max_nodes=12))
def test_what_the_paper_moves_is_all_but_what_descends_from_trained_nodes(graph: Graph) -> None:
    found = maximal(graph)
    moved = [name for stage in found.stages for name in stage.nodes]
    assert sorted([*found.train, *moved]) == sorted(node.name for node in graph.nodes)
    unable = {node.name for node in graph.nodes if min(node.seconds[:-1]) == math.inf}
    assert stays_in(graph, frozenset({Trait.TRAINED})) <= set(found.train)
    assert unable <= set(found.train)
    for place, stage in enumerate(found.stages):
        earlier = {name for one in found.stages[: place + 1] for name in one.nodes}
        for name in stage.nodes:
            node = graph.nodes[graph.index[name]]
            assert set(node.inputs) <= earlier
            assert node.seconds[graph.stages.index(stage.device)] == min(node.seconds[:-1])
    assert all(one.device != two.device for one, two in pairwise(found.stages))


def recommender() -> Graph:
    """The paper's Fig. 6, with the Unique of section 5.3 on an accelerator."""
    cpu, gpu, last = (1.0, math.inf, 1.0), (9.0, 0.1, 0.1), (math.inf, math.inf, 1.0)
    return Graph(
        ("cpu", "gpu", "training"),
        (
            Node("read", "input", (), 8, cpu),
            Node("hash", "StringHash", ("read",), 8, cpu),
            Node("unique", "Unique", ("hash",), 8, gpu),
            Node("table", "Variable", (), 0, last, frozenset({Trait.TRAINED})),
            Node("lookup", "EmbeddingLookUp", ("unique", "table"), 8, last),
            Node("validate", "op", ("unique",), 8, cpu),
        ),
    )


def test_the_papers_example_is_cut_before_the_lookup_and_by_device() -> None:
    found = maximal(recommender())
    assert found.train == ("table", "lookup")
    assert found.stages == (
        DataStage("cpu", ("read", "hash")),
        DataStage("gpu", ("unique",)),
        DataStage("cpu", ("validate",)),
    )


def test_the_cause_is_told() -> None:
    reason = stateless(recommender())["lookup"]
    assert reason == Reason(Trait.TRAINED, "table")
    assert reason is not None
    assert reason.of("lookup") == "lookup stays: descends from table, which is Trained"
    assert reason.of("table") == "table stays: Trained"


@pytest.mark.parametrize("trait", [trait for trait in Trait if trait is not Trait.TRAINED])
def test_the_paper_moves_what_is_stateful_in_another_way(trait: Trait) -> None:
    node = Node("one", "op", (), 0, (1.0, 1.0), frozenset({trait}))
    after = Node("two", "op", ("one",), 0, (1.0, 1.0))
    graph = Graph(("cpu", "training"), (node, after))
    assert maximal(graph).train == ()
    assert maximal(graph, frozenset(Trait)).train == ("one", "two")
    assert list(stateless(graph).values()) == [Reason(trait, "one")] * 2
