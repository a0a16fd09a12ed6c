"""Whether the cheapest cut is the cheapest, and how long it takes.

Small graphs are compared with every assignment of their nodes to stages, priced by the definition
and not by `penstock.data.partition.cut`. Large ones are chains with shortcuts, of which half of the
nodes, or the last tenth, can run in the training alone; seconds are of the processor, the best of
three, since other programs may run beside this one.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.goals import Goal, at_most
from penstock.data.partition.cut import Prices, cheapest
from penstock.data.partition.graph import Graph, Node, Trait
from penstock.data.partition.maximal import maximal
from penstock.data.partition.state import Reason, stateless

GRAPHS: Final = 2_000
SIZES: Final = (300, 3_000, 10_000)
GOAL_SIZE: Final = 3_000
GOAL_SECONDS: Final = 1.5
REPEATS: Final = 3
STAGES: Final = ("cpu", "gpu", "training")


def run(seed: int, graphs: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures, under the names that ``cuts`` has, and their goals."""
    chance = random.Random(seed)
    wrong, dearer = 0, 0
    for _ in range(graphs):
        differs, maximal_is_dearer = _compare(chance)
        wrong += differs
        dearer += maximal_is_dearer
    figures: dict[str, Any] = {"graphs": graphs, "wrong": wrong, "maximal_dearer": dearer}
    goals = [at_most(f"cuts that are not the cheapest, of {graphs}", 0, wrong)]
    for size in SIZES:
        for name, trained in (("", size // 2), ("_hard", size - size // 10)):
            graph, prices = _large(chance, size, trained)
            seconds = _seconds(graph, prices)
            figures[f"seconds_{size}{name}"] = round(seconds, 3)
            if size == GOAL_SIZE:
                what = f"CPU seconds, {size} nodes in {len(STAGES)} stages{name.replace('_', ', ')}"
                goals.append(at_most(what, GOAL_SECONDS, round(seconds, 3)))
    return figures, goals


def _compare(chance: random.Random) -> tuple[bool, bool]:
    """Whether the cut of a small graph is wrong, and whether Algorithm 1's costs more."""
    stages = chance.choice(((STAGES[0], STAGES[2]), STAGES))
    graph = _small(chance, stages)
    prices = Prices(
        tuple(chance.uniform(0.1, 2) for _ in stages),
        tuple(chance.choice((0.0, chance.uniform(0.1, 1))) for _ in stages[1:]),
    )
    reasons = stateless(graph)
    every = itertools.product(range(len(stages)), repeat=len(graph.nodes))
    least = min(_price(graph, prices, reasons, one) for one in every)
    cut = cheapest(graph, prices)
    own = _price(graph, prices, reasons, cut.stages)
    wrong = abs(cut.price - least) > 1e-9 or abs(own - least) > 1e-9
    of = dict.fromkeys(maximal(graph, frozenset(Trait)).train, len(stages) - 1)
    for stage in maximal(graph, frozenset(Trait)).stages:
        of |= dict.fromkeys(stage.nodes, stages.index(stage.device))
    greedy = _price(graph, prices, reasons, [of[node.name] for node in graph.nodes])
    return wrong, greedy > least + 1e-9


def _price(graph: Graph, prices: Prices, reasons: Any, stages: Sequence[int]) -> float:
    """By definition, each value on its own; ``inf`` where a partition is none."""
    last = len(graph.stages) - 1
    of = {node.name: stage for node, stage in zip(graph.nodes, stages, strict=True)}
    total = 0.0
    for node in graph.nodes:
        own, reason = of[node.name], reasons[node.name]
        assert reason is None or isinstance(reason, Reason)
        if (reason is not None and own < last) or math.isinf(node.seconds[own]):
            return math.inf
        if any(of[name] > own for name in node.inputs):
            return math.inf
        readers = [of[one.name] for one in graph.nodes if node.name in one.inputs]
        crossed = range(own, max(readers, default=own))
        total += node.seconds[own] * prices.per_second[own]
        total += sum(node.size_bytes * prices.per_byte[boundary] for boundary in crossed)
    return total


def _small(chance: random.Random, stages: tuple[str, ...]) -> Graph:
    made: list[Node] = []
    for number in range(chance.randint(2, 7)):
        inputs = tuple(one.name for one in made if chance.random() < 0.4)
        elsewhere = [chance.choice((0.5, 1.0, 2.0, 5.0, math.inf)) for _ in stages[1:]]
        traits = frozenset({chance.choice(list(Trait))} if chance.random() < 0.1 else ())
        seconds = (*elsewhere, chance.uniform(0.1, 6))
        made.append(Node(f"n{number}", "op", inputs, chance.randrange(6), seconds, traits))
    return Graph(stages, tuple(made))


def _large(chance: random.Random, size: int, trained: int) -> tuple[Graph, Prices]:
    """A chain with shortcuts; from node ``trained`` on nothing can move."""
    inputs: list[set[int]] = [set() for _ in range(size)]
    for number in range(size):
        for later in (number + 1, number + chance.randint(1, 20)):
            if later < size:
                inputs[later].add(number)
    nodes = [
        Node(
            f"n{number}",
            "op",
            tuple(f"n{one}" for one in sorted(inputs[number])),
            chance.randrange(5_000_000),
            (chance.uniform(0.08, 0.8), chance.uniform(0.09, 0.9), chance.uniform(0.1, 1.0)),
            frozenset({Trait.TRAINED} if number >= trained else ()),
        )
        for number in range(size)
    ]
    return Graph(STAGES, tuple(nodes)), Prices((1.0, 1.0, 1.0), (1e-7, 1e-7))


def _seconds(graph: Graph, prices: Prices) -> float:
    best = math.inf
    for _ in range(REPEATS):
        began = time.process_time()
        cheapest(graph, prices)
        best = min(best, time.process_time() - began)
    return best
