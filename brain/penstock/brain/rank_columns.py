"""The ranks of one sample as bytes: one column per figure, as JSON, compressed.

Twenty ranks take a few hundred bytes where objects would take some thousand, so that two hours of a
thousand jobs are some 300 MB, indexes included. The first byte is the version of the form.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from penstock.base.enums import Role
from penstock.brain.planning import RankSample

RankColumns = dict[str, list[Any]]
"""Column "rank" and one column for each figure, all of the same length; None is unknown.

Columns: rank, milli_cpu, memory_bytes; where any rank has it: milli_cpu_limit, memory_limit_bytes,
steps_per_second, step_seconds, wait_share, node, incarnation, and of the rank's GPUs: gpus (how
many), gpu_utilization (their mean), gpu_memory_bytes, gpu_memory_total_bytes, gpu_power_watts.
"""

_VERSION: Final = b"\x01"
_SAMPLE_COLUMNS: Final = (
    "milli_cpu",
    "memory_bytes",
    "milli_cpu_limit",
    "memory_limit_bytes",
    "steps_per_second",
    "step_seconds",
    "wait_share",
    "gpu_utilization",
    "node",
)


def pack(roles: Mapping[Role, RankColumns]) -> bytes:
    """The bytes of all roles of one sample."""
    text = json.dumps(
        {role.value: columns for role, columns in roles.items()}, separators=(",", ":")
    )
    return _VERSION + zlib.compress(text.encode(), 1)


def unpack(packed: bytes) -> dict[Role, RankColumns]:
    """What `pack` was given.

    Raises:
        ValueError: It is anything else.
    """
    if packed[:1] != _VERSION:
        raise ValueError(f"packed ranks of version {packed[:1]!r}: expected {_VERSION!r}")
    content = json.loads(zlib.decompress(packed[1:]))
    return {Role(role): columns for role, columns in content.items()}


def rank_samples(columns: RankColumns) -> dict[int, RankSample]:
    """The ranks of one role as the algorithms see them."""
    names = [name for name in _SAMPLE_COLUMNS if name in columns]
    rows = zip(*(columns[name] for name in names), strict=True)
    return {
        rank: RankSample(
            **{name: value for name, value in zip(names, row, strict=True) if value is not None}
        )
        for rank, row in zip(columns["rank"], rows, strict=True)
    }
