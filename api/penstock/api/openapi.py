"""Writes docs/openapi.json from the service: ``python -m penstock.api.openapi [--check]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from penstock.api.app import build_app
from penstock.crds.generated import command

FILE: Final = Path("docs/openapi.json")


def document() -> str:
    """The document as it is committed; without a version, so that a release changes nothing."""
    content = build_app(None, None).openapi()
    content["info"]["version"] = "v1"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(command({FILE: document}))
