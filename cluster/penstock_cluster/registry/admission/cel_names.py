"""The names that an expression uses but nobody declared.

The interpreter finds such a name only when it evaluates. A real API server refuses it when the
rule is written, which is where its author can still mend it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TEXT = re.compile(
    r"""[rRbB]{0,2}("{3}.*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL
)
_BOUND = re.compile(
    r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,"
    r"(?:\s*([A-Za-z_]\w*)\s*,)?"
)
_TYPES = frozenset(
    [
        "bool",
        "bytes",
        "double",
        "google",
        "int",
        "list",
        "map",
        "null_type",
        "optional",
        "string",
        "type",
        "uint",
    ]
)


def _without_texts(source: str) -> str:
    return _TEXT.sub(lambda found: "'" + " " * (len(found.group()) - 2) + "'", source)


def undeclared(source: str, used: Iterable[str], declared: frozenset[str]) -> str | None:
    """What a compiler says of the first of the ``used`` names that is not declared."""
    plain = _without_texts(source)
    bound = {name for found in _BOUND.finditer(plain) for name in found.groups() if name}
    unknown = set(used) - declared - _TYPES - bound
    places = [
        (found.start(), found.group())
        for found in re.finditer(r"(?<![\w.])[A-Za-z_]\w*", plain)
        if found.group() in unknown
    ]
    if not places:
        return None
    start, name = min(places)
    line = source.count("\n", 0, start)
    column = start - (source.rfind("\n", 0, start) + 1)
    return (
        f"ERROR: <input>:{line + 1}:{column + 1}: undeclared reference to '{name}' "
        f"(in container '')\n | {source.splitlines()[line]}\n | {'.' * column}^"
    )
