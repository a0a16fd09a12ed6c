"""Files that are made from the code and committed: how they are written, and held against it.

They are committed so that what a change does to them is seen in review, and so that nobody needs
the code to read them. ``make generated`` writes them all; ``make check`` and the tests compare.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path


def drift(path: Path, text: str) -> str:
    """What of a file is not this text, as a unified diff; empty: nothing.

    Raises:
        OSError: The system refuses.
    """
    lines = unified_diff(
        path.read_text(encoding="utf-8").splitlines(keepends=True),
        text.splitlines(keepends=True),
        fromfile=str(path),
        tofile="generated",
    )
    return "".join(lines)


def command(files: Mapping[Path, Callable[[], str]], arguments: Sequence[str] | None = None) -> int:
    """A generator's command line: write its files, or with ``--check`` say what is out of date.

    Returns the exit status: 1 where a file differs, is not there or cannot be written.
    """
    parser = argparse.ArgumentParser(description=f"Write {', '.join(map(str, files))}.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    check = parser.parse_args(arguments).check
    outdated = []
    for path, make in files.items():
        try:
            if not check:
                path.write_text(make(), encoding="utf-8")
            elif said := drift(path, make()):
                outdated.append(path)
                sys.stderr.write(said)
        except OSError as error:
            outdated.append(path)
            sys.stderr.write(f"{path}: {error.strerror}\n")
    if outdated and check:
        named = ", ".join(map(str, outdated))
        sys.stderr.write(f"out of date: {named}: run 'make generated' in the source checkout\n")
    return int(bool(outdated))
