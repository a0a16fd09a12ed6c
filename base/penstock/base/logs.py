"""The form of log lines, the same for every long-running command: text for people, or JSON.

What a command logs, and of which libraries, is its own business; how a line looks is not, because
whoever collects the logs of a cluster reads all of them with one rule. A JSON line has ``time``
(ISO 8601, UTC, milliseconds), ``level``, ``logger`` and ``message``, and with an exception its
trace as ``exception``.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO


class LogFormat(StrEnum):
    """How log lines are written to standard error."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def stderr_handler(log_format: str) -> logging.StreamHandler[TextIO]:
    """A handler that writes to standard error.

    Raises:
        ValueError: An unknown format.
    """
    if log_format not in list(LogFormat):
        raise ValueError(f"--log-format={log_format!r}: must be {' or '.join(LogFormat)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if log_format == LogFormat.JSON
        else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    return handler
