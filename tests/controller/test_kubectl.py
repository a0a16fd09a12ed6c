"""What a person does with kubectl, and a HorizontalPodAutoscaler with the scale subresource.

The file passes on any cluster: PENSTOCK_TEST_KUBECONFIG names one, else an embedded one is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controller.real_cluster import (
    LIVE,
    Cluster,
    Controllers,
    job,
    needs_kubectl,
    scale,
    until,
)

Json = dict[str, Any]

pytestmark = [needs_kubectl, pytest.mark.e2e]


@pytest.fixture
def settled_job(
    cluster: Cluster, controller: Controllers, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A running job with two workers; deleted at the end."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    cluster.create(job(name, workers={"replicas": 2}))
    cluster.wait(f"ej/{name}", "Running")
    cluster.wait(f"ej/{name}", "Scaling=False")
    yield name
    cluster.kubectl("delete", "ej", name, "--ignore-not-found", "--wait=false")


def test_kubectl_scale_makes_workers(cluster: Cluster, settled_job: str) -> None:
    cluster.kubectl("scale", f"ej/{settled_job}", "--replicas=4")
    until("four workers", lambda: len(cluster.workers(settled_job)) == 4)
    cluster.wait(f"ej/{settled_job}", "Scaling=False")
    line = cluster.kubectl("get", "ej", settled_job).splitlines()[1].split()
    assert line[:3] == [settled_job, "Running", "4/4"]


def test_patch_to_zero_returns_to_plan(cluster: Cluster, settled_job: str) -> None:
    plan = f"{settled_job}-plan"
    cluster.create(scale(plan, settled_job, cluster.uid(settled_job), {"worker": {"replicas": 3}}))
    cluster.wait(f"scale.penstock.dev/{plan}", "Admitted")
    status = cluster.get("scale.penstock.dev", plan)["status"]
    assert {c["type"]: c["reason"] for c in status["conditions"]}["Applied"] == "FixedBySpec"
    assert len(cluster.workers(settled_job)) == 2
    patch = json.dumps({"spec": {"replicaSpecs": {"worker": {"replicas": 0}}}})
    cluster.kubectl("patch", "ej", settled_job, "--type=merge", "-p", patch)
    cluster.wait(f"scale.penstock.dev/{plan}", "Applied")
    assert len(cluster.workers(settled_job)) == 3
    assert cluster.get("ej", settled_job)["status"]["plan"]["name"] == plan


def test_autoscaler_reads_and_writes_scale(cluster: Cluster, settled_job: str) -> None:
    place = f"/apis/penstock.dev/v1alpha1/namespaces/{cluster.namespace}"
    path = f"{place}/elasticjobs/{settled_job}/scale"
    found = json.loads(cluster.kubectl("get", "--raw", path))
    assert found["spec"]["replicas"] == 2
    assert found["status"]["replicas"] == 2
    selected = cluster.find("pods", "-l", found["status"]["selector"])
    assert sorted(pod["metadata"]["name"] for pod in selected) == cluster.workers(settled_job)
    found["spec"]["replicas"] = 3
    cluster.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(found))
    until("three workers", lambda: len(cluster.workers(settled_job)) == 3)
    until(
        "three in the status of scale",
        lambda: json.loads(cluster.kubectl("get", "--raw", path))["status"]["replicas"] == 3,
    )


def test_deleted_objects_come_back_with_the_same_token(
    cluster: Cluster, controller: Controllers
) -> None:
    """Whatever of a settled job is deleted, old and new pods know each other."""
    name = "bereft"
    cluster.create(job(name, f"echo token=$PENSTOCK_JOB_TOKEN; {LIVE}", workers={"replicas": 1}))
    cluster.wait(f"ej/{name}", "Running")
    owned = (f"service/{name}", f"secret/{name}-token", f"serviceaccount/{name}-trainer")
    before = cluster.get(f"secret/{name}-token")
    cluster.kubectl("delete", *owned, f"rolebinding/{name}-trainer")
    for one in (*owned, f"rolebinding/{name}-trainer"):
        until(
            f"{one} again",
            lambda one=one: "NotFound" not in cluster.kubectl("get", one, check=False),
        )
    after = cluster.get(f"secret/{name}-token")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["data"] == before["data"]
    cluster.kubectl("scale", f"ej/{name}", "--replicas=2")
    cluster.wait(f"ej/{name}", "Scaling=False")
    until("two workers", lambda: len(cluster.workers(name)) == 2)
    cluster.kubectl("delete", "pod", f"{name}-trainer-0-0", "--wait=false")
    until(
        "another trainer",
        lambda: (
            "Running"
            in cluster.kubectl(
                "get", "pod", f"{name}-trainer-0-1", "-o", "jsonpath={.status.phase}", check=False
            )
        ),
    )
    said = {
        until("the token", lambda pod=pod: cluster.kubectl("logs", pod, check=False).strip())
        for pod in cluster.workers(name)
    }
    [line] = said
    assert len(line) == len("token=") + 64
    cluster.kubectl("delete", "ej", name, "--wait=false")


def test_scales_go_with_their_job(cluster: Cluster, settled_job: str) -> None:
    plan = f"{settled_job}-plan"
    cluster.create(scale(plan, settled_job, cluster.uid(settled_job), {"worker": {"replicas": 3}}))
    cluster.wait(f"scale.penstock.dev/{plan}", "Admitted")
    cluster.kubectl("delete", "ej", settled_job)
    until("no Scale", lambda: "NotFound" in cluster.kubectl("get", "ejs", plan, check=False))


def test_a_bad_template_is_told_before_any_plan(cluster: Cluster, controller: Controllers) -> None:
    bad = job("unmade", optimize="Auto")
    container = bad["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 99999}]
    cluster.create(bad)
    cluster.wait("ej/unmade", "Accepted=False")
    [accepted] = [
        one
        for one in cluster.get("ej", "unmade")["status"]["conditions"]
        if one["type"] == "Accepted"
    ]
    assert accepted["reason"] == "InvalidTemplate"
    assert accepted["message"].startswith("spec.replicaSpecs.worker.template: ")
    assert "containerPort" in accepted["message"]
    cluster.kubectl("delete", "ej", "unmade", "--wait=false")


def test_scale_in_drains_the_highest_ranks(cluster: Cluster, settled_job: str) -> None:
    cluster.kubectl("scale", f"ej/{settled_job}", "--replicas=1")
    until("one worker", lambda: cluster.workers(settled_job) == [f"{settled_job}-worker-0-0"])
    cluster.wait(f"ej/{settled_job}", "Scaling=False")


def test_suspend_and_resume(cluster: Cluster, settled_job: str) -> None:
    patch = json.dumps({"spec": {"suspend": True}})
    cluster.kubectl("patch", "ej", settled_job, "--type=merge", "-p", patch)
    cluster.wait(f"ej/{settled_job}", "Suspended")
    assert not cluster.find("pods", "-l", f"penstock.dev/job={settled_job}")
    cluster.kubectl(
        "patch", "ej", settled_job, "--type=merge", "-p", patch.replace("true", "false")
    )
    cluster.wait(f"ej/{settled_job}", "Running")
    assert len(cluster.workers(settled_job)) == 2


def test_wait_for_every_condition(cluster: Cluster, controller: Controllers) -> None:
    cluster.create(job("good", "sleep 10; exit 0", workers={"replicas": 2}))
    for condition in ("Accepted", "Planned", "Running", "Suspended=False", "Succeeded"):
        cluster.wait("ej/good", condition)
    cluster.wait("ej/good", "Scaling=False")
    cluster.wait("ej/good", "Failed=False")
    assert cluster.get("ej", "good")["status"]["state"] == "Succeeded"


def test_failed_job_shows_the_end_of_its_log(cluster: Cluster, controller: Controllers) -> None:
    script = "for i in $(seq 1 30); do echo line $i; done; echo out of ideas >&2; exit 1"
    cluster.create(job("bad", script, failurePolicy={"maxRestarts": 1}))
    cluster.wait("ej/bad", "Failed")
    status = cluster.get("ej", "bad")["status"]
    failed = next(one for one in status["conditions"] if one["type"] == "Failed")
    assert failed["reason"] == "MaxRestartsExceeded"
    assert "exited with code 1" in failed["message"]
    assert "maxRestarts is 1" in failed["message"]
    lines = failed["message"].splitlines()
    assert len(lines) == 21
    assert "out of ideas" in lines
    assert "line 30" in lines
    assert "line 10" not in lines
    assert status["ranks"]["worker"]["0"]["restarts"] == 1
    until("no running pods", lambda: not cluster.workers("bad"))


def test_describe_shows_events(cluster: Cluster, settled_job: str) -> None:
    shown = cluster.kubectl("describe", "ej", settled_job)
    assert "Accepted" in shown
    assert "creates 1 trainer, 2 worker" in shown


def test_killed_worker_is_replaced_at_no_cost(cluster: Cluster, settled_job: str) -> None:
    cluster.kubectl("delete", "pod", f"{settled_job}-worker-1-0", "--wait=false")
    expected = [f"{settled_job}-worker-0-0", f"{settled_job}-worker-1-1"]
    until("the next incarnation", lambda: cluster.workers(settled_job) == expected)
    record = cluster.get("ej", settled_job)["status"]["ranks"]["worker"]["1"]
    assert record == {"incarnation": 1, "preemptions": 1}


def test_delete_without_the_controller(
    cluster: Cluster, settled_job: str, controller: Controllers
) -> None:
    controller.stop_all()
    try:
        cluster.kubectl("delete", "ej", settled_job, "--timeout=20s")
        selector = f"penstock.dev/job={settled_job}"
        for kind in ("pods", "services", "secrets", "serviceaccounts", "roles", "rolebindings"):
            until(
                f"the job's {kind} to be gone",
                lambda kind=kind: not cluster.find(kind, "-l", selector),
            )
    finally:
        controller.start()


def refused(cluster: Cluster, manifest: Json) -> str:
    """What kubectl prints for an object that the API server does not accept."""
    shown = cluster.kubectl("create", "-f", "-", text=json.dumps(manifest), check=False)
    assert "created" not in shown
    assert "Traceback" not in shown
    return shown


def test_annotations_of_5_megabytes_are_refused(cluster: Cluster) -> None:
    manifest = job("heavy")
    manifest["metadata"]["annotations"] = {f"note-{n}": "x" * (1 << 20) for n in range(5)}
    shown = refused(cluster, manifest)
    assert "too large" in shown.lower() or "too long" in shown.lower(), shown[:500]


def test_a_name_of_64_characters_is_refused(cluster: Cluster) -> None:
    shown = refused(cluster, job("a" * 64))
    assert "metadata.name" in shown
    assert "at most 63" in shown


def test_a_template_without_containers_is_refused(cluster: Cluster) -> None:
    manifest = job("empty")
    manifest["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"] = []
    shown = refused(cluster, manifest)
    assert "spec.replicaSpecs.worker.template.spec.containers" in shown


def test_a_name_of_63_characters_works(cluster: Cluster, controller: Controllers) -> None:
    name = "a" * 63
    cluster.create(job(name, workers={"replicas": 1}))
    cluster.wait(f"ej/{name}", "Running")
    assert cluster.workers(name) == [f"{name}-worker-0-0"]
    cluster.kubectl("delete", "ej", name, "--wait=false")


def test_a_scale_for_a_job_that_has_ended(cluster: Cluster, controller: Controllers) -> None:
    cluster.create(job("ended", "exit 0", workers={"replicas": 1}))
    cluster.wait("ej/ended", "Succeeded")
    cluster.create(scale("late", "ended", cluster.uid("ended"), {"worker": {"replicas": 2}}))
    cluster.wait("scale.penstock.dev/late", "Failed")
    status = cluster.get("scale.penstock.dev", "late")["status"]
    assert {one["reason"] for one in status["conditions"]} == {"JobFinished"}


def test_a_trainer_may_not_write_for_others(cluster: Cluster, settled_job: str) -> None:
    account = f"system:serviceaccount:{cluster.namespace}:{settled_job}-trainer"
    plan = scale("theirs", "other", "some-uid", {"worker": {"replicas": 2}}, source="Brain")
    shown = cluster.kubectl(
        "create", "-f", "-", f"--as={account}", text=json.dumps(plan), check=False
    )
    assert "spec.jobRef.name must be" in shown
    plan = scale("own", settled_job, cluster.uid(settled_job), {"worker": {"replicas": 2}})
    shown = cluster.kubectl(
        "create", "-f", "-", f"--as={account}", text=json.dumps(plan), check=False
    )
    assert "must have spec.source Brain" in shown
    plan["spec"]["source"] = "Brain"
    cluster.kubectl("create", "-f", "-", f"--as={account}", text=json.dumps(plan))
    cluster.wait("scale.penstock.dev/own", "Admitted")
