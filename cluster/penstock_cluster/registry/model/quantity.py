"""Resource quantities as the API server writes them: canonical text, exact comparison.

The grammar is that of ``resource.Quantity``: a decimal number with a binary suffix (``Ki`` to
``Ei``), a decimal suffix (``n`` to ``E``) or an exponent. Canonical form has no fraction and the
largest suffix that leaves none, keeps the family of the suffix given, and rounds up to nano units.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

GRAMMAR = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_PARTS = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?)|[eE]([+-]?[0-9]+))"
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANO = Decimal("1e-9")
_LARGEST = Decimal(2**63 - 1)


class QuantityError(ValueError):
    """The text is not a quantity; the message is the server's."""

    def __init__(self) -> None:
        super().__init__(f"quantities must match the regular expression '{GRAMMAR}'")


def parse(text: str) -> tuple[Decimal, str]:
    """The value and its suffix family: ``binary``, ``decimal`` or ``exponent``.

    Raises :class:`QuantityError`.
    """
    match = _PARTS.fullmatch(text)
    if match is None:
        raise QuantityError
    sign, number, suffix, exponent = match.groups()
    value = Decimal(number)
    if exponent is not None:
        family = "exponent"
        value = value.scaleb(int(exponent)) if abs(int(exponent)) < 400 else value * 0
    elif suffix in _BINARY:
        family = "binary"
        value *= 1024 ** _BINARY[suffix]
    else:
        family = "decimal"
        value = value.scaleb(_DECIMAL[suffix or ""])
    if sign == "-":
        value = -value
    return value, family


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The canonical spelling, e.g. ``1000m`` -> ``1``, ``1024Mi`` -> ``1Gi``."""
    value, family = parse(text)
    value = value.quantize(_NANO, rounding=ROUND_CEILING) if abs(value) < _LARGEST else value
    value = min(value, _LARGEST)
    if value == 0:
        return "0"
    if family == "binary" and (abs(value) < 1024 or value != value.to_integral_value()):
        family = "decimal"
    sign = "-" if value < 0 else ""
    value = abs(value)
    if family == "binary":
        amount, power = int(value), 0
        while amount % 1024 == 0 and power < 6:
            amount //= 1024
            power += 1
        return f"{sign}{amount}{_BINARY_SUFFIXES[power]}"
    amount, power = int(value.scaleb(9)), -9
    while amount % 1000 == 0 and power < 18:
        amount //= 1000
        power += 3
    if family == "exponent":
        return f"{sign}{amount}e{power}" if power else f"{sign}{amount}"
    suffix = next(name for name, exponent in _DECIMAL.items() if exponent == power)
    return f"{sign}{amount}{suffix}"


def value_of(text: str | float) -> Decimal:
    """The exact value; raises :class:`QuantityError`."""
    return parse(str(text))[0]
