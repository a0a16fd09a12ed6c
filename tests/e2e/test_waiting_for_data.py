"""A job that waits for its data: the Brain says so, and the scheduler gives it data workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.data.planes import SCRIPT
from tests.e2e.control_plane import (
    Json,
    control_plane,
    job_manifest,
    needs_kubectl,
    script,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]


def test_the_waiting_reaches_the_brain_and_the_scheduler_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SCHEDULER_INTERVAL", "2")
    settings = tmp_path / "brain.yaml"
    hurry = {"enough_seconds": 1, "enough_steps": 5, "reaction_seconds": 1, "interval_seconds": 3}
    settings.write_text(yaml.safe_dump({"administrator": hurry}))
    with control_plane(tmp_path, f"--brain-config={settings}") as plane:
        job = job_manifest("hungry", script(SCRIPT))
        container = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
        # It must not be over before its data workers are there, however long these take to start.
        endless = {"SLOW": "0.1", "EPOCHS": "1000"}
        container["env"] = [{"name": name, "value": value} for name, value in endless.items()]
        plane.apply(job)
        plane.wait_for("hungry", "Planned", 20)
        uid = plane.get("ej", "hungry")["metadata"]["uid"]

        def samples() -> list[Json]:
            return plane.brain(f"/v1/jobs/{uid}/samples?ranks=true&limit=500")["items"]

        def asked_for_data_workers() -> Json | None:
            plans = plane.brain(f"/v1/jobs/{uid}/plans")["items"]
            reasons = ("DataStall", "PredictedGain")
            return next((plan for plan in plans if plan["reason"] in reasons), None)

        plan = until(asked_for_data_workers, 60)
        # From the share of waiting where that is known first, or from a profile of the input.
        figure = {"data_workers": "wait_share", "offload": "stalled"}[plan["algorithm"]["name"]]
        assert plan["evidence"]["figures"][figure] > 0.3

        def sources() -> set[str]:
            return {one["spec"]["source"] for one in plane.get("scales")["items"]}

        until(lambda: "Scheduler" in sources())
        until(lambda: any("dataWorker" in one.get("ranks", {}) for one in samples()))
        # A sample has those alone that trained through its whole interval.
        workers = [one.get("ranks", {}).get("worker", {}) for one in samples()]
        waits = [by_rank["0"].get("wait_share") for by_rank in workers if "0" in by_rank]
        assert max(wait for wait in waits if wait is not None) > 0.3
