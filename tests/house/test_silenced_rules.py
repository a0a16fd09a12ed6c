"""Whoever silences a rule names it, and says why on the same line or in the comment above it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = sorted(
    path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
)
_SILENCED: Final = re.compile(r"#\s*(noqa|type:\s*ignore)\b", re.IGNORECASE)
_NAMED: Final = re.compile(
    r"(#\s*(noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|type:\s*ignore\[[a-z, -]+\])\s*)+(?P<why>.*)"
)
_WORDS: Final = 2
"""What a reason has at least."""


def _silenced(text: str) -> Iterator[tuple[int, str]]:
    """Line number and fault of every comment that silences a rule and does not say which or why."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or not _SILENCED.search(token.string):
            continue
        number = token.start[0]
        named = _NAMED.fullmatch(token.string)
        above = lines[number - 2].strip() if number > 1 else ""
        if named is None:
            yield number, "names no rule"
        elif not any(
            _is_reason(said) for said in (named["why"], above if above[:1] == "#" else "")
        ):
            yield number, "gives no reason"


def _is_reason(said: str) -> bool:
    return not _SILENCED.search(said) and len(re.findall(r"\w+", said)) >= _WORDS


def test_every_silenced_rule_is_named_and_has_a_reason() -> None:
    found, files = [], 0
    for folder in _FOLDERS:
        for path in folder.rglob("*.py"):
            files += 1
            found += [
                f"{path.relative_to(ROOT)}:{number} {fault}"
                for number, fault in _silenced(path.read_text(encoding="utf-8"))
            ]
    assert files > 500, "the rooms are not where they were looked for"
    assert found == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a = 1  # noqa\n", "names no rule"),
        ("a = 1  # type: ignore\n", "names no rule"),
        ("a = 1  # noqa  because it is so\n", "names no rule"),
        ("a = 1  # noqa: E731\n", "gives no reason"),
        ("a = 1  # type: ignore[misc]  # x\n", "gives no reason"),
        ("b = 2  # a is bound below\na = 1  # noqa: E731\n", "gives no reason"),
        ("# type: ignore[misc]  # it is so\na = 1  # noqa: E731\n", "gives no reason"),
        ("a = 1  # noqa: E731  one expression\n", None),
        ("a = 1  # type: ignore[misc, index]  # one expression\n", None),
        ("# One expression.\na = 1  # noqa: E731\n", None),
        ("a = '# noqa'\n", None),
    ],
)
def test_what_counts_as_named_and_as_a_reason(text: str, fault: str | None) -> None:
    assert [said for _, said in _silenced(text)] == ([] if fault is None else [fault])
