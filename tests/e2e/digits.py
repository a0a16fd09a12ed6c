"""The digits job, cut short enough for a test, or with a program that sleeps in its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.local.demo.observation.observer import result_in
from tests.e2e.control_plane import ROOT, ControlPlane, Json


def digits_job(name: str, *arguments: str) -> Json:
    """``examples/digits/job.yaml`` under another name, with more arguments for its script."""
    manifest: Json = yaml.safe_load((ROOT / "examples/digits/job.yaml").read_text())
    manifest["metadata"]["name"] = name
    container = manifest["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["command"] = [*container["command"], *arguments]
    return manifest


SLEEPING_SAMPLES: Final = 1200


def sleeping_job(name: str, folder: Path, epochs: int) -> Json:
    """The same job with a training whose steps sleep, which leaves the processor to others.

    Its steps are logged in the folder; they sleep no more once the file ``hurry`` is there.
    """
    manifest = digits_job(name)
    container = manifest["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["command"] = [
        *("penstock", "run", "--", sys.executable, "-m", "benchmarks.elastic.script"),
        *(f"--log={folder}", f"--hurry={folder / 'hurry'}", f"--epochs={epochs}"),
        *(f"--samples={SLEEPING_SAMPLES}", "--slots=4", "--slot-seconds=0.1"),
    ]
    return manifest


def final_result(plane: ControlPlane, job: str) -> dict[str, Any]:
    """The figures that the job printed at its end, from the log of any of its workers."""
    selector = f"penstock.dev/job={job},penstock.dev/role=worker"
    for pod in plane.get("pods", selector=selector)["items"]:
        if result := result_in(plane.kubectl("logs", pod["metadata"]["name"], "--tail=200")):
            return result
    raise AssertionError(f"no worker of {job} printed a result{plane.last_words()}")
