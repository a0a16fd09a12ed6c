"""What of a recorded step moves: the step as a graph, cut by seconds and bytes.

A value that crosses has memory of its own: where the cheapest cut goes through views of a value,
the value itself crosses and the views are made in the program. So nothing that the program writes
to later can be read in two places.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.partition.cut import Prices, cheapest
from penstock.data.partition.graph import Graph, Node, Trait
from penstock.data.partition.state import Reason, stateless
from penstock.data.partition.worth import NONE, WINDOWS, Choice, Means, Way, decide
from penstock.data.torchpartition.observation.recording import RecordedCall, Recording

STAGES: Final = ("data workers", "training")
WORKER_SECOND: Final = 0.2
"""What a second of a data worker costs, where one of the training costs 1: there are several."""
BYTES_PER_SECOND: Final = 1e9
"""At which the training process takes in what crosses."""
MATCH_SECONDS: Final = 15e-6
"""Of the training process, for a call of a function that is matched instead of made."""
MATCH_MODULE_SECONDS: Final = 50e-6
"""For one of a module, which is looked at as well."""
_COSTS: Final = "what could move costs less than it costs to take it from elsewhere"
_KINDS: Final = {
    Trait.TRAINED: "reads what is trained",
    Trait.MUTATED: "is written to, or writes",
    Trait.RANDOM: "draws random numbers",
    Trait.COLLECTIVE: "speaks with other processes",
    Trait.OPAQUE: "cannot be looked into",
    Trait.VARYING: "has another constant in each step",
    Trait.PINNED: "is looked at by the program",
}


@dataclass(frozen=True)
class Item:
    """One node of the step, for people.

    Attributes:
        name: of it.
        moves: whether data workers make it.
        why: it stays; "": it moves.
        seconds: that it takes.
        size_bytes: of what it puts out.
    """

    name: str
    moves: bool
    why: str
    seconds: float
    size_bytes: int


@dataclass(frozen=True)
class Plan:
    """What moves.

    Attributes:
        recording: that it is of.
        moved: places of its calls that move, ascending; empty: nothing does.
        crossing: the values that cross, but for those of the batch, which are there anyway.
        items: all nodes, for people.
        step_seconds: of the program, as recorded.
        moved_seconds: of what moves.
        why: for people; why nothing moves, if nothing does.
    """

    recording: Recording
    moved: tuple[int, ...]
    crossing: tuple[int, ...]
    items: tuple[Item, ...]
    step_seconds: float
    moved_seconds: float
    why: str

    @property
    def crossing_bytes(self) -> int:
        """That are sent beside the batch."""
        return sum(self.recording.metas[key].size_bytes for key in self.crossing)

    @property
    def batch_bytes(self) -> int:
        """Of the batch's tensors."""
        recording = self.recording
        return sum(recording.metas[key].size_bytes for key in range(len(recording.paths)))


def plan(recording: Recording, chosen: tuple[int, ...] | None = None) -> Plan:
    """What moves, of recordings that were merged.

    ``chosen``: the calls that do, by another process's figures; nothing does where they may not.
    """
    graph = graph_of(recording)
    reasons = dict(stateless(graph))
    pinned = _unread(recording)
    for place in pinned:
        name = _name(recording, place)
        reasons[name] = reasons[name] or Reason(Trait.PINNED, name)
    prices = Prices((WORKER_SECOND, 1.0), (1 / BYTES_PER_SECOND,))
    stages = cheapest(graph, prices, reasons).stages
    first = len(recording.paths)
    moved = {
        place
        for place in range(len(recording.calls))
        if stages[first + place] == 0 and reasons[_name(recording, place)] is None
    }
    if chosen is not None:
        moved = {place for place in chosen if reasons[_name(recording, place)] is None}
    _own_memory(recording, moved)
    crossing = tuple(sorted(_crossing(recording, moved)))
    seconds = sum(recording.calls[place].seconds for place in moved)
    why = _worth(recording, moved, crossing, seconds) if moved else _COSTS
    if chosen is not None:
        why = "" if moved == set(chosen) else "not all that the group moves may move here"
    if why:
        why = f"{why}; {_reasons(recording, reasons)}" if _able(recording, reasons) else ""
        why = why or _reasons(recording, reasons)
        moved, crossing = set(), ()
    else:
        names = Counter(recording.calls[place].label for place in sorted(moved))
        said = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
        why = f"{len(moved)} {'calls move' if len(moved) > 1 else 'call moves'} ({said[:200]})"
    items = tuple(_items(recording, graph, reasons, moved))
    return Plan(recording, tuple(sorted(moved)), crossing, items, recording.seconds, seconds, why)


def graph_of(recording: Recording) -> Graph:
    """The step: the batch's tensors, which are made elsewhere, calls, and what reads of them."""
    nodes = []
    maker: dict[int, str] = {}
    for key, path in enumerate(recording.paths):
        name = f"batch{''.join(f'[{one!r}]' for one in path)}"
        maker[key] = name
        # They are sent in any case, so that they cross for nothing.
        nodes.append(Node(name, "batch", (), 0, (0.0, math.inf)))
    calls = [*recording.calls, *recording.ends]
    for place, call in enumerate(calls):
        name = f"{place}: {call.label}"
        new = [key for key in call.outputs if key not in maker]
        owners = {recording.owners[key] for key in new}
        size = sum(recording.metas[key].size_bytes for key in owners)
        elsewhere = call.seconds + _match_seconds(call) / WORKER_SECOND
        inputs = tuple(maker[key] for key in call.inputs)
        kind = call.name or call.label
        nodes.append(Node(name, kind, inputs, size, (elsewhere, call.seconds), call.traits))
        maker.update(dict.fromkeys(new, name))
    return Graph(STAGES, tuple(nodes))


def _match_seconds(call: RecordedCall) -> float:
    return MATCH_SECONDS if call.module is None else MATCH_MODULE_SECONDS


def _name(recording: Recording, place: int) -> str:
    return f"{place}: {recording.calls[place].label}"


def _unread(recording: Recording) -> set[int]:
    """Calls whose result nobody was seen to read."""
    read = {key for call in (*recording.calls, *recording.ends) for key in call.inputs}
    new = [set(call.outputs) - set(call.inputs) for call in recording.calls]
    return {place for place, keys in enumerate(new) if keys and not keys & read}


def _crossing(recording: Recording, moved: set[int]) -> set[int]:
    """Values that moved calls put out and the program reads."""
    made = _made(recording, moved)
    stay = [call for place, call in enumerate(recording.calls) if place not in moved]
    return {key for call in (*stay, *recording.ends) for key in call.inputs if key in made}


def _made(recording: Recording, moved: set[int]) -> dict[int, int]:
    """Values that moved calls put out, and by which."""
    made: dict[int, int] = {}
    for place in sorted(moved):
        for key in recording.calls[place].outputs:
            if key >= len(recording.paths):
                made.setdefault(key, place)
    return made


def _own_memory(recording: Recording, moved: set[int]) -> None:
    """Take back what makes a view of a value that would cross, until there is none."""
    while True:
        made = _made(recording, moved)
        views = {made[key] for key in _crossing(recording, moved) if recording.owners[key] != key}
        if not views:
            return
        moved -= views
        _close(recording, moved)


def _close(recording: Recording, moved: set[int]) -> None:
    """Nothing moves that reads what does not."""
    there = set(range(len(recording.paths)))
    for place in sorted(moved):
        call = recording.calls[place]
        if there.issuperset(call.inputs):
            there.update(call.outputs)
        else:
            moved.discard(place)


def _worth(recording: Recording, moved: set[int], crossing: tuple[int, ...], seconds: float) -> str:
    """Why it is not worth it, by what was measured; "": it is."""
    sent = sum(recording.metas[key].size_bytes for key in crossing)
    matching = sum(_match_seconds(recording.calls[place]) for place in moved)
    left = recording.seconds - seconds + matching + sent / BYTES_PER_SECOND
    ways = [Way(NONE, recording.seconds), Way("the cut", max(0.0, left), (), (sent,))]
    choice = Choice()
    for _ in range(WINDOWS):  # there is one measurement, which has to be enough
        choice = decide(choice, ways, Means((), (BYTES_PER_SECOND,)))
    if choice.way == NONE:
        share = seconds / recording.seconds if recording.seconds else 0.0
        return f"what could move is {share:.0%} of the step's time: {choice.why}"
    return ""


def _able(recording: Recording, reasons: dict[str, Reason | None]) -> bool:
    """Whether anything may move."""
    return any(reasons[_name(recording, place)] is None for place in range(len(recording.calls)))


def _reasons(recording: Recording, reasons: dict[str, Reason | None]) -> str:
    """Why the first calls stay that do."""
    said: list[str] = []
    for place, call in enumerate((*recording.calls, *recording.ends)):
        found = reasons[f"{place}: {call.label}"]
        if found is not None and call.traits:
            text = f"{call.label} {_reason(call, found)}"
            if text not in said:
                said.append(text)
    return "; ".join(said[:3]) or "the program calls nothing with its batches"


def _reason(call: RecordedCall, reason: Reason | None) -> str:
    if reason is None:
        return ""
    if call.traits:
        trait = min(call.traits, key=list(Trait).index)
        return f"{trait}: {call.why or _KINDS[trait]}"
    if reason.cause.split(": ")[-1] == call.label:
        return f"{reason.trait}: nobody was seen to read it"
    return f"descends from {reason.cause}, which {_KINDS[reason.trait]}"


def _items(
    recording: Recording, graph: Graph, reasons: dict[str, Reason | None], moved: set[int]
) -> list[Item]:
    first = len(recording.paths)
    items = []
    calls: tuple[Any, ...] = (*recording.calls, *recording.ends)
    for place, (node, call) in enumerate(zip(graph.nodes[first:], calls, strict=True)):
        why = _reason(call, reasons[node.name])
        if not why and place not in moved:
            why = "it costs less to compute it here than to take it from elsewhere"
        items.append(Item(node.name, place in moved, why, call.seconds, node.size_bytes))
    return items
