"""Questions about a profile: axes as people write them, and the answers as a table or a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, cast

import typer

from penstock.base.quantity import format_bytes, parse_bytes
from penstock.data.profiling.report import of_rate
from penstock.throughput.decision.cut_comparison import compare_cuts
from penstock.throughput.decision.offload import unit
from penstock.throughput.decision.what_if import Point, knee, what_if
from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import in_words
from penstock.throughput.limits.fetching import reading_apart
from penstock.throughput.observations.copies import HOST_TO_DEVICE
from penstock.throughput.profiles.figures import MOST_BYTES, MOST_CORES, MOST_RATE
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import MOST_WORKERS, CachePolicy, Resources

POINTS: Final = 9
"""Of a range that has more values."""
MOST_POINTS: Final = 200
_SHOWN: Final = 80
"""Characters of an option in an error."""
_BYTES: Final = ("cache", "storage")
_SPEEDS: Final = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
_FIELDS: Final = {
    "cores": "cores",
    "workers": "workers",
    "cache": "cache_bytes",
    "storage": "storage_bytes_per_second",
    "data workers": "data_workers",
}

_LARGEST: Final = {
    "cores": MOST_CORES,
    "workers": MOST_WORKERS,
    "cache": MOST_BYTES,
    "storage": MOST_RATE,
    "data workers": MOST_WORKERS,
}


def with_cold_data_workers(profile: Profile) -> Profile:
    """The profile as if no data worker had a file in memory.

    Raises:
        ProfileError: the profile does not know what reading costs then.
    """
    storage, apart = profile.storage, reading_apart(profile)
    if storage is None or not storage.cold_seconds or apart is profile:
        raise ProfileError(
            "--cold-data-workers needs what reading costs out of memory, which the profile does "
            "not have: profile again without --no-storage, a program that reads files"
        )
    there = apart.stages[0].blocked_seconds + storage.hits * storage.cold_seconds
    return replace(apart, resources=replace(apart.resources, data_worker_reading_seconds=there))


def ask(
    profile: Profile,
    axes: Mapping[str, str],
    cache_policy: str,
    data_worker_cores: float,
    *,
    overlap_copies: bool = False,
) -> list[Point]:
    """A prediction for every combination of the axes.

    Raises:
        ProfileError: an axis cannot be read; the text says which, and how it is written.
    """
    if cache_policy not in ("minio", "lru"):
        raise ProfileError(f"--cache-policy {cache_policy}: must be minio or lru")
    if overlap_copies and not profile.copy_seconds:
        raise ProfileError(
            "--overlap-copies: no copy to a device held the program up while it was profiled, so "
            "that there is nothing to gain: leave it out"
        )
    storage = profile.storage
    if "cache" in axes and (storage is None or not storage.total_bytes):
        raise ProfileError(
            "--cache: the profile does not know how many bytes the dataset has in files: it read "
            "none, or its length is not known"
        )
    if {"cache", "storage"} & set(axes) and (storage is None or not storage.cold_bytes_per_second):
        raise ProfileError(
            "--cache and --storage need what reading costs out of memory, which the profile does "
            "not have: profile again without --no-storage, on files that are neither mapped nor "
            "just written"
        )
    values = {name: _values(name, text) for name, text in axes.items()}
    if math.prod(len(one) for one in values.values()) > MOST_POINTS:
        raise ProfileError(f"more than {MOST_POINTS} combinations: ask for fewer at once")
    base = replace(
        profile.resources,
        data_worker_cores=data_worker_cores,
        cache_policy=cast("CachePolicy", cache_policy),
    )
    configurations = (_with(base, names_values) for names_values in _all(values))
    return what_if(profile, configurations, overlap_copies=overlap_copies)


def _all(values: Mapping[str, Sequence[float]]) -> Iterable[dict[str, float]]:
    for combination in product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _with(base: Resources, chosen: Mapping[str, float]) -> Resources:
    changes: dict[str, Any] = {_FIELDS[name]: value for name, value in chosen.items()}
    if "cores" in chosen and "workers" not in chosen and base.workers:
        changes["workers"] = max(base.workers, math.ceil(chosen["cores"]))
        if changes["workers"] > MOST_WORKERS:
            raise ProfileError(
                f"--cores {chosen['cores']:g}: as many workers go with them, and at most "
                f"{MOST_WORKERS} are simulated: ask for fewer, or say --workers too"
            )
    for name in ("workers", "data_workers"):
        if name in changes:
            changes[name] = int(changes[name])
    found = replace(base, **changes)
    makers = found.workers + found.data_workers * max(1, round(found.data_worker_cores))
    if makers > MOST_WORKERS:
        raise ProfileError(
            f"--workers {found.workers} and --data-workers {found.data_workers} with "
            f"--data-worker-cores {found.data_worker_cores:g} each are {makers} makers of batches; "
            f"at most {MOST_WORKERS} are simulated: ask for fewer"
        )
    return found


def _values(axis: str, text: str) -> list[float]:
    """The values that an option names, one or a range; errors quote all that was written."""
    said = f"--{axis.replace(' ', '-')} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
    low, dots, high = text.partition("..")
    first = _value(axis, low, said)
    if not dots:
        return [first]
    last = _value(axis, high, said)
    if last < first:
        raise ProfileError(f"{said}: the range ends before it begins")
    if axis in _BYTES:
        steps = POINTS - 1 if last > first else 0
        return [first + (last - first) * step / max(1, steps) for step in range(steps + 1)]
    count = min(POINTS, math.ceil(last - first) + 1)
    evenly = (round(first + (last - first) * at / max(1, count - 1)) for at in range(count))
    return sorted({first, last, *(float(value) for value in evenly if first <= value <= last)})


def _value(axis: str, text: str, said: str) -> float:
    plain = text.strip()
    try:
        if axis in _BYTES:
            bare = plain.removesuffix("/s").removesuffix("B") if plain != "B" else plain
            value = float(parse_bytes(bare))
        else:
            value = float(plain) if axis == "cores" else float(int(plain))
    except ValueError:
        form = "8GiB, 500MB/s or 0..64GiB" if axis in _BYTES else "8 or 2..32"
        raise ProfileError(f"{said}: must be as in {form}") from None
    except OverflowError:  # of a whole number that no float holds
        value = math.inf
    if not value >= 0:
        raise ProfileError(f"{said}: must be 0 or more")
    if value > _LARGEST[axis]:
        raise ProfileError(f"{said}: must be at most {_LARGEST[axis]:g}")
    if axis in ("storage", "cores") and not value:
        raise ProfileError(f"{said}: must be more than 0")
    return value


def show(profile: Profile, axes: Sequence[str], points: Sequence[Point], *, as_json: bool) -> None:
    """Print the answers."""
    if as_json:
        answers = [
            {
                **asdict(point.resources),
                "share": point.placement.share,
                "cut": point.placement.cut.name,
                **asdict(point.prediction),
                **_cuts(profile, point),
            }
            for point in points
        ]
        measured = profile.rate.to_json()
        answer = {
            "program": profile.program,
            "measured": measured,
            "copy_seconds": profile.copy_seconds,
            "points": answers,
        }
        typer.echo(json.dumps(answer))
        return
    best = knee(points) if len(points) > 1 else None
    head = [*axes, unit(profile), "95 of 100 between", "waits", "binds"]
    rows = [head, *(_row(axes, point, point is best) for point in points)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        typer.echo("  ".join([*cells, row[-1]]))
    typer.echo(
        f"\n{profile.program} as it was: {of_rate(profile.rate.value)} {unit(profile)}"
        f"{_copies(profile)}"
    )
    told = best or points[-1]
    if told.resources.data_workers:
        compared = compare_cuts(profile, told.resources)
        number = told.resources.data_workers
        typer.echo(f"with {number} data worker{'s' * (number > 1)}, {compared.why}")
    for note in profile.notes:
        typer.echo(f"note: {note}", err=True)
    if any(point.prediction.extrapolated for point in points):
        typer.echo("* far from what was measured: the interval is wider for it", err=True)


def _cuts(profile: Profile, point: Point) -> dict[str, Any]:
    """Which cut pays with so many data workers, and what the others would do."""
    if not point.resources.data_workers:
        return {}
    compared = compare_cuts(profile, point.resources)
    return {
        "cuts": [asdict(one) for one in compared.options],
        "chosen_cut": str(compared.chosen.kind) if compared.chosen else None,
        "runner_up": str(compared.runner_up.kind) if compared.runner_up else None,
        "cut_why": compared.why,
    }


def _copies(profile: Profile) -> str:
    if not profile.copy_seconds:
        return ""
    share = profile.causes.get(HOST_TO_DEVICE, 0.0)
    each = 1e3 * profile.copy_seconds
    return f"; copies to its device held it up for {each:.3g} ms a batch, {share:.0%} of the time"


def _row(axes: Sequence[str], point: Point, best: bool) -> list[str]:
    found = point.prediction
    cells = []
    for axis in axes:
        value = getattr(point.resources, _FIELDS[axis])
        if axis == "cache":
            cells.append(f"{format_bytes(int(value))}B" if value else "0")
        elif axis == "storage":
            cells.append(_speed(value))
        else:
            cells.append(f"{value:g}")
    notes = in_words(found.binding).removeprefix("the ")
    notes += "  <- the least that gives 99 % of the best" if best else ""
    return [
        *cells,
        f"{of_rate(found.rate)}{'*' if found.extrapolated else ''}",
        f"{of_rate(found.low)} - {of_rate(found.high)}",
        f"{found.stalled:.0%}",
        notes,
    ]


def _speed(bytes_per_second: float) -> str:
    """As it is asked for: 500 MB/s."""
    unit = next((unit for unit in _SPEEDS if bytes_per_second >= _SPEEDS[unit]), "B")
    return f"{bytes_per_second / _SPEEDS.get(unit, 1):.4g} {unit}/s"


def draw(profile: Profile, axes: Sequence[str], points: Sequence[Point], path: Path) -> None:
    """The rates over the one axis that was asked for.

    Raises:
        ProfileError: there are more axes than one, or matplotlib is missing or cannot write there.
    """
    if len(axes) != 1 or len(points) < 2:
        raise ProfileError("--plot draws one range over one axis")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ProfileError(
            "--plot needs matplotlib: install penstock[sim], or leave --plot out"
        ) from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    x = [getattr(point.resources, _FIELDS[axes[0]]) for point in points]
    axis.plot(x, [point.prediction.rate for point in points], marker="o", label="predicted")
    axis.fill_between(
        x,
        [point.prediction.low for point in points],
        [point.prediction.high for point in points],
        alpha=0.2,
    )
    axis.axhline(profile.rate.value, linestyle="--", color="black", label="measured, as it was")
    axis.set(xlabel=axes[0], ylabel=unit(profile), title=profile.program)
    axis.grid(alpha=0.3)
    axis.legend()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot write the picture {path}: {error}") from None
