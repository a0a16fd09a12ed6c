"""What the trainer, the agent and a session log: the logger ``penstock`` only.

They run beside a user's program, or in its process: its loggers are left as they are.
"""

from __future__ import annotations

import logging

from penstock.base.logs import stderr_handler


def configure(log_format: str, level: int = logging.INFO) -> None:
    """Send the logs of Penstock to stderr. Raises ValueError for an unknown format."""
    root = logging.getLogger("penstock")
    root.handlers[:] = [stderr_handler(log_format)]
    root.setLevel(level)
    root.propagate = False
