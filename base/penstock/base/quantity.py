"""Kubernetes quantities ("500m", "1.5Gi", "2e3") to and from the integers used inside Penstock.

Quantities stay strings at the edge, in the models; inside, CPU is milli-cores and memory is bytes.
The arithmetic is exact (integers and decimals, never floats) and follows the API server's own
``resource.Quantity``: what is finer than the unit rounds up, away from zero, so that a request
never shrinks by being read; what is beyond 2**63 - 1 becomes that, so that every result fits a
64-bit integer. Reading takes time bounded by the length of the text, whatever its exponent says.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from typing import Final

MAX_LENGTH: Final = 32
"""Longest quantity that the resources of Penstock accept, in characters."""

PATTERN: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Notation of a quantity as an RE2 expression, for schemas; `parse` refuses what it refuses."""

_NOTATION: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL_EXPONENT: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_LARGEST: Final = 2**63 - 1
_EXPONENT_BOUND: Final = 100  # beyond it, 32 digits are either past _LARGEST or finer than 1n
_EXACT: Final = Context(prec=400, rounding=ROUND_UP)


def parse_milli_cpu(text: str | int) -> int:
    """CPU in milli-cores: ``"1.5"`` is 1500, ``"100m"`` is 100, ``2`` is 2000.

    Raises:
        ValueError: the text is not a quantity; the message holds the text and the rule.
    """
    return _to_integer(_EXACT.scaleb(parse(text), 3))


def parse_bytes(text: str | int) -> int:
    """Memory, or a count of an extended resource, as an integer: ``"2Gi"`` is 2147483648.

    Raises:
        ValueError: the text is not a quantity; the message holds the text and the rule.
    """
    return _to_integer(parse(text))


def format_milli_cpu(milli_cpu: int) -> str:
    """The shortest quantity of that many milli-cores: 1500 is ``"1500m"``, 2000 is ``"2"``."""
    cores, rest = divmod(milli_cpu, 1000)
    return f"{milli_cpu}m" if rest else str(cores)


def format_bytes(count: int) -> str:
    """The quantity of that many bytes with the largest binary suffix that keeps it exact."""
    for suffix, factor in reversed(_BINARY.items()):
        if count and count % factor == 0:
            return f"{count // factor}{suffix}"
    return str(count)


def parse(text: str | int) -> Decimal:
    """The exact value of a quantity, in its own unit (cores, bytes, pieces).

    Raises:
        ValueError: the text is not a quantity; the message holds the text and the rule.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ValueError(f"{text!r} is not a quantity: expected a string or an integer")
    if isinstance(text, int):
        return _clamped(Decimal(text))
    match = _NOTATION.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        shown = text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}..."
        raise ValueError(
            f"{shown!r} is not a quantity: expected a number of at most {MAX_LENGTH} characters "
            "with an optional suffix, such as 500m, 4, 1.5Gi or 2e3"
        )
    number, suffix, exponent = Decimal(match["number"]), match["suffix"], match["exponent"]
    if suffix in _BINARY:
        return _clamped(_EXACT.multiply(number, Decimal(_BINARY[suffix])))
    power = _DECIMAL_EXPONENT[suffix] if suffix else int(exponent or 0)
    bounded = max(-_EXPONENT_BOUND, min(power, _EXPONENT_BOUND))
    return _clamped(_EXACT.scaleb(number, bounded))


def _clamped(value: Decimal) -> Decimal:
    """Not finer than 1n and not beyond the 64-bit range, as the API server keeps it."""
    largest = Decimal(_LARGEST)
    bounded = max(-largest, min(value, largest))
    return bounded.quantize(Decimal("1e-9"), context=_EXACT)


def _to_integer(value: Decimal) -> int:
    whole = int(value.to_integral_value(rounding=ROUND_UP))
    return max(-_LARGEST, min(whole, _LARGEST))
