"""Conditions as the Kubernetes API conventions want them.

``lastTransitionTime`` moves when the status changes and at no other time, ``observedGeneration``
says which spec the condition is about, messages are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from penstock.base.fields import write_time
from penstock.controller.reconcile.model.observed import Condition

MESSAGE_LIMIT: Final = 4096
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_UNREADABLE: Final = re.compile("\N{REPLACEMENT CHARACTER}+")


def readable(text: str) -> str:
    """Text that a terminal can show: what programs print ends up in messages, bytes and all.

    Colours go, carriage returns end a line, and each run of what is no text becomes one mark.
    """
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if text.isprintable():
        return text
    shown = "".join(
        char if char.isprintable() or char in "\n\t" else " " if char.isspace() else "\ufffd"
        for char in text
    )
    return _UNREADABLE.sub("\ufffd", shown)


class Conditions:
    """The conditions of one object while a pass works on them."""

    def __init__(self, written: Mapping[str, Condition], generation: int, now: datetime) -> None:
        self._written = written
        self._current = dict(written)
        self._generation = generation
        self._now = now.replace(microsecond=0)

    def set(self, kind: str, status: bool | None, reason: str, message: str = "") -> None:
        """Set a condition; ``status`` None is Unknown. A long message keeps its end."""
        message = readable(message)
        text = "Unknown" if status is None else str(status)
        before = self._current.get(kind)
        written = self._written.get(kind)
        if written is not None and written.status == text:
            since = written.since
        elif before is not None and before.status == text:
            since = before.since
        else:
            since = self._now
        if len(message) > MESSAGE_LIMIT:
            message = "..." + message[-(MESSAGE_LIMIT - 3) :]
        self._current[kind] = Condition(kind, text, reason, message, since, self._generation)

    def get(self, kind: str) -> Condition | None:
        """The condition as it stands in this pass."""
        return self._current.get(kind)

    def was_false(self, kind: str) -> bool:
        """Whether the condition was last written as False."""
        found = self._written.get(kind)
        return found is not None and found.status == "False"

    def is_true(self, kind: str) -> bool:
        """Whether the condition stands as True in this pass."""
        found = self._current.get(kind)
        return found is not None and found.status == "True"

    def has_flipped(self, kind: str) -> bool:
        """Whether this pass gave the condition another status or reason than was written."""
        before, now = self._written.get(kind), self._current.get(kind)
        if before is None or now is None:
            return before is not now
        return (before.status, before.reason) != (now.status, now.reason)

    @property
    def flipped(self) -> bool:
        """Whether any condition has another status or reason than was written."""
        return any(self.has_flipped(kind) for kind in self._current)

    @property
    def changed(self) -> bool:
        """Whether anything of any condition differs from what was written."""
        return self._current != self._written

    def current(self) -> dict[str, Condition]:
        """The conditions as they stand, by type."""
        return dict(self._current)

    def to_json(self) -> list[dict[str, Any]]:
        """The conditions as an object's status holds them, in the order they were first set."""
        return [to_json(condition) for condition in self._current.values()]


def to_json(condition: Condition) -> dict[str, Any]:
    """One condition as an object's status holds it."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": write_time(condition.since),
        "observedGeneration": condition.observed_generation,
    }
