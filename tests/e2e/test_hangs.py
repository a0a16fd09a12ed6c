"""A rank that hangs on the cluster: named, ended as the job asks, and every sample counts once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, until
from tests.e2e.digits import final_result

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

SAMPLES: Final = 1200
EPOCHS: Final = 5
KNOWN_STEP: Final = 50
"""By then the usual pauses of a process are known; an epoch has 25 steps."""
ENDS: Final = "HungProcessEnded"


def hanging_job(name: str, response: str, folder: Path) -> Json:
    """Two workers, of which the first one to reach a step stands still in it."""
    command = ["penstock", "run", "--", sys.executable, "-m", "benchmarks.elastic.script"]
    options = [
        f"--log={folder}",
        f"--samples={SAMPLES}",
        f"--epochs={EPOCHS}",
        "--slots=4",
        "--slot-seconds=0.06",
        f"--hurry={folder / 'hurry'}",
        f"--hang-at-step={KNOWN_STEP}",
        f"--hung={folder / 'hung'}",
    ]
    return job_manifest(
        name,
        [*command, *options],
        strategy="AllReduce",
        optimize="Manual",
        worker={"minReplicas": 2, "maxReplicas": 2},
        failurePolicy={"onHang": response, "onHangAfterSeconds": 1},
    )


@pytest.mark.parametrize("response", ["Restart", "Replace"])
def test_a_rank_that_hangs_is_ended_as_the_job_asks_and_nothing_is_lost(
    plane: ControlPlane, tmp_path: Path, response: str
) -> None:
    job = f"hang-{response.lower()}"
    plane.apply(hanging_job(job, response, tmp_path))
    until((tmp_path / "hung").exists, 50)

    def said() -> str | None:
        """The condition that names the hung process, once there is one."""
        conditions = plane.get("ej", job)["status"]["conditions"]
        running: Json = next(one for one in conditions if one["type"] == "Running")
        return running["message"] if running["reason"] == ENDS else None

    message: str = until(said, 40)
    (tmp_path / "hurry").touch()
    rank = next(rank for rank in "01" if f"worker-{rank}" in message)
    first_pod = f"{job}-worker-{rank}-0"
    assert "stand_still" in message, "the function is not named"
    assert plane.get("pods", first_pod)["spec"]["nodeName"] in message
    until(lambda: "it is ended" in plane.logs(first_pod))
    for each in "01":  # whoever waits is looked at, too
        assert "takes no more steps" in plane.logs(f"{job}-worker-{each}-0"), "a stack is missing"
    log = plane.logs(first_pod)
    assert "stand_still" in log[: log.index("it is ended")], "no stack was kept before the end"

    plane.wait_for(job, "Succeeded", 50)
    result = final_result(plane, job)
    assert result["samples_seen"] == SAMPLES * EPOCHS
    assert result["samples_lost"] == result["samples_repeated"] == 0
    ranks = plane.get("ej", job)["status"].get("ranks", {}).get("worker", {})
    replaced = {each for each, one in ranks.items() if one.get("incarnation", 0)}
    assert replaced == ({rank} if response == "Replace" else set())
    events = json.loads(plane.kubectl("get", "events", "-o", "json"))["items"]
    assert any(one["reason"] == ENDS and one["involvedObject"]["name"] == job for one in events)
    plane.kubectl("delete", "ej", job, "--wait=false")
