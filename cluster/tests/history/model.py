"""What the server must hold and tell: objects, and the history of events that any watcher sees.

The model knows nothing of the server but its answers. A write that succeeds must give a larger
``resourceVersion`` than all before it; one that changes nothing must give the old one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Held:
    """One object as the model believes it to be."""

    name: str
    version: int
    value: str
    labels: tuple[tuple[str, str], ...] = ()
    finalizers: tuple[str, ...] = ()
    marked: bool = False

    @classmethod
    def of(cls, document: Json) -> Held:
        metadata = document["metadata"]
        return cls(
            metadata["name"],
            int(metadata["resourceVersion"]),
            document.get("data", {}).get("value", ""),
            tuple(sorted(metadata.get("labels", {}).items())),
            tuple(metadata.get("finalizers", ())),
            "deletionTimestamp" in metadata,
        )

    def same_but_version(self, other: Held) -> bool:
        return (self.name, self.value, self.labels, self.finalizers, self.marked) == (
            other.name,
            other.value,
            other.labels,
            other.finalizers,
            other.marked,
        )


@dataclass(frozen=True)
class Change:
    """One step of the history; ``after`` is None when the object went."""

    before: Held | None
    after: Held | None
    #: Versions lie between the one before and this; exact unless the object went.
    version: int | None


@dataclass(frozen=True)
class Expected:
    """An event that a watcher must see; ``held.version`` counts only where ``exact``."""

    type: str
    held: Held
    exact: bool


@dataclass
class Model:
    """The objects, and every change since the start."""

    objects: dict[str, Held] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    newest: int = 0

    def store(self, document: Json) -> None:
        """An answer shows the object after a successful write."""
        held = Held.of(document)
        before = self.objects.get(held.name)
        if before is not None and held.same_but_version(before):
            assert held.version == before.version, "a write that changes nothing is no write"
            return
        assert held.version > self.newest, "versions only grow"
        self.newest = held.version
        self.objects[held.name] = held
        self.changes.append(Change(before, held, held.version))

    def remove(self, name: str) -> None:
        self.changes.append(Change(self.objects.pop(name), None, None))

    @property
    def position(self) -> int:
        """How many changes there were so far."""
        return len(self.changes)

    def listed(self, label: tuple[str, str] | None) -> list[Held]:
        found = [held for held in self.objects.values() if _matches(held, label)]
        return sorted(found, key=lambda held: held.name)

    def events(self, position: int, label: tuple[str, str] | None) -> list[Expected]:
        """What a watcher sees of the changes from ``position`` on."""
        found = []
        for change in self.changes[position:]:
            before, after = change.before, change.after
            was = before is not None and _matches(before, label)
            fits = after is not None and _matches(after, label)
            if after is not None and fits:
                found.append(Expected("MODIFIED" if was else "ADDED", after, exact=True))
            elif before is not None and was:
                found.append(Expected("DELETED", before, exact=False))
        return found


def _matches(held: Held, label: tuple[str, str] | None) -> bool:
    return label is None or label in held.labels
