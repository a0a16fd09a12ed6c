"""From the chart of an earlier release to this one, while a job trains: it notices nothing.

The earlier chart is installed as it was published (``golden/VERSION/penstock-VERSION.tgz``). What
its controller's Deployment describes is run by this release's program: there is no image of earlier
ones. What that program does otherwise is made up for: until the upgrade it has the rights that
the earlier chart did not give (a job's trainer had no role of its own then, and nobody asked how
many shards there are), and the job's trainer has its rights in the way in which the earlier program
gave them. Brain and scheduler begin with the upgrade: this release's want tokens and rights that
the first chart did not give them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from penstock.crds import labels
from penstock.crds.group import GROUP
from tests.charts.installed import RBAC, RELEASE, Installed, installed, until
from tests.charts.rendering import CHART, SYSTEM, Json
from tests.charts.test_installed import (
    JOBS,
    SCALES,
    no_component_was_refused_anything,
    uid_of,
)
from tests.controller.real_cluster import scale
from tests.upgrade.test_goldens import GOLDEN, each_release

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
VALUES: Json = {"scheduler": {"interval": 1}}
EXAMPLE = CHART.parents[1] / "examples/digits/job.yaml"


def long_job() -> Json:
    """The demo's job, with two workers for as long as nobody says otherwise."""
    document: Json = yaml.safe_load(EXAMPLE.read_text())
    document["spec"]["optimize"] = "Manual"  # nobody waits for a Brain that is not there
    spec = document["spec"]["replicaSpecs"]["worker"]
    spec |= {"minReplicas": 1, "maxReplicas": 2}
    [container] = spec["template"]["spec"]["containers"]
    container["command"] = [*container["command"], "--epochs=100000"]
    return document


EARLIER: Json = {"metadata": {"name": "of-a-later-program"}}
"""By this name the controller has, before the upgrade, the rights that the earlier chart lacks."""


async def give_later_rights(found: Installed) -> None:
    """Let the earlier chart's controller make roles for trainers, and look for shards."""
    single = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["get", "list", "create"]},
        # Nobody hands on what they do not hold.
        {"apiGroups": [GROUP], "resources": ["elasticjobs"], "verbs": single},
        {"apiGroups": [GROUP], "resources": ["elasticjobs/status"], "verbs": ["patch"]},
        {"apiGroups": [GROUP], "resources": ["scales"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    await found.api.create(f"clusterroles.{RBAC}", {**EARLIER, "rules": rules})
    account = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": "penstock-controller"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": EARLIER["metadata"]["name"]}
    binding = {**EARLIER, "roleRef": role, "subjects": [account]}
    await found.api.create(f"clusterrolebindings.{RBAC}", binding)


async def take_later_rights(found: Installed) -> None:
    name = EARLIER["metadata"]["name"]
    await found.api.delete(f"clusterrolebindings.{RBAC}", name)
    await found.api.delete(f"clusterroles.{RBAC}", name)


async def bind_as_earlier(found: Installed, job: Json) -> None:
    """Give a job's trainer the earlier chart's role, as the earlier controller did."""
    metadata = job["metadata"]
    account = f"{metadata['name']}-trainer"
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    binding = {
        "metadata": {"name": account, "ownerReferences": [owner]},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "penstock-trainer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
    }
    await found.create(f"rolebindings.{RBAC}", binding)


async def pods_of(found: Installed) -> dict[str, str]:
    """The uids of the job's pods by name; all of them live."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in (await found.api.list("pods", "default")).items
        if pod["metadata"]["labels"].get(labels.JOB) == "digits"
        and pod["status"].get("phase") in {"Pending", "Running"}
    }


async def step(found: Installed) -> int:
    """How far the training is, as the Brain has heard."""
    uid = await uid_of(found, "digits")
    async with await found.brain() as brain:
        answer = await brain.get(f"/v1/jobs/{uid}")
    return int(answer.json()["step"]) if answer.status_code == 200 else 0


async def pin(found: Installed, name: str, workers: int) -> None:
    uid = await uid_of(found, "digits")
    target = {"worker": {"replicas": workers}}
    await found.create(SCALES, scale(name, "digits", uid, target, policy="Pin"))

    async def in_force() -> bool:
        one = await found.api.get(SCALES, name, "default")
        written = (one.get("status") or {}).get("conditions") or ()
        conditions = {each["type"]: each["status"] for each in written}
        return conditions.get("Applied") == "True"

    await until(f"{name} is applied", in_force, 40)


@each_release
def test_a_job_trains_on_through_an_upgrade(release: str, tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        await give_later_rights(found)
        await bind_as_earlier(found, await found.create(JOBS, long_job()))
        await found.start("controller")
        await until("it runs", lambda: found.condition("digits", "Running"), 50)
        await pin(found, "before", 2)
        pods = await pods_of(found)
        secret = (await found.api.get("secrets", "digits-token", "default"))["data"]

        await found.helm(lambda config: config.upgrade(CHART, RELEASE, VALUES))
        await found.stop("controller")
        await take_later_rights(found)
        found.recorded.refused.clear()
        await found.start_all()

        trained = await until("it trains", lambda: step(found))

        async def further() -> bool:
            return await step(found) > trained

        await until("it trains on", further)
        assert await pods_of(found) == pods
        assert (await found.api.get("secrets", "digits-token", "default"))["data"] == secret
        await pin(found, "after", 1)
        assert len(await pods_of(found)) == len(pods) - 1
        no_component_was_refused_anything(found)

    async def main() -> None:
        chart = GOLDEN / release / f"{RELEASE}-{release}.tgz"
        async with installed(tmp_path, VALUES, chart=chart) as found:
            await story(found)

    asyncio.run(main())
