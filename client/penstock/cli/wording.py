"""Times, quantities and targets in words. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

Json = dict[str, Any]
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BARS: Final = "▁▂▃▄▅▆▇█"


def age(since: str | float | None, now: float) -> str:
    """How long ago, as kubectl says it: 45s, 12m, 3h, 5d."""
    if since is None:
        return "-"
    return duration(now - (since if isinstance(since, float | int) else seconds(since)))


def seconds(timestamp: str) -> float:
    """A Kubernetes timestamp as seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def duration(length: float) -> str:
    """A length of time in one or two units."""
    whole = max(0, int(length))
    if whole < 120:
        return f"{whole}s"
    if whole < 3600:
        rest = whole % 60
        return f"{whole // 60}m{rest}s" if whole < 600 and rest else f"{whole // 60}m"
    if whole < 48 * 3600:
        rest = whole % 3600 // 60
        return f"{whole // 3600}h{rest}m" if whole < 8 * 3600 and rest else f"{whole // 3600}h"
    return f"{whole // 86400}d"


def amount(count: float) -> str:
    """Bytes in the unit that leaves at most four digits."""
    for unit in _UNITS:
        if abs(count) < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def rate(per_second: float) -> str:
    """A speed with three digits or so."""
    if per_second >= 100:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 10 else f"{per_second:.2f}"


def spark(values: list[float], width: int) -> str:
    """The last values as bars of eight heights, the highest value the highest bar."""
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(7, int(value / most * 7.999))] for value in shown)


def target(role: Mapping[str, Any]) -> str:
    """What a role should be: ``3 x 2 cpu, 4Gi``."""
    resources = role.get("resources") or {}
    size = [f"{resources['cpu']} cpu"] if "cpu" in resources else []
    size += [str(resources["memory"])] if "memory" in resources else []
    parts = [str(role["replicas"])] if role.get("replicas") is not None else []
    if size:
        parts.append("x " + ", ".join(size))
    if role.get("spareReplicas"):
        parts.append(f"+ {role['spareReplicas']} spare")
    if role.get("ranks"):
        parts.append(f"({len(role['ranks'])} ranks apart)")
    return " ".join(parts)


def changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """What the targets of `after` change in what `before` has come to, role by role."""
    said = []
    for role, wanted in after.items():
        had = before.get(role, {})
        parts = []
        for name, (old, new) in _fields(had, wanted).items():
            if new is not None and old != new:
                shown = f"{old} → {new}" if old is not None else f"{new}"
                parts.append(shown if name == "replicas" else f"{name} {shown}")
        if parts:
            said.append(f"{role} {', '.join(parts)}")
    return "; ".join(said) or "nothing"


def merged(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """What targets have come to: what is absent stays as it was."""
    found = {role: dict(target) for role, target in before.items()}
    for role, wanted in after.items():
        had = found.setdefault(role, {})
        resources = {**(had.get("resources") or {}), **(wanted.get("resources") or {})}
        had.update(wanted)
        if resources:
            had["resources"] = resources
    return found


def _fields(had: Json, wanted: Json) -> dict[str, tuple[Any, Any]]:
    old, new = had.get("resources") or {}, wanted.get("resources") or {}
    ranks = wanted.get("ranks")
    return {
        "replicas": (had.get("replicas"), wanted.get("replicas")),
        "cpu": (old.get("cpu"), new.get("cpu")),
        "memory": (old.get("memory"), new.get("memory")),
        "spare": (had.get("spareReplicas"), wanted.get("spareReplicas")),
        "ranks": (None, ", ".join(sorted(ranks, key=int)) if ranks else None),
    }
