"""Graphs of steps: what is none, and the canonical JSON form."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given

from penstock.data.partition.errors import GraphError
from penstock.data.partition.graph import Graph, Node, Trait
from tests.data.partition.graphs import graphs

RAW = Node("raw", "input", (), 12, (0.0, math.inf, 0.5))
SUM = Node("sum", "add", ("raw", "raw"), 4, (1.0, 2.0, 3.0), frozenset({Trait.RANDOM}))
GRAPH = Graph(("cpu", "gpu", "training"), (RAW, SUM))


@given(graph=graphs(max_nodes=12))
def test_json_and_back_is_the_same_and_canonical(graph: Graph) -> None:
    text = graph.to_json()
    assert Graph.from_json(text) == graph
    assert Graph.from_json(text).to_json() == text
    shuffled = json.dumps(json.loads(text), indent=1, sort_keys=False)
    assert Graph.from_json(shuffled).to_json() == text


def test_the_json_form() -> None:
    assert GRAPH.to_json() == (
        '{"format":1,"nodes":['
        '{"inputs":[],"kind":"input","name":"raw","seconds":[0.0,null,0.5],"size_bytes":12,'
        '"traits":[]},'
        '{"inputs":["raw","raw"],"kind":"add","name":"sum","seconds":[1.0,2.0,3.0],"size_bytes":4,'
        '"traits":["Random"]}],"stages":["cpu","gpu","training"]}'
    )


def test_readers_are_named_once() -> None:
    assert GRAPH.readers == ((1,), ())


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (replace(SUM, name=""), "a node without a name"),
        (replace(SUM, name="raw"), "raw: is there twice"),
        (replace(SUM, inputs=("sum",)), "sum: inputs: 'sum' does not stand before it"),
        (replace(SUM, inputs=("none",)), "sum: inputs: 'none' does not stand before it"),
        (replace(SUM, size_bytes=-1), "sum: size_bytes: -1; must be at least 0"),
        (replace(SUM, seconds=(1.0,)), "sum: seconds: 1 of them; each of the 3 stages needs one"),
        (replace(SUM, seconds=(1.0, -1.0, 1.0)), "must be at least 0, or inf"),
        (replace(SUM, seconds=(1.0, math.nan, 1.0)), "must be at least 0, or inf"),
        (replace(SUM, seconds=(math.inf,) * 3), "able to run in some stage"),
    ],
)
def test_a_node_that_is_none_is_named(node: Node, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph(GRAPH.stages, (RAW, node))


@pytest.mark.parametrize("stages", [(), ("cpu", "cpu", "training"), ("cpu", "gpu", "")])
def test_stages_have_names_of_their_own(stages: tuple[str, ...]) -> None:
    with pytest.raises(GraphError, match="stages:"):
        Graph(stages, ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"format"', '["format"', "cannot be read"),
        ('"format":1', '"format":2', "format: 2; this version reads 1"),
        ('"format":1,', "", "the graph: .*; must be an object with just format, nodes, stages"),
        ('"kind":"add",', "", "a node: .*; must be an object with just"),
        ('"size_bytes":4', '"size_bytes":4.5', "sum: size_bytes: 4.5; must be a whole number"),
        ('"size_bytes":4', '"size_bytes":true', "sum: size_bytes: True; must be a whole number"),
        ("[1.0,2.0,3.0]", '["1",2,3]', "sum: seconds: .*; must be a list of numbers and null"),
        ('["Random"]', '["Dice"]', "sum: traits: 'Dice' .*; there are Trained, Mutated"),
        ('["raw","raw"]', '"raw"', "sum: inputs: 'raw'; must be text"),
        ('"name":"sum"', '"name":7', "a node: name and kind"),
    ],
)
def test_json_that_is_no_graph_is_refused(old: str, new: str, message: str) -> None:
    text = GRAPH.to_json()
    assert old in text
    with pytest.raises(GraphError, match=message):
        Graph.from_json(text.replace(old, new))
