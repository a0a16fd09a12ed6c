"""Reads a stream of server-sent events, one chunk after another: pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_EVENT_BYTES: Final = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; `id` is what to give back as ``Last-Event-ID``."""

    event: str
    data: str
    id: str


class EventReader:
    """Turns chunks of bytes into events. Comments (heartbeats) and unknown fields are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._id = ""
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that `chunk` completes.

        Raises:
            ValueError: One grows past the bound.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        found = []
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", errors="replace"))
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._finish()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "id":
                self._id = value
            case "data":
                self._size += len(value)
                if self._size > MAX_EVENT_BYTES:
                    raise ValueError(f"an event is longer than {MAX_EVENT_BYTES} bytes")
                self._data.append(value)
        return None

    def _finish(self) -> ServerSentEvent | None:
        event = (
            ServerSentEvent(self._event or "message", "\n".join(self._data), self._id)
            if self._data
            else None
        )
        self._event, self._data, self._size = "", [], 0
        return event
