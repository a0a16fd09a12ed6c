"""Writes the clients without an event loop from those with one, so that they cannot differ.

The asyncio form is the source: words that only asyncio has are dropped, names that differ are
exchanged, and ruff settles what remains (line ends, the order of imports, comprehensions that have
become a plain list). ``make generated`` writes, ``--check`` compares.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.crds.generated import command

CLIENT: Final = Path(__file__).parent / "penstock" / "client"

DERIVED: Final = {
    "brain/async_brain_client.py": "brain/brain_client.py",
    "async_sdk.py": "sdk.py",
}

_WORDS: Final = {
    r"async with AsyncPenstock": "with Penstock",
    r"an ``async with``\.": "a ``with`` statement.",
    r"``async with``": "``with``",
    r"\basync (?=def|with|for)": "",
    r"\bawait ": "",
    r"for asyncio\b( programs)?": "for programs without an event loop",
    r"\bimport asyncio\b": "import time",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\bauthorization_async\b": "authorization",
    r"\b(penstock\.client[.\w]*)\.async_": r"\1.",
    r"\bAsyncIterator\b": "Iterator",
    r"\bhttpx\.AsyncClient\b": "httpx.Client",
    r"\bhttpx\.AsyncBaseTransport\b": "httpx.BaseTransport",
    r"\bAsync(?=BrainClient|BrainFinder|ClusterClient|Penstock)": "",
    r"\b__a(?=enter__|exit__)": "__",
    r"\ba(?=close\b|iter_raw\b|iter_bytes\b|read\(\))": "",
    # The one difference that users see: the Brain's client is an attribute here.
    r"( +)def brain\(self\)": r"\1@property\n\1def brain(self)",
    r"\bself\.brain\(\)": "self.brain",
}
_RUFF: Final = (sys.executable, "-m", "ruff")
_FIXED: Final = ("I", "F811", "C416", "UP028")  # what the exchange leaves for ruff to tidy


def derive(source: Path) -> str:
    """The form without an event loop of an asyncio module, formatted.

    Raises:
        ValueError: Something of asyncio is left: `_WORDS` lacks a word.
    """
    text = source.read_text()
    for word, instead in _WORDS.items():
        text = re.sub(word, instead, text)
    head, gap, rest = text.partition("from __future__")
    text = f"{head.rstrip()}\n\n# Derived from {source.name}; do not edit.\n\n{gap}{rest}"
    if left := re.search(r"\b(async|await|asyncio|Async\w+)\b", text):
        raise ValueError(f"{source.name}: {left.group()!r} has no counterpart without asyncio")
    fix = ("check", "--quiet", "--fix-only", "--unsafe-fixes", f"--select={','.join(_FIXED)}")
    for arguments in (fix, ("format", "--quiet")):
        name = f"--stdin-filename={source}"
        done = subprocess.run(
            [*_RUFF, *arguments, name, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check; the exit status."""
    files = {
        CLIENT / to: lambda source=CLIENT / source: derive(source) for source, to in DERIVED.items()
    }
    return command(files, arguments)


if __name__ == "__main__":
    sys.exit(main())
