"""Follows docs/quickstart.md to the letter, in a fresh clone: ``python -m tests.docs.quickstart``.

Every line that begins with ``$`` is typed into one shell, in order, and has to succeed; what it
took is printed. Only REPOSITORY is put in. It sets up an environment, trains twice and takes some
minutes, so it is a command and no test; that each line names a command that exists is a test.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "quickstart.md"
_DONE = "penstock-quickstart-done"


def commands(repository: str) -> list[str]:
    """What the page says to type."""
    return [
        line[2:].replace("REPOSITORY", repository)
        for block in blocks("console")
        if block.page == PAGE
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def follow(shell: "subprocess.Popen[str]", command: str) -> int:
    """Type one command; its exit status."""
    source, answers = _pipe(shell.stdin), _pipe(shell.stdout)
    source.write(f"{command}\necho {_DONE} $?\n")
    source.flush()
    for line in answers:
        if line.startswith(_DONE):
            return int(line.split()[1])
        sys.stderr.write(f"  {line}")
    raise SystemExit(f"the shell ended at: {command}")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow the quick start in a fresh clone.")
    parser.add_argument("--repository", default=str(ROOT), help="what to clone")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for everything")
    options = parser.parse_args()
    environment = {
        key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "VIRTUAL_ENV"}
    }
    took: list[dict[str, object]] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="penstock-quickstart-") as folder:
        shell = subprocess.Popen(
            ["timeout", "--kill-after=10", str(options.timeout), "bash", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=folder, env=environment,
        )  # fmt: skip
        try:
            for command in commands(options.repository):
                sys.stderr.write(f"$ {command}\n")
                began = time.monotonic()
                status = follow(shell, command)
                seconds = round(time.monotonic() - began, 1)
                took.append({"command": command, "seconds": seconds, "status": status})
                failed = failed or status != 0
                if status:
                    break
        finally:
            if failed and (Path(folder) / "penstock" / ".venv").is_dir():
                follow(shell, "cd penstock 2>/dev/null; .venv/bin/penstock down")
            shell.terminate()
            shell.wait(15)
    total = round(sum(float(str(one["seconds"])) for one in took), 1)
    print(json.dumps({"commands": took, "seconds": total, "followed": not failed}, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
