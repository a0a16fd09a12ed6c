"""A control plane whose scheduler moves data workers, and what tests of it look at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.control_plane import ControlPlane, Json, control_plane, until

GPU: Final = "nvidia.com/gpu"
INTERVAL_SECONDS: Final = 2


def container(name: str, cpu: str, gpus: int = 0, **fields: Any) -> Json:
    limits = {"cpu": cpu, "memory": "256Mi"} | ({GPU: gpus} if gpus else {})
    return {
        "name": name,
        "image": "penstock/examples",
        "resources": {"limits": limits},
        **fields,
    }


@contextmanager
def undisturbed(folder: Path, program: str, **told: str) -> Iterator[subprocess.Popen[str]]:
    """A program alone, without waiting for anything, with these variables in its environment."""
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", "0", "--", sys.executable, "-c", program]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key} | told
    with (folder / "alone.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@contextmanager
def plane_of(folder: Path, nodes: list[Json], *options: str) -> Iterator[ControlPlane]:
    """A control plane on these nodes whose scheduler looks every few seconds."""
    declared = folder / "nodes.yaml"
    declared.write_text(yaml.safe_dump({"nodes": nodes}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_SCHEDULER_INTERVAL", str(INTERVAL_SECONDS))
        patch.setenv("PENSTOCK_SCHEDULER_TUNE_TRAINING_WORKERS", "1")
        with control_plane(folder, f"--nodes={declared}", *options) as running:
            yield running


def eventually(
    plane: ControlPlane,
    condition: Callable[[], Any],
    seconds: float = 40.0,
    every_seconds: float = 0.25,
) -> Any:
    """`until`, and what there was to see where it never comes."""
    try:
        return until(condition, seconds, every_seconds)
    except AssertionError:
        seen = plane.kubectl("get", "ej,scales,pods,events", "-o", "wide")
        raise AssertionError(seen + log_of(plane) + plane.last_words()) from None


def pods(plane: ControlPlane, role: str) -> list[Json]:
    """The job's pods that are there to stay."""
    items: list[Json] = plane.get("pods", selector=f"penstock.dev/role={role}")["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def serving(plane: ControlPlane) -> list[Json]:
    """The data workers that make batches."""
    return [one for one in pods(plane, "data-worker") if is_ready(one)]


def log_of(plane: ControlPlane) -> str:
    """What the training workers have printed."""
    names = [one["metadata"]["name"] for one in pods(plane, "worker")]
    return "".join(plane.logs(name) for name in names)


def scales(plane: ControlPlane, source: str = "Scheduler") -> list[Json]:
    """What the scheduler asked for, in this order."""
    own = [one for one in plane.get("scales")["items"] if one["spec"]["source"] == source]
    return sorted(own, key=lambda one: str(one["metadata"]["name"]))


def gpu_pod(name: str, cpu: str, **spec: Any) -> Json:
    live = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    spec = {"terminationGracePeriodSeconds": 1, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container("main", cpu, 1, command=live)], **spec},
    }
