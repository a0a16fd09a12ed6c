"""Which jobs of a namespace share batches, as their specs say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def group_of(job: Json) -> str:
    """The group that a job shares with; empty where it names none."""
    return str(((job["spec"].get("input") or {}).get("share") or {}).get("group") or "")


def members(group: str, jobs: Sequence[Json]) -> list[Json]:
    """The jobs of a namespace that share, without those that have ended."""
    return [one for one in jobs if group_of(one) == group and not _has_ended(one)]


def names_of(jobs: Sequence[Json]) -> list[str]:
    """Their names, in order."""
    return sorted(one["metadata"]["name"] for one in jobs)


def _has_ended(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        one["type"] in ("Succeeded", "Failed") and one["status"] == "True" for one in conditions
    )
