"""What the pages of the documentation hold: their fenced blocks and their links."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Typed:
    """A command that a page says to type, and what the page shows of its answer."""

    command: str
    shown: tuple[str, ...]


def typed(block: Block) -> list[Typed]:
    """The commands of a console block, in order."""
    found: list[Typed] = []
    for line in block.text.replace("\\\n", "").splitlines():
        if line.startswith("$ "):
            found.append(Typed(line[2:], ()))
        elif line and found:
            found[-1] = Typed(found[-1].command, (*found[-1].shown, line))
    return found


def pages() -> list[Path]:
    """Every page for people."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    found += ROOT.glob("charts/**/*.md")
    assert len(found) > 30
    return sorted(found)


def blocks(language: str) -> list[Block]:
    """Every fenced block in a language."""
    return [one for page in pages() for one in _blocks(page) if one.language == language]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, match[2], textwrap.dedent(match[3]))


def links(page: Path) -> list[str]:
    """Targets of the links of a page, without those in blocks."""
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
