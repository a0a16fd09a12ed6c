"""What a cache says of its paths, and what follows from it for whoever shows that: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Mapping[str, Any]]
"""By path, as `penstock.data.cache.node.contents.Contents.report` has it."""


def seen_ratio(one: Mapping[str, Any]) -> float:
    """The share of a path's reads that came by the cache at all; 1 before the first."""
    reads = one["seen"] + one["unseen"]
    return float(one["seen"] / reads) if reads else 1.0
