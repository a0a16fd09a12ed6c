"""What such a process logs: everything from level info on, of the HTTP clients warnings only."""

from __future__ import annotations

import logging

from penstock.base.logs import stderr_handler


def set_up_logging(log_format: str) -> None:
    """Send the log of the whole process to standard error.

    Raises:
        ValueError: A wrong format.
    """
    logging.basicConfig(level=logging.INFO, handlers=[stderr_handler(log_format)], force=True)
    for library in ("aiohttp", "httpx", "httpcore"):
        logging.getLogger(library).setLevel(logging.WARNING)
