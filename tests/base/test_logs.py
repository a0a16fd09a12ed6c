"""A log line looks the same whoever writes it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from penstock.base.logs import stderr_handler


def record(message: str, *, failed: bool = False) -> logging.LogRecord:
    """A record of logger ``penstock.part``, with the trace of an exception where it failed."""
    trace = None
    if failed:
        try:
            raise ValueError("odd")
        except ValueError:
            trace = sys.exc_info()
    return logging.LogRecord("penstock.part", logging.WARNING, "f", 1, message, ("it",), trace)


def test_json_is_one_object_on_one_line() -> None:
    line = stderr_handler("json").format(record("look at %s\nagain"))
    assert "\n" not in line
    content = json.loads(line)
    assert content.pop("time").endswith("+00:00")
    assert content == {
        "level": "warning",
        "logger": "penstock.part",
        "message": "look at it\nagain",
    }


def test_an_exception_comes_with_its_trace() -> None:
    content = json.loads(stderr_handler("json").format(record("%s failed", failed=True)))
    assert content["exception"].endswith("ValueError: odd")


def test_text_names_level_and_logger() -> None:
    line = stderr_handler("text").format(record("look at %s"))
    assert line.endswith("WARNING penstock.part: look at it")


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="--log-format='xml': must be text or json"):
        stderr_handler("xml")
