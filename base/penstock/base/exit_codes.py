"""Exit codes as a shell has them."""

from __future__ import annotations

from typing import Final

SIGNALLED: Final = 128
"""And the number of the signal, of a process that a signal ended."""


def shell_code(returned: int) -> int:
    """Of what Python has, where a process that signal N ended returned -N."""
    return SIGNALLED - returned if returned < 0 else returned
