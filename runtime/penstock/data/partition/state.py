"""What of a step is stateless, and why the rest has to stay.

GoldMiner (SIGMOD 2023), Algorithm 1, lines 2 to 4: whatever descends from a stateful node belongs
to the training. As printed, line 4 excludes the data nodes from themselves (the train nodes are
meant), and the only state that it knows is what the backward pass updates. In ordinary programs
random numbers, collectives, statistics that a frozen layer still updates and constants that are
others in each step are state as well: see `Trait`, and ADR 0027.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.data.partition.graph import Graph, Trait

_PRECEDENCE: Final = {trait: place for place, trait in enumerate(Trait)}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node stays in the training.

    Attributes:
        trait: of the node that is the cause.
        cause: that node's name; the node itself, or the nearest that it descends from.
    """

    trait: Trait
    cause: str

    def of(self, name: str) -> str:
        """For people, about the node of that name."""
        if name == self.cause:
            return f"{name} stays: {self.trait}"
        return f"{name} stays: descends from {self.cause}, which is {self.trait}"


def stateless(
    graph: Graph, stateful: frozenset[Trait] = frozenset(Trait)
) -> Mapping[str, Reason | None]:
    """Of each node, in order, None where it may run elsewhere, or why it stays.

    Args:
        graph: of the step.
        stateful: the traits that count.

    Of several causes it is the nearest, by the number of edges; then the first in the graph.
    """
    found: dict[str, Reason | None] = {}
    distance: dict[str, int] = {}
    for node in graph.nodes:
        own = min(node.traits & stateful, key=_PRECEDENCE.__getitem__, default=None)
        if own is not None:
            found[node.name], distance[node.name] = Reason(own, node.name), 0
            continue
        nearest = min(
            (one for one in node.inputs if one in distance),
            key=lambda one: (distance[one], graph.index[_cause(found, one)]),
            default=None,
        )
        found[node.name] = found[nearest] if nearest is not None else None
        if nearest is not None:
            distance[node.name] = distance[nearest] + 1
    return found


def _cause(found: Mapping[str, Reason | None], name: str) -> str:
    reason = found[name]
    assert reason is not None
    return reason.cause
