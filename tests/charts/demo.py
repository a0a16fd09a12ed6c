"""The whole demo, with the chart's own pods, tokens and rights, in a namespace that is strict.

Its jobs' namespace takes restricted pods only, has a quota, and limits with defaults.

    python -m tests.charts.demo

takes as long as ``penstock demo``, which is why no test runs it (`test_installed` has the short
form); it fails where the demo does not go as promised, and where a component was refused anything.
The same on a cluster of one's own, which has no Penstock yet and pulls the images:

    PENSTOCK_TEST_KUBECONFIG=~/.kube/config PENSTOCK_TEST_VALUES=values.yaml \\
    PENSTOCK_TEST_IMAGE=REGISTRY/penstock/examples:0.1.0 python -m tests.charts.demo

``values.yaml``: values of the chart, `image.registry` for instance. The second job, which is fed by
data workers, is left out where no node has a GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import yaml

from penstock.local.demo.feeding import Feeding
from penstock.local.demo.observation.observer import Connection, Observer
from penstock.local.demo.observation.report import Report
from penstock.local.demo.run import BRAIN_CONFIG, IMAGES_TIMEOUT_SECONDS, NODES, observing
from penstock.local.demo.scenario import Demo
from penstock_cluster.nodes import NodeDeclaration, read_nodes_file
from tests.charts.elsewhere import JOBS_NAMESPACE, Elsewhere, ElsewhereError, PersonsObserver
from tests.charts.installed import COMPONENTS, Installed, installed, meeting_restricted
from tests.charts.rendering import CHART, SYSTEM, Json
from tests.controller.real_cluster import GIVEN

EXAMPLES = CHART.parents[1] / "examples"
PATIENCE_SECONDS = 600.0
"""For the first job, on a machine that has other work too."""
_QUOTA = {"hard": {"pods": "40", "requests.cpu": "32", "requests.memory": "64Gi"}}
_LIMITS = {
    "limits": [
        {
            "type": "Container",
            "defaultRequest": {"cpu": "100m", "memory": "128Mi"},
            "max": {"cpu": "8", "memory": "16Gi"},
        }
    ]
}
_TAINT = {"key": "system", "operator": "Exists"}
_PLACE = {"nodeSelector": {"system": "true"}, "tolerations": [_TAINT]}


async def demonstrate(found: Installed) -> Report:
    """Both jobs of the demo."""
    await found.enforce_restricted("default")
    await found.create("resourcequotas", {"metadata": {"name": "jobs"}, "spec": _QUOTA})
    await found.create("limitranges", {"metadata": {"name": "jobs"}, "spec": _LIMITS})
    await found.start_all()
    connection = Connection.from_kubeconfig(found.kubeconfig)
    digits = example("digits/job.yaml")
    async with observing(connection, await found.brain(), digits) as observer:
        report = await Demo(observer, digits, PATIENCE_SECONDS, lambda _: None).run()
    images = example("images/job_far.yaml")
    async with observing(connection, await found.brain(), images) as observer:
        feeding = Feeding(observer, images, IMAGES_TIMEOUT_SECONDS, lambda _: None)
        return replace(report, images=await feeding.run())


def example(name: str) -> Json:
    return meeting_restricted(yaml.safe_load((EXAMPLES / name).read_text()))


async def demonstrate_elsewhere(kubeconfig: Path, environ: Mapping[str, str]) -> int:
    """The same in a cluster of one's own."""
    values = Path(environ["PENSTOCK_TEST_VALUES"]) if "PENSTOCK_TEST_VALUES" in environ else None
    image = environ.get("PENSTOCK_TEST_IMAGE", "penstock/examples:latest")
    chosen: Json = yaml.safe_load(values.read_text()) if values is not None else {}
    async with Elsewhere(kubeconfig, chosen, image) as place:
        kinds = {"ResourceQuota": _QUOTA, "LimitRange": _LIMITS}
        metadata = {"name": "jobs", "namespace": JOBS_NAMESPACE}
        for kind, spec in kinds.items():
            place.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
        connection = await place.connection()
        digits = place.example(example("digits/job.yaml"))
        async with watched(connection, await place.brain(), digits) as observer:
            report = await Demo(observer, digits, PATIENCE_SECONDS, lambda _: None).run()
        if place.has_gpus:
            images = place.example(example("images/job_far.yaml"))
            async with watched(connection, await place.brain(), images) as observer:
                feeding = Feeding(observer, images, IMAGES_TIMEOUT_SECONDS, lambda _: None)
                report = replace(report, images=await feeding.run())
        else:
            print("no node has a GPU: the job with data workers was left out", file=sys.stderr)
        return said(report, [*report.faults(), *await place.faults()])


@contextlib.asynccontextmanager
async def watched(
    connection: Connection, brain: httpx.AsyncClient, job: Json
) -> AsyncIterator[Observer]:
    """As `observing`, without the embedded cluster's faults."""
    observer = PersonsObserver(connection, brain, JOBS_NAMESPACE, job["metadata"]["name"])
    try:
        yield observer
    finally:
        await observer.close()


def said(report: Report, faults: list[str]) -> int:
    """Print it; the exit code."""
    print(json.dumps(report.as_json(), indent=1))
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


async def main() -> int:
    if given := os.environ.get(GIVEN):
        try:
            return await demonstrate_elsewhere(Path(given), os.environ)
        except ElsewhereError as error:
            print(error, file=sys.stderr)
            return 1
    values = {
        "controller": _PLACE,
        "brain": {**_PLACE, "config": yaml.safe_load(BRAIN_CONFIG.read_text())},
        "scheduler": {**_PLACE, "interval": 2, "tuneTrainingWorkers": True},
    }
    system = NodeDeclaration(
        "system",
        cpu="4",
        memory="16Gi",
        labels={"system": "true"},
        taints=({"key": "system", "effect": "NoSchedule"},),
    )
    with tempfile.TemporaryDirectory() as folder:
        nodes = [*read_nodes_file(NODES), system]
        async with installed(Path(folder), values, nodes) as found:
            report = await demonstrate(found)
            faults = report.faults()
            quota = await found.api.get("resourcequotas", "jobs", "default")
            if quota.get("status", {}).get("hard") != _QUOTA["hard"]:
                faults.append(f"the quota was not in force: {quota}")
            for component in COMPONENTS:
                for wanted in found.recorded.refused_to(f"{SYSTEM}:penstock-{component}"):
                    faults.append(f"{component} was refused {wanted}")
    return said(report, faults)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
