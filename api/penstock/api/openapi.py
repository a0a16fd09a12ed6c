"""Prints the OpenAPI document, or with ``--check FILE`` says whether the file is what it prints."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.api.app import build_app


def document() -> str:
    """The document as it is committed; without a version, so that a release changes nothing."""
    content = build_app(None, None).openapi()
    content["info"]["version"] = "v1"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 where the file to check differs or is not there, 2 for other arguments."""
    match arguments:
        case []:
            sys.stdout.write(document())
            return 0
        case ["--check", name]:
            path = Path(name)
            if path.is_file() and path.read_text(encoding="utf-8") == document():
                return 0
            sys.stderr.write(f"{name} is not what the service says of itself: run make openapi\n")
            return 1
        case _:
            sys.stderr.write("usage: python -m penstock.api.openapi [--check FILE]\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
