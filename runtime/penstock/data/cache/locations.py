"""Where the cache of a node is found, and how its memory is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.base.quantity import parse_bytes
from penstock.crds import environment as names

SYSTEM_SOCKET: Final = "/run/penstock/cache.sock"


def cache_socket(environ: Mapping[str, str] = os.environ) -> str:
    """The socket of the node's cache: what the environment says, or where it usually is."""
    if place := environ.get(names.CACHE_SOCKET):
        return place
    own = environ.get("XDG_RUNTIME_DIR")
    if own and os.getuid() and not Path(SYSTEM_SOCKET).exists():
        return str(Path(own, "penstock-cache.sock"))
    return SYSTEM_SOCKET


def parse_memory(text: str) -> int:
    """Bytes of ``4GiB``, ``4Gi`` or ``4000000``.

    Raises:
        ValueError: it is none, or not above 0.
    """
    size = parse_bytes(text.removesuffix("B") if text.endswith("iB") else text)
    if size < 1:
        raise ValueError(f"{text}: must be above 0")
    return size


def checked_path(path: str) -> str:
    """A folder of the cache, as it is called everywhere.

    Raises:
        ValueError: it is not absolute, or no text in UTF-8.
    """
    if not path.startswith("/"):
        raise ValueError(f"{path}: must begin with /")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{os.fsencode(path)!r}: must be text in UTF-8: rename it") from None
    return os.path.normpath(path)
