"""The chart in a cluster that enforces roles: a job goes through with exactly its rights."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import helm_python as helm
import httpx
import pytest
import yaml

from penstock.base.shards import lease_name
from penstock_cluster.registry import ApiError
from penstock_cluster.registry.admission.escalation import parts
from tests.charts.installed import (
    COMPONENTS,
    RBAC,
    RELEASE,
    Installed,
    installed,
    meeting_restricted,
    until,
)
from tests.charts.rendering import CHART, SYSTEM, Json
from tests.controller.real_cluster import job, scale

ROOT = CHART.parents[1]
JOBS, SCALES = "elasticjobs.penstock.dev", "scales.penstock.dev"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(story: Any, folder: Path, values: Json | None = None) -> None:
    async def main() -> None:
        async with installed(folder, values) as found:
            await story(found)

    asyncio.run(main())


async def phase_in(brain: httpx.AsyncClient, phase: str) -> bool:
    """Whether the Brain's only job is in a phase."""
    [known] = (await brain.get("/v1/jobs")).json()["items"]
    return bool(known["phase"] == phase)


def no_component_was_refused_anything(found: Installed) -> None:
    for component in COMPONENTS:
        account = f"{SYSTEM}:penstock-{component}"
        assert found.recorded.refused_to(account) == [], component


async def no_secret_was_written(found: Installed) -> None:
    secrets, logs = await found.secrets(), found.logs()
    assert len(secrets) > len(COMPONENTS)
    assert len(logs) > len(COMPONENTS)
    for path, text in logs.items():
        assert not any(secret in text for secret in secrets), path


def test_a_real_job_goes_through(tmp_path: Path) -> None:
    """The demo's job, one epoch of it, where only restricted pods may run.

    Every right of its trainer's role is used as well.
    """

    async def story(found: Installed) -> None:
        await found.enforce_restricted("default")
        await found.start_all()
        example = yaml.safe_load((ROOT / "examples/digits/job.yaml").read_text())
        document = meeting_restricted(example)
        spec = document["spec"]["replicaSpecs"]["worker"]
        spec["maxReplicas"] = 2
        [container] = spec["template"]["spec"]["containers"]
        container["command"] = [*container["command"], "--epochs=1"]
        await found.create(JOBS, document)
        await until("a plan", lambda: found.condition("digits", "Planned"), 40)
        await until("the end", lambda: found.condition("digits", "Succeeded"), 50)
        async with await found.brain() as brain:
            await until("the Brain hears of it", lambda: phase_in(brain, "Succeeded"), 20)
        await report_health(found)
        account = "default:digits-trainer"
        assert found.recorded.refused_to(account) == []
        assert found.unused(account) == []
        no_component_was_refused_anything(found)
        await no_secret_was_written(found)

    run(story, tmp_path)


async def report_health(found: Installed) -> None:
    """What a trainer does whose storage was unhealthy for a while."""
    trainer = found.cluster.engine.api(
        "system:serviceaccount:default:digits-trainer", groups=("system:authenticated",)
    )
    healthy = {"status": {"problems": []}}
    await trainer.patch(JOBS, "digits", healthy, "default", subresource="status")


SPARE = [
    (
        "penstock-controller",
        {
            "verbs": [verb],
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [lease_name(1)],
        },
    )
    for verb in ("get", "update", "patch")
]
"""To the Lease of a second shard, which two replicas may hold: whoever has it gives it back after
there is one shard again."""


def test_every_right_is_used_and_none_is_missing(tmp_path: Path) -> None:
    """Whatever a component does happens once; what it may do beyond that is one right too many."""

    async def story(found: Installed) -> None:
        for resource in ("elasticjobs/status", "scales/status"):
            await found.cluster.faults.conflict_writes(
                resource=resource, user_agent="penstock-controller*"
            )
        await things_in_the_way(found)
        await found.start("scheduler")
        await found.start("brain")
        await until("a planner leads", lambda: planner_leads(found))
        await found.start("controller")  # it looks for a planner first, then every ten seconds
        await found.ready("brain")
        await asyncio.gather(
            a_job_fails_and_expires(found),
            a_job_is_scaled_and_resized(found),
            a_worker_runs_out_of_memory(found),
            data_workers_are_placed(found),
            a_starved_job_gets_a_data_worker(found),
            a_person_overrides_a_plan(found),
            two_jobs_share(found),
            others_objects_stay(found),
        )
        await the_planner_goes_away(found)
        await found.stop("controller")
        no_component_was_refused_anything(found)
        for component in COMPONENTS:
            unused = found.unused(f"{SYSTEM}:penstock-{component}")
            assert unused == (SPARE if component == "controller" else []), component

    run(story, tmp_path, {"scheduler": {"interval": 1}})


def quick(name: str, command: str = "", **spec: Any) -> Json:
    return job(name, command, **spec) if command else job(name, **spec)


async def worker(found: Installed, name: str) -> Json | None:
    """The job's running worker of rank 0."""
    pods = await found.api.list("pods", "default", label_selector=f"penstock.dev/job={name}")
    for pod in pods.items:
        tags = pod["metadata"]["labels"]
        if (tags["penstock.dev/role"], tags.get("penstock.dev/rank")) == ("worker", "0"):
            running = pod["status"].get("phase") == "Running"
            if running and "deletionTimestamp" not in pod["metadata"]:
                one: Json = pod
                return one
    return None


async def uid_of(found: Installed, name: str) -> str:
    return str((await found.api.get(JOBS, name, "default"))["metadata"]["uid"])


IN_THE_WAY = {
    "services": ("", {"spec": {"clusterIP": "None"}}),
    "secrets": ("-token", {}),
    "serviceaccounts": ("-trainer", {}),
    f"roles.{RBAC}": ("-trainer", {"rules": []}),
    f"rolebindings.{RBAC}": (
        "-trainer",
        {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}},
    ),
    "pods": (
        "-trainer-0-0",
        {"spec": {"containers": [{"name": "c", "image": "i", "command": ["sleep", "60"]}]}},
    ),
}


async def things_in_the_way(found: Installed) -> None:
    """Somebody else's objects under the names that a job's would have."""
    for resource, (suffix, content) in IN_THE_WAY.items():
        name = f"way-{resource.partition('.')[0]}"
        await found.create(resource, {"metadata": {"name": f"{name}{suffix}"}, **content})
        await found.create(JOBS, quick(name))


async def others_objects_stay(found: Installed) -> None:
    """Jobs whose names are taken say so, and take nothing."""
    for resource in IN_THE_WAY:
        name = f"way-{resource.partition('.')[0]}"

        async def told(name: str = name) -> bool:
            document = await found.api.get(JOBS, name, "default")
            return "already exists" in str(document.get("status"))

        await until(f"{name} says what is in the way", told)


async def a_job_fails_and_expires(found: Installed) -> None:
    command = "echo last words; exit 1"
    limits = {"maxRestarts": 0}
    await found.create(
        JOBS, quick("fails", command, failurePolicy=limits, ttlSecondsAfterFinished=2)
    )
    failed = await until("it fails", lambda: found.condition("fails", "Failed"))
    assert "last words" in failed["message"]

    async def gone() -> bool:
        return await found.find(JOBS, "fails") is None

    await until("it expires", gone)


async def a_job_is_scaled_and_resized(found: Installed) -> None:
    await found.create(JOBS, quick("sized"))
    await until("a worker runs", lambda: worker(found, "sized"))
    uid = await uid_of(found, "sized")
    roles = {"worker": {"replicas": 2, "resources": {"cpu": "20m", "memory": "32Mi"}}}
    await found.create(SCALES, scale("sized-1", "sized", uid, roles, ttlSecondsAfterFinished=1))

    async def resized() -> bool:
        pod = await worker(found, "sized")
        return pod is not None and (
            pod["spec"]["containers"][0]["resources"].get("limits", {}).get("cpu") == "20m"
        )

    await until("it is resized", resized)
    owners = (await found.api.get(SCALES, "sized-1", "default"))["metadata"]["ownerReferences"]
    assert owners[0]["uid"] == uid
    await asyncio.sleep(1.1)  # names sort Scales of one second; here time does
    roles = {"worker": {"replicas": 1, "resources": {"cpu": "30m", "memory": "32Mi"}}}
    await found.create(SCALES, scale("sized-2", "sized", uid, roles))

    async def gone() -> bool:
        return await found.find(SCALES, "sized-1") is None

    await until("the old Scale is removed", gone)


async def a_worker_runs_out_of_memory(found: Installed) -> None:
    await found.create(JOBS, quick("hungry"))
    pod = await until("a worker runs", lambda: worker(found, "hungry"))
    await found.cluster.faults.oom_kill_container(name=pod["metadata"]["name"])

    async def doubled() -> bool:
        scales = (await found.api.list(SCALES, "default")).items
        return any(one["spec"].get("reason") == "OutOfMemory" for one in scales)

    await until("the controller doubles its memory", doubled)


def data_worker(name: str, cpu: str) -> Json:
    document = quick(name)
    container = {
        "name": "main",
        "image": "i",
        "command": ["sleep", "60"],
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }
    document["spec"]["replicaSpecs"]["dataWorker"] = {
        "replicas": 1,
        "template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}},
    }
    return document


async def data_pod(found: Installed, name: str) -> Json | None:
    pods = await found.api.list("pods", "default", label_selector=f"penstock.dev/job={name}")
    for pod in pods.items:
        if pod["metadata"]["labels"]["penstock.dev/role"] == "data-worker":
            one: Json = pod
            return one
    return None


async def planner_leads(found: Installed) -> bool:
    return await found.find("leases.coordination.k8s.io", "penstock-scheduler", SYSTEM) is not None


async def data_workers_are_placed(found: Installed) -> None:
    """One is pinned, one fits nowhere, and a pin in vain is given up."""
    await found.create(JOBS, data_worker("fits", "100m"))
    await found.create(JOBS, data_worker("large", "1000"))

    async def gated() -> bool:
        pod = await data_pod(found, "large")
        return pod is not None and bool(pod["spec"].get("schedulingGates"))

    async def placed() -> bool:
        pod = await data_pod(found, "fits")
        notes = ((pod or {}).get("metadata") or {}).get("annotations") or {}
        return "penstock.dev/placement-node" in notes

    async def told() -> bool:
        events = (await found.api.list("events", "default")).items
        return any(one["reason"] == "Placed" for one in events)

    await until("one is gated", gated)
    await until("one is pinned", placed)
    await until("an Event says why", told)
    pod = await data_pod(found, "fits")
    assert pod is not None
    stuck = {
        "metadata": {
            "name": "stuck",
            "labels": {**pod["metadata"]["labels"], "penstock.dev/job-uid": "other"},
            "annotations": {
                "penstock.dev/placement-node": "gone",
                "penstock.dev/placement-time": "1.0",
            },
        },
        "spec": {
            "nodeSelector": {"no": "where"},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "command": ["sleep", "1"]}],
        },
    }
    await found.create("pods", stuck)

    async def gone() -> bool:
        return await found.find("pods", "stuck") is None

    await until("the pin in vain is given up", gone)


async def a_starved_job_gets_a_data_worker(found: Installed) -> None:
    document = data_worker("starved", "100m")
    del document["spec"]["replicaSpecs"]["dataWorker"]["replicas"]
    await found.create(JOBS, document)
    uid = await uid_of(found, "starved")
    async with await found.brain() as brain:
        await register(brain, uid, "starved")
        now = asyncio.get_running_loop().time()

        async def given() -> bool:
            sample = {
                "time": found.now(),
                "step": int(asyncio.get_running_loop().time() - now) + 10,
                "steps_per_second": 2.0,
                "world_size": 1,
                "roles": {"worker": {"0": {"cpu_cores": 0.5, "memory_bytes": 1000}}},
                "queue": {
                    "enqueued_per_second": 2.0,
                    "dequeued_per_second": 2.0,
                    "ideal_per_second": 20.0,
                },
            }
            sent = await brain.post(f"/v1/jobs/{uid}/samples", json={"samples": [sample]})
            assert sent.status_code < 300, sent.text
            scales = (await found.api.list(SCALES, "default")).items
            return any(one["spec"]["source"] == "Scheduler" for one in scales)

        await until("the scheduler gives it one", given)


async def two_jobs_share(found: Installed) -> None:
    """The second of a share group becomes an owner of what the first made."""
    for name in ("shares", "shares-too"):
        await found.create(JOBS, quick(name, input={"share": {"group": "both"}}))

    async def owned() -> bool:
        service = await found.find("services", "penstock-share-both")
        return len((service or {"metadata": {}})["metadata"].get("ownerReferences", ())) == 2

    await until("both own the Service of their group", owned)


async def register(brain: Any, uid: str, name: str) -> None:
    answer = await brain.put(
        f"/v1/jobs/{uid}",
        json={
            "name": name,
            "namespace": "default",
            "strategy": "AllReduce",
            "roles": {"worker": {"max_replicas": 4, "cpu": "500m", "memory": "512Mi"}},
            "slots_per_step": 4,
        },
    )
    assert answer.status_code == 200, answer.text


async def a_person_overrides_a_plan(found: Installed) -> None:
    await found.create(JOBS, quick("minded"))
    uid = await uid_of(found, "minded")
    async with await found.brain() as brain:
        await register(brain, uid, "minded")
        # Somebody has taken the name that the Brain would give: it looks whose Scale that is.
        taken = scale("minded-user-000002", "minded", uid, {"worker": {"replicas": 1}})
        await found.create(SCALES, taken)
        body = {"policy": "Pin", "roles": {"worker": {"replicas": 2}}}
        answer = await brain.post(f"/v1/jobs/{uid}/plans", json=body)
        assert answer.status_code < 300, answer.text

        async def theirs() -> list[Json]:
            scales = (await found.api.list(SCALES, "default")).items
            return [one for one in scales if one["spec"].get("policy") == "Pin"]

        await until("it is a Scale", theirs)
        answer = await brain.delete(f"/v1/jobs/{uid}/override")
        assert answer.status_code < 300, answer.text

        async def gone() -> bool:
            return not await theirs()

        await until("the Scale is deleted", gone)


async def the_planner_goes_away(found: Installed) -> None:
    """The controller lifts the gates of a planner whose Lease has run out."""
    await found.stop("scheduler")
    lease = await found.api.get("leases.coordination.k8s.io", "penstock-scheduler", SYSTEM)
    assert not lease["spec"].get("holderIdentity"), "the Lease was not given back"
    old = {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
    await found.api.patch("leases.coordination.k8s.io", "penstock-scheduler", old, SYSTEM)

    async def lifted() -> bool:
        pod = await data_pod(found, "large")
        return pod is not None and not pod["spec"].get("schedulingGates")

    await until("the gate is lifted", lifted)


REMOVED = {
    "controller": ("clusterroles", {"resources": ["pods"], "verbs": ["create"]}),
    "scheduler": ("clusterroles", {"resources": ["nodes"], "verbs": ["list"]}),
    "brain": ("clusterroles", {"resources": ["tokenreviews"], "verbs": ["create"]}),
}


def test_a_right_that_is_taken_away_is_missed(tmp_path: Path) -> None:
    """What `Installed.unused` works out, done for real, once for each component."""

    async def story(found: Installed) -> None:
        for component, (plural, right) in REMOVED.items():
            name = f"penstock-{component}"
            role = await found.api.get(f"{plural}.{RBAC}", name)
            left = [
                part
                for rule in role["rules"]
                for part in parts(rule)
                if not right.items() <= part.items()
            ]
            assert len(left) == len([one for rule in role["rules"] for one in parts(rule)]) - 1
            await found.api.patch(f"{plural}.{RBAC}", name, {"rules": left})
        for component in COMPONENTS:
            await found.start(component)
        await found.create(JOBS, quick("blocked"))
        for component, (_, right) in REMOVED.items():

            async def refused(component: str = component, right: Json = right) -> bool:
                if component == "brain":
                    pod = await found.find("pods", "penstock-brain", SYSTEM)
                    token = await found.administrators_token()
                    await knock((pod or {}).get("status", {}).get("podIP"), token)
                return any(
                    [wanted.resource] == right["resources"] and [wanted.verb] == right["verbs"]
                    for wanted in found.recorded.refused_to(f"{SYSTEM}:penstock-{component}")
                )

            await until(f"the {component} is refused", refused, 40)
        pods = await found.api.list("pods", "default", label_selector="penstock.dev/job=blocked")
        assert pods.items == []

    run(story, tmp_path)


async def knock(address: str | None, token: str) -> None:
    """Ask the Brain for something that needs a token, if it listens already."""
    if not address:
        return
    async with httpx.AsyncClient(trust_env=False, timeout=5, verify=False) as client:
        try:
            answer = await client.get(
                f"https://{address}:8443/v1/jobs", headers={"Authorization": f"Bearer {token}"}
            )
        except httpx.TransportError:
            return
        assert answer.status_code >= 400


def test_helm_upgrades_the_crds_and_leaves_jobs_when_it_goes(tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        crds = "customresourcedefinitions.apiextensions.k8s.io"
        other = tmp_path / "other"
        shutil.copytree(CHART, other)
        path = other / "templates/generated/crds.yaml"
        path.write_text(path.read_text().replace("    - ej\n", "    - old\n"))
        await found.helm(lambda config: config.upgrade(other, RELEASE))
        document = await found.api.get(crds, JOBS)
        assert document["spec"]["names"]["shortNames"] == ["old"]
        await found.create(JOBS, quick("stays"))
        kept = await found.helm(lambda config: config.upgrade(CHART, RELEASE))
        assert (kept["revision"], kept["status"]) == (3, "deployed")
        document = await found.api.get(crds, JOBS)
        assert document["spec"]["names"]["shortNames"] == ["ej"]

        await found.helm(lambda config: config.uninstall(RELEASE))
        assert await found.find(JOBS, "stays") is not None
        assert await found.find("persistentvolumeclaims", "penstock-brain", SYSTEM) is not None
        for kind in ("clusterroles", "clusterrolebindings"):
            names = [
                one["metadata"]["name"] for one in (await found.api.list(f"{kind}.{RBAC}")).items
            ]
            assert not [name for name in names if name.startswith("penstock")]

        await found.helm(lambda config: config.install(CHART, RELEASE))
        await found.helm(lambda config: config.upgrade(CHART, RELEASE, {"crds": {"keep": False}}))
        await found.helm(lambda config: config.uninstall(RELEASE))
        with pytest.raises(ApiError):
            await found.api.get(JOBS, "stays", "default")

    run(story, tmp_path)


def test_a_leader_whose_rights_go_with_the_release_is_followed_in_time(tmp_path: Path) -> None:
    """Helm removes accounts and roles before the pods that use them have ended."""
    leases, lease = "leases.coordination.k8s.io", "penstock-controller"

    async def holder(found: Installed) -> str:
        document = await found.find(leases, lease, SYSTEM)
        return str(((document or {}).get("spec") or {}).get("holderIdentity") or "")

    async def story(found: Installed) -> None:
        await found.start("controller")
        first = await until("it leads", lambda: holder(found))
        await found.helm(lambda config: config.uninstall(RELEASE))
        await found.stop("controller")
        assert await holder(found) == first, "nobody may give it back any more"

        await found.helm(lambda config: config.install(CHART, RELEASE))
        await found.start("controller")

        async def taken_over() -> bool:
            return await holder(found) not in ("", first)

        await until("the next one leads", taken_over)

    run(story, tmp_path)


def test_helm_refuses_wrong_values_before_anything_is_there(tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        with pytest.raises(helm.HelmError, match="/brain/replicas"):
            await found.helm(
                lambda config: config.upgrade(CHART, RELEASE, {"brain": {"replicas": 2}})
            )
        deployment = await found.api.get("deployments.apps", "penstock-brain", SYSTEM)
        assert deployment["spec"]["replicas"] == 1

    run(story, tmp_path)
