"""GoldMiner's own partition: all that can move does (SIGMOD 2023, section 3.2, Algorithm 1).

The reference that `penstock.data.partition.cut` is compared with. It is greedy, in two ways: it
asks neither what the values that cross weigh, nor whether a stage is worth its place. The paper
gives no definition of ``bfs_within_device``; here it takes what is ready of one device, and what
becomes ready by that on the same device, so that stages are in the order of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.data.partition.graph import Graph, Trait
from penstock.data.partition.state import stateless

PRINTED: Final = frozenset({Trait.TRAINED})
"""The only state that Algorithm 1 knows: the variables that the backward pass updates."""


@dataclass(frozen=True, slots=True)
class DataStage:
    """Some of the nodes that move, and where they run: a stage of the graph other than the last."""

    device: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """What Algorithm 1 returns: the nodes of the training, and the data stages in their order."""

    train: tuple[str, ...]
    stages: tuple[DataStage, ...]


def maximal(graph: Graph, stateful: frozenset[Trait] = PRINTED) -> Partition:
    """Algorithm 1.

    A node's device is the stage of data workers in which it is fastest; one that can run in none of
    them is a node of the training, as are those that descend from it.

    Args:
        graph: of the step.
        stateful: the traits that count; `PRINTED`: as in the paper.
    """
    reasons = stateless(graph, stateful)
    train: dict[str, None] = {}
    waiting: dict[str, str] = {}  # those that are in no stage yet, and their devices
    for node in graph.nodes:
        seconds = node.seconds[:-1]
        fastest = min(seconds, default=float("inf"))
        unable = fastest == float("inf") or any(one in train for one in node.inputs)
        if reasons[node.name] is not None or unable:
            train[node.name] = None
        else:
            waiting[node.name] = graph.stages[seconds.index(fastest)]
    stages: list[DataStage] = []
    while waiting:
        stages.append(_within_device(graph, waiting))
        for name in stages[-1].nodes:
            del waiting[name]
    return Partition(tuple(train), tuple(stages))


def _within_device(graph: Graph, waiting: dict[str, str]) -> DataStage:
    """The first node that is ready, and all that is or becomes ready on its device."""
    device = next(iter(waiting.values()))  # in the graph's order: the first is ready
    taken: dict[str, None] = {}
    for name, own in waiting.items():
        inputs = graph.nodes[graph.index[name]].inputs
        if own == device and all(one in taken or one not in waiting for one in inputs):
            taken[name] = None
    return DataStage(device, tuple(taken))
