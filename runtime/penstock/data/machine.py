"""The kind of machine, by which a profile is known to be of another one."""

from __future__ import annotations

import platform
from pathlib import Path


def machine() -> str:
    """The kind of processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
