"""The cheapest partition: against all partitions of small graphs, and what it refuses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.partition.cut import CutError, Prices, cheapest, cut_at
from penstock.data.partition.graph import Graph, Node, Trait
from tests.data.partition.graphs import best_by_force, graphs, random_prices


@settings(max_examples=150)
@given(graph=graphs(), seed=st.integers(0, 2**32))
def test_no_partition_is_cheaper_and_ties_move_least(graph: Graph, seed: int) -> None:
    prices = random_prices(random.Random(seed))
    cut = cheapest(graph, prices)
    least, best = best_by_force(graph, prices)
    assert cut.price == pytest.approx(least, abs=1e-9)
    assert cut == cut_at(graph, prices, cut.stages)
    assert cut.stages == tuple(map(max, zip(*best, strict=True)))


def test_what_costs_the_same_is_a_tie_though_the_sum_is_no_power_of_two() -> None:
    """Three quarters here, or a quarter and a half there: with rounded prices one seemed less."""
    for odd in (0.015625 * one for one in range(1, 200, 2)):
        other = Node("other", "op", (), 0, (math.inf, math.inf, odd))
        node = Node("node", "op", (), 3, (0.5, math.inf, 1.25))
        reader = Node("reader", "op", ("node",), 0, (math.inf, math.inf, 0.5))
        graph = Graph(("cpu", "gpu", "training"), (other, node, reader))
        assert cheapest(graph, Prices((1.0, 1.0, 1.0), (0.125, 0.125))).stages == (2, 2, 2)


def chain(*nodes: tuple[int, tuple[float, float, float]]) -> Graph:
    made: list[Node] = []
    for size, seconds in nodes:
        before = (made[-1].name,) if made else ()
        made.append(Node(f"n{len(made)}", "op", before, size, seconds))
    return Graph(("cpu", "gpu", "training"), tuple(made))


EVEN = Prices((1.0, 1.0, 1.0), (0.1, 0.1))


def test_bytes_are_paid_once_a_boundary_however_many_read_them() -> None:
    source = Node("source", "input", (), 10, (0.0, math.inf, 5.0))
    readers = [Node(f"r{one}", "op", ("source",), 0, (9.0, 9.0, 0.1)) for one in range(3)]
    graph = Graph(("cpu", "gpu", "training"), (source, *readers))
    cut = cheapest(graph, EVEN)
    assert cut.stages == (0, 2, 2, 2)
    assert cut.crossing == (("source",), ("source",))
    assert cut.sent_bytes == (10, 10)
    assert cut.price == pytest.approx(0.3 + 2.0)


def test_a_cast_that_makes_four_times_the_bytes_stays_behind_the_boundary() -> None:
    cast = chain((10, (0.0, math.inf, math.inf)), (40, (0.1, 0.1, 0.2)), (0, (9.0, 9.0, 1.0)))
    assert cheapest(cast, EVEN).stages == (0, 2, 2)
    free = Prices((1.0, 1.0, 1.0), (0.0, 0.0))
    assert cheapest(cast, free).stages == (0, 1, 2)


def test_what_is_stateful_stays_whatever_it_costs() -> None:
    drawn = Node("drawn", "rand", (), 0, (0.0, 0.0, 1e6), frozenset({Trait.RANDOM}))
    after = Node("after", "mul", ("drawn",), 0, (0.0, 0.0, 1e6))
    cut = cheapest(Graph(("cpu", "gpu", "training"), (drawn, after)), EVEN)
    assert cut.stages == (2, 2)


def test_a_node_that_no_stage_is_left_for_is_named() -> None:
    backward = chain((0, (math.inf, 1.0, math.inf)), (0, (1.0, math.inf, math.inf)))
    with pytest.raises(CutError, match="n1: can run in no stage that may come behind"):
        cheapest(backward, EVEN)
    # the middle one has to skip a stage, and the last cannot follow
    middle = (0, (1.0, math.inf, 1.0))
    skipping = chain((0, (math.inf, 1.0, math.inf)), middle, (0, (math.inf, 1.0, math.inf)))
    with pytest.raises(CutError, match="n2: can run in no stage"):
        cheapest(skipping, EVEN)
    trained = Node("w", "mul", (), 0, (1.0, 1.0, math.inf), frozenset({Trait.TRAINED}))
    with pytest.raises(CutError, match="w: can run in no stage"):
        cheapest(Graph(("cpu", "gpu", "training"), (trained,)), EVEN)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (lambda: Prices((1.0, 1.0), (0.1, 0.1)), "per_second: 2; there are 3 stages"),
        (lambda: Prices((1.0, 1.0, 1.0), (0.1,)), "per_byte: 1; there are 2 boundaries"),
        (lambda: Prices((1.0, -1.0, 1.0), (0.1, 0.1)), "per_second: -1.0; must be a number"),
        (lambda: Prices((1.0, 1.0, 1.0), (0.1, math.nan)), "per_byte: nan; must be a number"),
        (lambda: Prices((1e308, 1e308, 1e308), (0.0, 0.0)), "no number; use a smaller unit"),
    ],
)
def test_prices_that_are_none_are_refused(prices: Callable[[], Prices], message: str) -> None:
    graph = chain((1, (1.0, 1.0, 2.0)), (1, (1.0, 1.0, 2.0)))
    with pytest.raises(CutError, match=message):
        cheapest(graph, prices())


def test_stages_that_go_backwards_have_no_price() -> None:
    graph = chain((1, (1.0, 1.0, 1.0)), (1, (1.0, 1.0, 1.0)))
    with pytest.raises(CutError, match="n0: runs in training, behind what reads it"):
        cut_at(graph, EVEN, (2, 0))
    with pytest.raises(CutError, match="stages: 1 of them"):
        cut_at(graph, EVEN, (2,))
