"""What the Brain logs: everything of its own from the chosen level on, of libraries warnings."""

from __future__ import annotations

import logging
from typing import Final

from penstock.api.errors import ServerError
from penstock.base.logs import stderr_handler

_LEVELS: Final = ("debug", "info", "warning", "error")


def configure_logging(form: str, level: str) -> None:
    """Set up the root logger.

    Raises:
        ServerError: An unknown form or level.
    """
    try:
        handler = stderr_handler(form)
    except ValueError as error:
        raise ServerError(str(error)) from error
    if level not in _LEVELS:
        raise ServerError(f"--log-level={level!r}: must be one of {', '.join(_LEVELS)}")
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What these say at level info is about themselves.
    for name in ("alembic", "uvicorn", "aiosqlite"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))
