"""Samples as a pandas frame, for notebooks. pandas is no dependency: it is used where it is."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.wire import SampleView


def rows(samples: Iterable[SampleView]) -> list[dict[str, Any]]:
    """One flat row per sample; what a role used is in columns such as ``worker_cpu_cores``."""
    found = []
    for sample in samples:
        row: dict[str, Any] = {
            "time": sample.time,
            "step": sample.step,
            "epoch": sample.epoch,
            "steps_per_second": sample.steps_per_second,
            "samples_per_second": sample.samples_per_second,
            "world_size": sample.world_size,
        }
        for role, use in sample.roles.items():
            name = role.in_names.replace("-", "_")
            for figure, value in use.model_dump().items():
                row[f"{name}_{figure}"] = value
        if sample.queue is not None:
            for figure, value in sample.queue.model_dump().items():
                row[f"queue_{figure}"] = value
        found.append(row)
    return found


def frame(samples: Iterable[SampleView]) -> Any:
    """A ``pandas.DataFrame`` of samples, indexed by time (UTC).

    Raises:
        ImportError: pandas is not installed; says what to install.
    """
    try:
        pd = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise ImportError("samples_frame needs pandas: pip install pandas") from error
    found = rows(samples)
    table = pd.DataFrame(found, columns=None if found else ["time", "step", "steps_per_second"])
    table["time"] = pd.to_datetime(table["time"], unit="s", utc=True)
    return table.set_index("time")
