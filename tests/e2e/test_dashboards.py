"""Every query of the jobs' and the Brain's dashboards, answered while a job is trained."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from penstock.data.cache.client import CacheClient
from penstock.scheduler.dashboards.brain import BRAIN
from penstock.scheduler.dashboards.jobs import JOBS
from tests.data.cache.daemons import daemon, files, place, read
from tests.data.planes import SCRIPT
from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, script
from tests.scheduler.prometheus import answered, free_port, needs_prometheus, scraping
from tests.trainer.gpu.fake_nvml import library_path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl, needs_prometheus]

DATA_WORKER = ["penstock", "data-worker"]


def job(name: str, python_path: str) -> Json:
    """A job with a data worker of its own command, which runs on until it is deleted.

    Its agents find a library that shows GPUs.
    """
    made = job_manifest(name, script("import time; time.sleep(300)"))
    template = made["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"]["containers"][0]["env"] = [
        {"name": "PYTHONPATH", "value": python_path},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
    ]
    made["spec"]["replicaSpecs"]["dataWorker"] = {"replicas": 1, "template": template}
    return made


def fed_job() -> Json:
    """A job that waits for its data, whose input is measured, alone in its share group."""
    made = job_manifest("watched-input", script(SCRIPT))
    made["spec"]["input"] = {"share": {"group": "watched"}}
    container = {"name": "main", "image": "penstock/examples", "command": DATA_WORKER}
    made["spec"]["replicaSpecs"]["dataWorker"] = {
        "replicas": 1,
        "template": {"spec": {"containers": [container]}},
    }
    [main] = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    main["env"] = [{"name": "SLOW", "value": "0.02"}, {"name": "EPOCHS", "value": "1000"}]
    return made


@contextlib.contextmanager
def node_cache(folder: Path) -> Iterator[str]:
    """A node's file cache whose files are read again and again; where its metrics are."""
    made, metrics = files(folder, 4), f"127.0.0.1:{free_port()}"
    over = threading.Event()
    with daemon(place(), folder, more=["--metrics-port", metrics.partition(":")[2]]) as node:
        client = CacheClient(node.place)

        def reading() -> None:
            while not over.wait(0.05):
                for name in made:
                    read(client, folder, name)

        reader = threading.Thread(target=reading)
        reader.start()
        try:
            yield metrics
        finally:
            over.set()
            reader.join()


def test_every_query_has_an_answer(plane: ControlPlane, tmp_path: Path) -> None:
    components, path = plane.state.components, library_path(tmp_path)
    targets = {
        name: components[name].url.removeprefix("http://")
        for name in ("brain", "controller", "scheduler")
    }

    async def story() -> None:
        with node_cache(tmp_path / "files") as targets["cache"]:
            await look()

    async def look() -> None:
        async with scraping(tmp_path, targets) as prometheus:
            await answered(prometheus, ["up"])
            await asyncio.to_thread(plane.apply, job("watched", path))
            await asyncio.to_thread(plane.apply, fed_job())
            # A rate needs something to happen between two scrapes: an algorithm asked once more.
            await answered(prometheus, ["penstock_brain_algorithm_duration_seconds_count"])
            await asyncio.to_thread(plane.apply, job("watched-too", path))
            await answered(prometheus, chain(JOBS.queries(), BRAIN.queries()))

    try:
        asyncio.run(story())
    finally:
        names = ("watched", "watched-too", "watched-input")
        plane.kubectl("delete", "ej", *names, "--ignore-not-found")
