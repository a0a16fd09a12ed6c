"""Recordings of what a state machine was told and what it answered, as files, and what it logs.

A life is a list of events: ``[call, now, given, said]``, all of it plain data.
"""

from __future__ import annotations

import json
import logging
import lzma
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

INTERNED: Final = 24


def pack(lives: Mapping[int, list[Any]]) -> bytes:
    """Lives as a file: what is long and comes again is there once."""
    values: dict[str, int] = {}

    def intern(value: Any) -> Any:
        if isinstance(value, dict):
            value = {key: intern(each) for key, each in value.items()}
        text = json.dumps(value, separators=(",", ":"))
        if len(text) < INTERNED:
            return value
        return {"@": values.setdefault(text, len(values))}

    events = {
        seed: [[intern(part) for part in event] for event in log] for seed, log in lives.items()
    }
    return lzma.compress(
        json.dumps({"values": list(values), "lives": events}, separators=(",", ":")).encode()
    )


def unpack(file: bytes) -> dict[int, list[Any]]:
    """The lives of a file, by seed."""
    content = json.loads(lzma.decompress(file))
    values = [json.loads(text) for text in content["values"]]

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            if "@" in value:
                return whole(values[value["@"]])
            return {key: whole(each) for key, each in value.items()}
        return value

    return {
        int(seed): [[whole(part) for part in event] for event in log]
        for seed, log in content["lives"].items()
    }


@contextmanager
def logged() -> Iterator[list[str]]:
    """What Penstock logs meanwhile, and nobody else hears: level and message of each line."""
    log = logging.getLogger("penstock")
    lines = _Lines()
    level, hands_on = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield lines.said
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
        log.propagate = hands_on


class _Lines(logging.Handler):
    """Lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.levelname} {record.getMessage()}")
