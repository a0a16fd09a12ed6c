"""Records what a release leaves behind: its objects, the Brain's database, and its chart.

    python -m tests.upgrade.record 0.1.0

Run once for each release, when it is made, and never again: later ones are held to these files.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

from tests.charts.installed import Installed, installed, until
from tests.charts.rendering import CHART, SYSTEM
from tests.charts.test_installed import JOBS, SCALES, uid_of
from tests.controller.real_cluster import job, scale

GOLDEN = Path(__file__).parent / "golden"


async def life(found: Installed) -> None:
    """A finished job with plans of the Brain, a running one that is pinned, one that failed."""
    document = yaml.safe_load((CHART.parents[1] / "examples/digits/job.yaml").read_text())
    spec = document["spec"]["replicaSpecs"]["worker"]
    spec["maxReplicas"] = 2
    [container] = spec["template"]["spec"]["containers"]
    container["command"] = [*container["command"], "--epochs=12"]
    await found.create(JOBS, document)
    everything: dict[str, Any] = {
        "failurePolicy": {"maxRestarts": 1, "maxPreemptions": 7},
        "signature": {"model": "m", "dataset": "d", "user": "u", "code": "c"},
        "resourceLimits": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "input": {"offload": "Always", "skipBad": True, "leaseSeconds": 30},
        "activeDeadlineSeconds": 3600,
        "ttlSecondsAfterFinished": 86400,
    }
    bounds = {"minReplicas": 1, "maxReplicas": 3, "spareReplicas": 1}
    await found.create(JOBS, job("pinned", workers=bounds, **everything))
    await found.create(
        JOBS, job("fails", "echo last words; exit 1", failurePolicy={"maxRestarts": 0})
    )
    uid = await uid_of(found, "pinned")
    target = {
        "replicas": 2,
        "spareReplicas": 1,
        "resources": {"cpu": "20m", "memory": "32Mi"},
        "ranks": {"1": {"memory": "48Mi", "minIncarnation": 1, "avoidNodes": ["cpu-1"]}},
    }
    await found.create(SCALES, scale("pinned-1", "pinned", uid, {"worker": target}, policy="Pin"))
    await found.create(SCALES, scale("tried", "pinned", uid, {"worker": target}, dryRun=True))
    async with await found.brain() as brain:
        digits = await uid_of(found, "digits")

        async def measured() -> bool:
            answer = await brain.get(f"/v1/jobs/{digits}/samples")
            return bool(answer.status_code == 200 and answer.json()["items"])

        await until("digits is measured", measured, 60)
        body = {"policy": "Pin", "roles": {"worker": {"replicas": 1}}}
        answer = await brain.post(f"/v1/jobs/{digits}/plans", json=body)
        assert answer.status_code < 300, answer.text
        await until("fails fails", lambda: found.condition("fails", "Failed"))
        await until("digits ends", lambda: found.condition("digits", "Succeeded"), 180)
    await found.stop("controller")
    await found.stop("scheduler")
    await found.stop("brain")


def dump(folder: Path, claims: Path) -> None:
    """The database as SQL, which can be read and compared."""
    [database] = claims.glob("**/brain.sqlite")
    connection = sqlite3.connect(database)
    lines = list(connection.iterdump())
    connection.close()
    (folder / "brain.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


async def main(version: str) -> None:
    folder = GOLDEN / version
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        async with installed(Path(scratch), {"scheduler": {"interval": 1}}) as found:
            await found.start_all()
            await life(found)
            objects = [
                item
                for table in (JOBS, SCALES)
                for item in (await found.api.list(table, "default")).items
            ]
            text = yaml.safe_dump_all(yaml.safe_load(yaml.safe_dump(objects)), sort_keys=False)
            (folder / "objects.yaml").write_text(text, encoding="utf-8")
            dump(folder, Path(scratch))
    with helm.Chart.load(CHART) as chart:
        chart.save(folder)
    print(f"{len(objects)} objects of {SYSTEM}'s release {version}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
