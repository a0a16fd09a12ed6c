"""Random graphs of steps, and what a partition of one costs, written down without any flow.

All seconds and prices are whole numbers of some power of two, so that what costs the same has the
same sum, and ties are ties.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from penstock.data.partition.cut import Prices
from penstock.data.partition.graph import Graph, Node, Trait

STAGES = ("cpu", "gpu", "training")


def random_graph(
    chance: random.Random, nodes: int, stages: int = 3, *, traits: bool = True
) -> Graph:
    """A graph of which each node can run in the last stage, and most in others."""
    made: list[Node] = []
    for number in range(nodes):
        inputs = [one.name for one in made if chance.random() < 0.4]
        seconds = [chance.choice([0.0, 0.5, 1.0, 2.0, math.inf]) for _ in range(stages - 1)]
        own = frozenset({chance.choice(list(Trait))}) if traits and chance.random() < 0.1 else ()
        made.append(
            Node(
                f"n{number}",
                "op",
                tuple(inputs),
                chance.randrange(6),
                (*seconds, chance.randrange(6, 384) / 64),
                frozenset(own),
            )
        )
    return Graph(STAGES[-stages:], tuple(made))


def random_prices(chance: random.Random, stages: int = 3) -> Prices:
    return Prices(
        tuple(chance.choice([0.5, 1.0, 2.0]) for _ in range(stages)),
        tuple(chance.choice([0.0, 0.25, 1.0]) for _ in range(stages - 1)),
    )


def graphs(max_nodes: int = 6, stages: int = 3) -> st.SearchStrategy[Graph]:
    return st.builds(
        lambda seed, nodes: random_graph(random.Random(seed), nodes, stages),
        st.integers(0, 2**32),
        st.integers(0, max_nodes),
    )


def price_of(graph: Graph, prices: Prices, stages: Sequence[int], stays: set[str]) -> float:
    """What it costs by definition; ``inf`` where it may not be."""
    of = {node.name: stage for node, stage in zip(graph.nodes, stages, strict=True)}
    total = 0.0
    for node in graph.nodes:
        own = of[node.name]
        if node.name in stays and own < len(graph.stages) - 1:
            return math.inf
        if any(of[name] > own for name in node.inputs) or math.isinf(node.seconds[own]):
            return math.inf
        total += node.seconds[own] * prices.per_second[own]
        for boundary, per_byte in enumerate(prices.per_byte):
            if own <= boundary and any(
                node.name in reader.inputs and of[reader.name] > boundary for reader in graph.nodes
            ):
                total += node.size_bytes * per_byte
    return total


def stays_in(graph: Graph, traits: frozenset[Trait] = frozenset(Trait)) -> set[str]:
    """Which nodes are reached from a stateful one: by paths, with no order of nodes assumed."""
    found = {node.name for node in graph.nodes if node.traits & traits}
    while True:
        more = {node.name for node in graph.nodes if found & set(node.inputs)} - found
        if not more:
            return found
        found |= more


def best_by_force(graph: Graph, prices: Prices) -> tuple[float, list[tuple[int, ...]]]:
    """The least price of all assignments, and those that have it but for rounding."""
    stays = stays_in(graph)
    every = itertools.product(range(len(graph.stages)), repeat=len(graph.nodes))
    found = [(price_of(graph, prices, one, stays), one) for one in every]
    least = min(price for price, _ in found)
    return least, [one for price, one in found if price <= least + 1e-9]
