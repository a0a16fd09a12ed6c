"""Where a container finds its volumes, on a machine where nothing is really mounted.

Processes here have no mount namespace of their own, so ``/data`` of a pod cannot be a folder of
that pod. Instead the path is made true where it is *said*: a ``mountPath`` at the start of a path
in ``command``, ``args``, ``workingDir`` or the value of a variable that the container has is
replaced by the volume's folder. What a program says in its own code (``open("/data/x")``) is not
seen, so every volume is also given as a variable, ``PENSTOCK_VOLUME_<NAME>`` (upper case, ``-`` as
``_``), and a program that should run both here and on a cluster takes its paths from arguments or
variables.

The rule is the same for every volume and whether or not the path exists on this machine: the pod
never reads the machine's ``/data`` by accident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

# A path starts at the start of the text or after something that no path holds in its middle.
_BEFORE = r"(?:(?<=file://)|(?<![\w.\-/~+@%]))"
_AFTER = r"(?![\w.\-~+@%])"


class PathRewriter:
    """Replaces mount paths by folders."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = {_bare(path): str(folder) for path, folder in folders.items()}
        # The longest first: of nested mounts the inner one is meant. In one pass, so that what
        # was put in is never replaced again.
        longest_first = sorted(self._folders, key=len, reverse=True)
        alternatives = "|".join(re.escape(path) for path in longest_first)
        self._pattern = re.compile(f"{_BEFORE}({alternatives}){_AFTER}") if alternatives else None

    def rewrite(self, text: str) -> str:
        """The text with every mounted path made true."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._folders[match.group(1)], text)


def _bare(path: str) -> str:
    return path.rstrip("/") or "/"


def volume_variable(volume_name: str) -> str:
    """The variable that holds the folder of a volume."""
    return "PENSTOCK_VOLUME_" + volume_name.upper().replace("-", "_")
