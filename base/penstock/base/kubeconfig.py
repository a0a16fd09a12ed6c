"""Which kubeconfig a command reads: one rule for controller, Brain and ``penstock up``.

It is kubectl's: an option wins, then ``$KUBECONFIG`` (which may name several files), then
``~/.kube/config``. Reading the file is left to the Kubernetes client of each room.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "KUBECONFIG"


def named(given: Path | None = None) -> str | None:
    """The files that an option or ``$KUBECONFIG`` names, joined by `os.pathsep`; None: neither."""
    return str(given) if given is not None else os.environ.get(VARIABLE) or None


def named_or_home(given: Path | None = None) -> str:
    """The same, and else the file in the home folder, whether or not it is there."""
    return named(given) or str(Path.home() / ".kube" / "config")
