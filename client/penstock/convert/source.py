"""A manifest that is converted, and the account of its fields.

Whoever converts says of each field that it is kept, dropped or changed; what nobody spoke of is
dropped by name at the end. So no leaf of a manifest gets lost in silence, whatever it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Json = dict[str, Any]
Path = tuple[str | int, ...]

_SHOWN: Final = 100
UNKNOWN: Final = "no field that has a meaning here"


class RefusedError(ValueError):
    """A manifest has no correspondence; the message says which field, and what to do."""


class Outcome(StrEnum):
    """What became of a field."""

    DROPPED = "dropped"
    CHANGED = "changed"
    TO_DO = "to do"


@dataclass(frozen=True)
class Note:
    """One field that is not in the result as it was in the source.

    Attributes:
        of: the manifest, as KIND/NAME.
        path: of the field; what lies below it is meant too.
        value: what it was.
        outcome: what became of it.
        meaning: what stands for it here, or what is to be done.
    """

    of: str
    path: Path
    value: Any
    outcome: Outcome
    meaning: str

    @property
    def field(self) -> str:
        return spelt(self.path)

    def __str__(self) -> str:
        return f"{self.of}: {self.field}: {shown(self.value)}: {self.outcome}: {self.meaning}"


def spelt(path: Path) -> str:
    """A path as people write it: ``spec.containers[0].image``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step and all(letter.isalnum() or letter in "_-" for letter in step):
            text += f".{step}"
        else:
            text += f"[{step}]"
    return text.lstrip(".")


def shown(value: Any) -> str:
    """A value in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything that a manifest says, with its path; a null says nothing."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    elif isinstance(value, list) and value:
        for index, below in enumerate(value):
            yield from leaves(below, (*path, index))
    elif value is not None:
        yield path, value


class Source:
    """One manifest, and what became of its fields so far."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.notes: list[Note] = []
        self._settled: set[Path] = {("apiVersion",), ("kind",)}
        metadata = document.get("metadata")
        named = metadata if isinstance(metadata, Mapping) else {}
        name = named.get("name") or named.get("generateName") or "?"
        self.label = f"{document.get('kind')}/{name}"

    # ------------------------------------------------------------------ what it says

    def at(self, path: Path) -> Any:
        """The value at a path; None where there is none."""
        value: Any = self.document
        for step in path:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) and step < len(value) else None
            else:
                value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def mapping(self, path: Path) -> Mapping[str, Any]:
        """An object; empty where there is none. Raises RefusedError for anything else."""
        value = self.at(path)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.refused(path, "must be an object")
        return value

    def items(self, path: Path) -> list[Any]:
        """A list; empty where there is none. Raises RefusedError for anything else."""
        value = self.at(path)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refused(path, "must be a list")
        return value

    def text(self, path: Path) -> str | None:
        """A string. Raises RefusedError for anything else."""
        value = self.at(path)
        if value is not None and not isinstance(value, str):
            raise self.refused(path, "must be a string")
        return value

    def integer(self, path: Path) -> int | None:
        """A whole number, not negative. Raises RefusedError for anything else."""
        value = self.at(path)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refused(path, "must be a whole number, not negative")
        return value

    def flag(self, path: Path) -> bool | None:
        """True or false. Raises RefusedError for anything else."""
        value = self.at(path)
        if value is not None and not isinstance(value, bool):
            raise self.refused(path, "must be true or false")
        return value

    def refused(self, path: Path, why: str) -> RefusedError:
        """The error for a field that cannot be taken over."""
        value = self.at(path)
        said = "" if value is None else f"{shown(value)}: "
        return RefusedError(f"{self.label}: {spelt(path)}: {said}{why}")

    # ------------------------------------------------------------------ what becomes of it

    def keep(self, path: Path) -> None:
        """What lies at a path is in the result as it was."""
        self._settled.add(path)

    def drop(self, path: Path, meaning: str) -> None:
        """Nothing in the result stands for it."""
        self._note(path, Outcome.DROPPED, meaning)

    def change(self, path: Path, meaning: str) -> None:
        """Something else in the result stands for it."""
        self._note(path, Outcome.CHANGED, meaning)

    def ask(self, path: Path, meaning: str) -> None:
        """Somebody has to do something about it; whether it is kept is said apart."""
        if (value := self.at(path)) is not None:
            self._add(Note(self.label, path, value, Outcome.TO_DO, meaning))

    def drop_part(self, path: Path, part: str, value: str | None, meaning: str) -> None:
        """Nothing in the result stands for a part of a value, such as an option of a command."""
        said = "given" if value is None else value
        self.notes.append(Note(self.label, (*path, part), said, Outcome.DROPPED, meaning))

    def change_part(self, path: Path, part: str, value: str, meaning: str) -> None:
        """Something else in the result stands for a part of a value."""
        self.notes.append(Note(self.label, (*path, part), value, Outcome.CHANGED, meaning))

    def drop_all(self, base: Path, table: Mapping[str, str]) -> None:
        """Drop the fields of a table: their paths below `base`, dotted, and what they mean here."""
        for field, meaning in table.items():
            self.drop((*base, *field.split(".")), meaning)

    def change_lost(self, path: Path, result: Any, meaning: str) -> None:
        """Name what lies at a path and is not in the result, whatever was said of it before."""
        there = [value for _, value in leaves(result)]
        for below, value in leaves(self.at(path)):
            if value not in there:
                self.change((*path, *below), meaning)

    def finish(self) -> list[Note]:
        """Every field that is not in the result as it was, those that nobody spoke of included."""
        self._drop_rest(self.document, ())
        return self.notes

    def _note(self, path: Path, outcome: Outcome, meaning: str) -> None:
        value = self.at(path)
        if value is None:
            return
        self._settled.add(path)
        self._add(Note(self.label, path, value, outcome, meaning))

    def _add(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _drop_rest(self, value: Any, path: Path) -> None:
        if path in self._settled or value is None:
            return
        if isinstance(value, Mapping) and value:
            for key, below in value.items():
                self._drop_rest(below, (*path, key))
        elif isinstance(value, list) and value:
            for index, below in enumerate(value):
                self._drop_rest(below, (*path, index))
        elif path:
            self.drop(path, UNKNOWN)
