"""What a process says of the parts of its steps that are made elsewhere, for the job's status.

Loaders come and go, some programs make one for each epoch: whoever is gone is left out, and of the
others the newest are told. A trainer of the release before refuses what it does not know; then
nothing is told, and all else is as it was.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from penstock.data.protocol import MAX_PARTITION_NOTES, PartitionNote

MAX_FOLLOWED: Final = 64


class Noted(Protocol):
    """What is done with the batches of one loader."""

    def notes(self) -> Mapping[int, PartitionNote]:
        """What there is to say now, by the identity of what it is about."""


class PartitionNotes:
    """Of all loaders of a process."""

    def __init__(self) -> None:
        self._followed: list[weakref.ref[Noted]] = []
        self._lock = threading.Lock()
        self.unheard = False
        """The dispatcher does not know such notes."""

    def follow(self, work: Noted) -> None:
        """From now on what it says is told."""
        with self._lock:
            others = [one for one in self._followed if one() not in (None, work)]
            self._followed = [*others, weakref.ref(work)][-MAX_FOLLOWED:]

    def told(self) -> tuple[PartitionNote, ...]:
        """One for each name; a second one of a name has a number behind it."""
        if self.unheard:
            return ()
        with self._lock:
            followed = [one() for one in self._followed]
        found: dict[int, PartitionNote] = {}
        for work in followed:
            found |= work.notes() if work is not None else {}
        named: dict[str, PartitionNote] = {}
        for note in list(found.values())[-MAX_PARTITION_NOTES:]:
            name, number = note.name, 1
            while name in named:
                number += 1
                name = f"{note.name} ({number})"
            named[name] = note.model_copy(update={"name": name})
        return tuple(named.values())
