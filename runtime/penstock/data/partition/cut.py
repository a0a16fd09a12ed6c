"""The cheapest partition of a step into ordered stages, exactly.

Each node runs in one stage, no earlier than its inputs. A partition costs the seconds of each node
in its stage, times what a second costs there, and the bytes of each output once for each boundary
between stages that it has to cross, times what a byte costs there. Workers of a stage are elastic,
so that work times price is what is paid. GoldMiner's Algorithm 1 moves all that it can; here what
is cheaper to compute in the training than to send stays there.

It is a minimum cut (`penstock.data.partition.flow`): a vertex for each node and boundary says
whether the node runs behind that boundary. Ties go to the later stage: what gains nothing does not
move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.data.partition.errors import CutError
from penstock.data.partition.flow import UNBOUNDED, Network
from penstock.data.partition.graph import Graph
from penstock.data.partition.state import Reason, stateless

_RESOLUTION_BITS: Final = 52
"""Of the whole number to which all prices of a graph together are scaled."""
_SOURCE: Final = 0
_SINK: Final = 1


@dataclass(frozen=True, slots=True)
class Prices:
    """What is paid, in any one currency; seconds of a step are one.

    Attributes:
        per_second: of a node's run, in each stage.
        per_byte: over each boundary: from each stage but the last to the next.

    Raises:
        CutError: one is negative or no number.
    """

    per_second: tuple[float, ...]
    per_byte: tuple[float, ...]

    def __post_init__(self) -> None:
        """Nothing is paid back."""
        for field in ("per_second", "per_byte"):
            for one in getattr(self, field):
                if not 0 <= one < math.inf:
                    raise CutError(f"{field}: {one}; must be a number and at least 0")


@dataclass(frozen=True, slots=True)
class Cut:
    """A partition.

    Attributes:
        stages: the place in the graph's stages where each node runs, in the graph's order.
        price: of it.
        crossing: over each boundary the names of the nodes whose output is sent, in order.
        sent_bytes: over each boundary.
    """

    stages: tuple[int, ...]
    price: float
    crossing: tuple[tuple[str, ...], ...]
    sent_bytes: tuple[int, ...]


def cheapest(
    graph: Graph, prices: Prices, reasons: Mapping[str, Reason | None] | None = None
) -> Cut:
    """The partition of the least price.

    Args:
        graph: of the step.
        prices: one for each of its stages and boundaries.
        reasons: of each node why it runs in the last stage, or None; by default `stateless`.

    Raises:
        CutError: other numbers of prices, or a node that can run nowhere.
    """
    stages = len(graph.stages)
    _require_prices(graph, prices)
    reasons = stateless(graph) if reasons is None else reasons
    costs = []
    for node in graph.nodes:
        paid = [a * b for a, b in zip(node.seconds, prices.per_second, strict=True)]
        paid = [math.inf if math.isinf(a) else b for a, b in zip(node.seconds, paid, strict=True)]
        if reasons[node.name] is not None:
            paid[:-1] = [math.inf] * (stages - 1)
        costs.append(paid)
    ranges = _ranges(graph, costs)
    return cut_at(graph, prices, _labels(graph, costs, prices.per_byte, ranges))


def cut_at(graph: Graph, prices: Prices, stages: Sequence[int]) -> Cut:
    """The partition with these stages, whatever it costs; ``inf`` if a node cannot run there.

    Args:
        graph: of the step.
        prices: one for each of its stages and boundaries.
        stages: of each node the place of its stage, in the graph's order.

    Raises:
        CutError: other numbers of prices or stages, or a node before one of its inputs.
    """
    _require_prices(graph, prices)
    if len(stages) != len(graph.nodes):
        raise CutError(f"stages: {len(stages)} of them; each of {len(graph.nodes)} nodes has one")
    price = 0.0
    crossing: list[list[str]] = [[] for _ in prices.per_byte]
    sent = [0] * len(prices.per_byte)
    for node, readers, stage in zip(graph.nodes, graph.readers, stages, strict=True):
        seconds = node.seconds[stage]
        price += math.inf if math.isinf(seconds) else seconds * prices.per_second[stage]
        if any(stages[reader] < stage for reader in readers):
            raise CutError(f"{node.name}: runs in {graph.stages[stage]}, behind what reads it")
        for boundary in range(stage, max((stages[reader] for reader in readers), default=stage)):
            crossing[boundary].append(node.name)
            sent[boundary] += node.size_bytes
            price += node.size_bytes * prices.per_byte[boundary]
    return Cut(tuple(stages), price, tuple(map(tuple, crossing)), tuple(sent))


def _require_prices(graph: Graph, prices: Prices) -> None:
    stages = len(graph.stages)
    if len(prices.per_second) != stages:
        raise CutError(f"per_second: {len(prices.per_second)}; there are {stages} stages")
    if len(prices.per_byte) != stages - 1:
        raise CutError(f"per_byte: {len(prices.per_byte)}; there are {stages - 1} boundaries")


def _ranges(graph: Graph, costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The first and the last stage in which each node can run, after its inputs and before others.

    Raises:
        CutError: there is none.
    """
    stages = len(graph.stages)
    first, last = [0] * len(costs), [0] * len(costs)
    for place, (node, paid) in enumerate(zip(graph.nodes, costs, strict=True)):
        earliest = max([first[graph.index[one]] for one in node.inputs], default=0)
        able = [stage for stage in range(earliest, stages) if paid[stage] < math.inf]
        if not able:
            raise CutError(f"{node.name}: can run in no stage that may come behind its inputs")
        first[place] = able[0]
    for place in range(len(costs) - 1, -1, -1):
        latest = min([last[reader] for reader in graph.readers[place]], default=stages - 1)
        # There is one: all nodes can run in their first stages.
        last[place] = next(
            stage for stage in range(latest, -1, -1) if costs[place][stage] < math.inf
        )
    return list(zip(first, last, strict=True))


def _labels(
    graph: Graph,
    costs: Sequence[Sequence[float]],
    per_byte: Sequence[float],
    ranges: Sequence[tuple[int, int]],
) -> list[int]:
    """The stage of each node in the cheapest partition."""
    boundaries = len(per_byte)
    # Of each node and boundary the vertex that is the source's where it runs behind the boundary.
    behind: list[list[int]] = []
    vertices = 2
    for first, last in ranges:
        row = [_SOURCE] * first + [_SINK] * (boundaries - first)
        row[first:last] = range(vertices, vertices + last - first)
        vertices += last - first
        behind.append(row)
    joins = [
        (place, boundary, [behind[reader][boundary] for reader in readers])
        for place, readers in enumerate(graph.readers)
        for boundary in range(boundaries)
        if readers and behind[place][boundary] != _SOURCE
    ]
    network = Network(vertices + len(joins))
    scaled = _scale(graph, costs, per_byte)
    for row, paid, (first, last) in zip(behind, costs, ranges, strict=True):
        chain = [_SOURCE, *row[first:last], _SINK]
        for stage in range(first, last + 1):
            tail, head = chain[stage - first], chain[stage - first + 1]
            back = UNBOUNDED if tail != _SOURCE and head != _SINK else 0
            if first < last:
                network.add(tail, head, scaled(paid[stage]), back)
    for number, (place, boundary, readers) in enumerate(joins):
        own = behind[place][boundary]
        for reader in readers:
            if own != _SINK and reader != _SOURCE:
                network.add(own, reader, UNBOUNDED)
        paid_bytes = scaled(graph.nodes[place].size_bytes * per_byte[boundary])
        later = {reader for reader in readers if reader != _SINK}
        if not paid_bytes or not later:
            continue
        join = _SOURCE if _SOURCE in later else min(later)
        if join != _SOURCE and len(later) > 1:
            join = vertices + number
            for reader in later:
                network.add(reader, join, UNBOUNDED)
        network.add(join, own, paid_bytes)
    total, side = network.cut(_SOURCE, _SINK)
    assert total < UNBOUNDED, "the first stages of all nodes are a partition"
    return [
        first + sum(side[one] for one in row[first:last])
        for row, (first, last) in zip(behind, ranges, strict=True)
    ]


class _Scale:
    """Prices as whole numbers, of which all together are below two to the `_RESOLUTION_BITS`.

    By a power of two: what is a sum of others stays that, so that a tie stays a tie.
    """

    __slots__ = ("_factor",)

    def __init__(self, total: float) -> None:
        exponent = _RESOLUTION_BITS - math.frexp(total)[1]
        self._factor = math.ldexp(1.0, min(exponent, 1000)) if total else 0.0

    def __call__(self, price: float) -> int:
        return UNBOUNDED if math.isinf(price) else round(price * self._factor)


def _scale(graph: Graph, costs: Sequence[Sequence[float]], per_byte: Sequence[float]) -> _Scale:
    running = sum(sum(one for one in paid if one < math.inf) for paid in costs)
    total = running + float(sum(node.size_bytes for node in graph.nodes)) * sum(per_byte)
    if math.isinf(total):
        raise CutError("the prices of all nodes together are no number; use a smaller unit")
    return _Scale(total)
