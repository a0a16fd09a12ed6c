"""Why the service cannot start."""

from __future__ import annotations


class ServerError(Exception):
    """The service cannot start; the text says why and what to do."""
