"""The digits job, cut short enough for a test."""

from __future__ import annotations

from typing import Any

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


def final_result(plane: ControlPlane, job: str) -> dict[str, Any]:
    """The figures that the job printed at its end, from the log of any of its workers."""
    selector = f"penstock.dev/job={job},penstock.dev/role=worker"
    for pod in plane.get("pods", selector=selector)["items"]:
        if result := result_in(plane.kubectl("logs", pod["metadata"]["name"], "--tail=200")):
            return result
    raise AssertionError(f"no worker of {job} printed a result{plane.last_words()}")
