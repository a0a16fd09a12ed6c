"""What a figure of a profile may be, so that whatever is computed of it is finite and ends.

A profile comes from files and over the network. NaN is below no limit and infinity is reached by
no simulation, so that every figure has two bounds, far beyond what any program has.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.throughput.errors import ProfileError

LEAST: Final = 1e-9
"""Of what must be more than 0: seconds of a step, cores, bytes a second."""
MOST_SECONDS: Final = 1e9
MOST_BYTES: Final = 1e18
MOST_CORES: Final = 1e5
MOST_WHOLE: Final = 10**9
"""Of what is counted, e.g. samples of a batch."""
MOST_RATE: Final = 1e18
"""Samples or bytes a second."""
_SHOWN: Final = 80


def hold_number(name: str, value: object, least: float, most: float) -> None:
    """Hold a figure to its bounds.

    Raises:
        ProfileError: it is no number, or not between them.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"{name}: {shown(value)} must be a number")
    if least <= value <= most:
        return
    rule = f"at most {most:g}"
    if not value > least:
        rule = f"{least:g} or more" if least != LEAST else f"more than 0, and at least {LEAST:g}"
    raise ProfileError(f"{name}: {shown(value)} must be {rule}")


def hold_whole(name: str, value: object, least: int, most: int = MOST_WHOLE) -> None:
    """Hold what is counted to its bounds.

    Raises:
        ProfileError: it is no whole number, or not between them.
    """
    if type(value) is int and least <= value <= most:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProfileError(f"{name}: {shown(value)} must be a whole number")
    rule = f"at most {most}" if value > most else f"{least} or more"
    raise ProfileError(f"{name}: {shown(value)} must be {rule}")


def shown(value: object) -> Any:
    """A value as an error quotes it: never longer than a line, and on one."""
    if isinstance(value, int) and abs(value) > 10**_SHOWN:
        return "a number of more than 80 digits"
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
