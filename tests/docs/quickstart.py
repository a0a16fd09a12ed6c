"""Follows a page to the letter, in a fresh clone: ``python -m tests.docs.quickstart``.

Every line that begins with ``$`` is typed into one shell, in order, and has to succeed; what it
took is printed. Only REPOSITORY is put in. It sets up an environment, trains twice and takes some
minutes, so it is a command and no test; that each line names a command that exists is a test.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.pages import ROOT, Typed, blocks, typed
from tests.docs.shell import Shell


def lines(page: Path) -> list[Typed]:
    """What the page says to type."""
    return [one for block in blocks("console") if block.page == page for one in typed(block)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow a page in a fresh clone.")
    parser.add_argument("--page", type=Path, default=Path("docs/quickstart.md"))
    parser.add_argument("--without", action="append", default=[], help="a line to leave out")
    parser.add_argument("--repository", default=str(ROOT), help="what to clone")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for everything")
    options = parser.parse_args()
    took: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-quickstart-") as folder,
        Shell(Path(folder), options.timeout, show=sys.stderr.write) as shell,
    ):
        for one in lines(ROOT / options.page):
            if one.command in options.without:
                continue
            command = one.command.replace("REPOSITORY", options.repository)
            sys.stderr.write(f"$ {command}\n")
            began = time.monotonic()
            status, said = shell.type(command)
            missing = [line for line in one.shown if line not in said]
            seconds = round(time.monotonic() - began, 1)
            took.append({"command": command, "seconds": seconds, "status": status})
            if missing:
                took[-1]["missing"] = missing
            if status or missing:
                shell.type(".venv/bin/penstock down")
                break
    failed = "missing" in took[-1] or bool(took[-1]["status"])
    total = round(sum(float(str(one["seconds"])) for one in took), 1)
    document = {"commands": took, "seconds": total, "followed": not failed}
    print(json.dumps(document, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
