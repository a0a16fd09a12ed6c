"""Prints the OpenAPI document: ``python -m penstock.api.openapi > docs/openapi.json``."""

import json
import sys

from penstock.api.app import build_app


def document() -> str:
    """The document as it is committed; without a version, so that a release changes nothing."""
    content = build_app(None, None).openapi()
    content["info"]["version"] = "v1"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
