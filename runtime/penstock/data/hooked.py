"""Where the hook lies that interpreters run at their start, and how a program comes to it.

The hook itself is ``hook/sitecustomize.py``; other variables say what it is to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

INTERCEPT: Final = "PENSTOCK_DATA_INTERCEPT"
"""Set to 1: loaders are served (`penstock.data.interception`)."""
NO_DATA_WORKERS: Final = "PENSTOCK_NO_DATA_WORKERS"
"""Set to 1 by ``penstock run`` alone: the program has no data workers, and will have none."""
HOOK: Final = Path(__file__).with_name("hook")


def hooked(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program whose interpreters run the hook; others of it say for what."""
    path = environ.get("PYTHONPATH", "")
    if path.split(os.pathsep)[0] != str(HOOK):
        path = os.pathsep.join([str(HOOK), path]) if path else str(HOOK)
    return {**environ, "PYTHONPATH": path}
