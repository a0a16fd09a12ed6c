"""The dataflow graph of one training step, as far as a partition has to know it.

A node is an operation or a whole frozen module, with the bytes of what it puts out and the seconds
that it takes in each stage. Stages are the kinds of places where a node may run, in the order in
which a batch passes them: those of data workers first (``cpu``, ``gpu``), the training last.

Guarantees of a `Graph`: names are unique and every node stands after its inputs, so that it has no
cycle and one pass in order is enough for whoever walks it. Its JSON form is canonical: equal graphs
have equal text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Self

from penstock.data.partition.errors import GraphError

FORMAT: Final = 1
MAX_NODES: Final = 100_000
MAX_STAGES: Final = 8
_NODE_FIELDS: Final = ("inputs", "kind", "name", "seconds", "size_bytes", "traits")


class Trait(StrEnum):
    """What makes a node stateful: why it cannot run before its step comes.

    Attributes:
        TRAINED: reads what the backward pass or the optimizer updates.
        MUTATED: reads or writes a storage that any operation of a step writes.
        RANDOM: draws from a generator of the program.
        COLLECTIVE: speaks with other training processes.
        OPAQUE: nobody can say what it reads.
        VARYING: has a constant that is another one in each step.
        PINNED: the program, or a person, looks at its result, or says that it stays.
    """

    TRAINED = "Trained"
    MUTATED = "Mutated"
    RANDOM = "Random"
    COLLECTIVE = "Collective"
    OPAQUE = "Opaque"
    VARYING = "Varying"
    PINNED = "Pinned"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a step.

    Attributes:
        name: unique in the graph.
        kind: what it does, for people and for whoever runs it: ``aten.mul.Tensor``.
        inputs: names of the nodes whose output it reads; one may be there twice.
        size_bytes: of its output.
        seconds: in each stage of the graph; ``inf`` where it cannot run.
        traits: why it is stateful; none: it is not by itself.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    size_bytes: int = 0
    seconds: tuple[float, ...] = ()
    traits: frozenset[Trait] = frozenset()


@dataclass(frozen=True)
class Graph:
    """A step: its nodes in an order in which they can run.

    Attributes:
        stages: names, in the order in which a batch passes them; the last is the training.
        nodes: each after its inputs.

    Raises:
        GraphError: it is none; says which node, field and rule.
    """

    stages: tuple[str, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Check all of it."""
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise GraphError(f"stages: {len(self.stages)} of them; there are 1 to {MAX_STAGES}")
        if len(set(self.stages)) < len(self.stages) or not all(self.stages):
            raise GraphError(f"stages: {list(self.stages)}; each needs a name of its own")
        if len(self.nodes) > MAX_NODES:
            raise GraphError(f"nodes: {len(self.nodes)} of them; there are at most {MAX_NODES}")
        known: set[str] = set()
        for node in self.nodes:
            _check(node, known, len(self.stages))
            known.add(node.name)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The place of each node in `nodes`, by name."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Of each node the places of those that read it, each once, ascending."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for place, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                found[self.index[name]].append(place)
        return tuple(map(tuple, found))

    def to_json(self) -> str:
        """Its canonical text; seconds where a node cannot run are ``null``."""
        nodes = [
            {
                "name": node.name,
                "kind": node.kind,
                "inputs": node.inputs,
                "size_bytes": node.size_bytes,
                "seconds": [None if math.isinf(one) else float(one) for one in node.seconds],
                "traits": sorted(node.traits),
            }
            for node in self.nodes
        ]
        whole = {"format": FORMAT, "stages": self.stages, "nodes": nodes}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The graph of such a text.

        Raises:
            GraphError: it is none, or one of another format.
        """
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise GraphError(f"a graph's JSON cannot be read: {error}") from None
        _require_fields(whole, ("format", "nodes", "stages"), "the graph")
        if whole["format"] != FORMAT:
            raise GraphError(f"format: {whole['format']!r}; this version reads {FORMAT}")
        stages = _texts(whole["stages"], "the graph: stages")
        if not isinstance(whole["nodes"], list):
            raise GraphError("nodes: must be a list")
        return cls(stages, tuple(map(_node_of, whole["nodes"])))


def _check(node: Node, known: set[str], stages: int) -> None:
    """Raises GraphError; ``known``: the names before it."""
    name = node.name
    if not name:
        raise GraphError("a node without a name; each needs one")
    if name in known:
        raise GraphError(f"{name}: is there twice; names are unique")
    for one in node.inputs:
        if one not in known:
            raise GraphError(f"{name}: inputs: {one!r} does not stand before it; put it there")
    if node.size_bytes < 0:
        raise GraphError(f"{name}: size_bytes: {node.size_bytes}; must be at least 0")
    if len(node.seconds) != stages:
        raise GraphError(
            f"{name}: seconds: {len(node.seconds)} of them; each of the {stages} stages needs one"
        )
    if any(math.isnan(one) or one < 0 for one in node.seconds):
        raise GraphError(f"{name}: seconds: {list(node.seconds)}; must be at least 0, or inf")
    if all(math.isinf(one) for one in node.seconds):
        raise GraphError(f"{name}: seconds: all inf; it must be able to run in some stage")


def _node_of(value: Any) -> Node:
    _require_fields(value, _NODE_FIELDS, "a node")
    name, kind = _texts([value["name"], value["kind"]], "a node: name and kind")
    size = value["size_bytes"]
    if isinstance(size, bool) or not isinstance(size, int):
        raise GraphError(f"{name}: size_bytes: {size!r}; must be a whole number")
    seconds = value["seconds"]
    if not isinstance(seconds, list) or any(
        isinstance(one, bool) or not isinstance(one, int | float | None) for one in seconds
    ):
        raise GraphError(f"{name}: seconds: {seconds!r}; must be a list of numbers and null")
    try:
        traits = frozenset(map(Trait, _texts(value["traits"], f"{name}: traits")))
    except ValueError as error:
        known = ", ".join(Trait)
        raise GraphError(f"{name}: traits: {error}; there are {known}") from None
    return Node(
        name=name,
        kind=kind,
        inputs=_texts(value["inputs"], f"{name}: inputs"),
        size_bytes=size,
        seconds=tuple(math.inf if one is None else float(one) for one in seconds),
        traits=traits,
    )


def _require_fields(value: Any, fields: Iterable[str], what: str) -> None:
    wanted = sorted(fields)
    if not isinstance(value, dict) or sorted(value) != wanted:
        got = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise GraphError(f"{what}: {got}; must be an object with just {', '.join(wanted)}")


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise GraphError(f"{what}: {value!r}; must be text")
    return tuple(value)
