"""How many files and sockets a process may have open at once."""

from __future__ import annotations

import resource
from typing import Final

MOST: Final = 65536
"""More than this nobody here needs; some systems allow a thousand million."""


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit as far as it may, at most to `MOST`; the limit now.

    For servers only: a program of a user's may rely on `select`, which knows 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft
        return wanted
    return descriptor_limit()


def descriptor_limit() -> int:
    """The soft limit, at most `MOST`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
