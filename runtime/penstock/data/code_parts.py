"""What compiled code is known by: its instructions, the names in it, and its constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any


def code_parts(code: CodeType, constant: Callable[[Any], Iterator[bytes]]) -> Iterator[bytes]:
    """The parts of code and of what is defined in it; ``constant`` gives those of a constant."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags)).encode()
    for one in code.co_consts:
        yield from code_parts(one, constant) if isinstance(one, CodeType) else constant(one)


def names_in(code: CodeType) -> set[str]:
    """The globals and attributes that code names, and what is defined in it."""
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= names_in(one)
    return found
