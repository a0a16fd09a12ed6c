"""Pod manifests: what Penstock sets, and what it leaves to the template."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import (
    TRAINER_CPU_LIMIT,
    TRAINER_STARTUP_SECONDS,
    replica_pod,
    trainer_pod,
)
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.observed import Job, Settings
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.main_container import main_of_pod
from tests.controller.life import job as make_job

Json = dict[str, Any]
SETTINGS = Settings(trainer_image="trainer:1", brain_url="http://brain:8477")


def read(raw: Json) -> tuple[Job, ElasticJobSpec]:
    raw["metadata"].update(uid="job-uid", resourceVersion="1", namespace="team")
    spec, fault = read_spec(raw["spec"])
    assert spec is not None, fault
    return read_job(raw, spec, ""), spec


def environment(container: Json) -> Json:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_identity_of_a_pod() -> None:
    job, spec = read(make_job())
    pod = replica_pod(job, spec, Role.WORKER, 3, 2, RankTarget())
    assert pod["metadata"]["name"] == "job-worker-3-2"
    assert pod["metadata"]["labels"] == {
        "penstock.dev/job": "job",
        "penstock.dev/job-uid": "job-uid",
        "penstock.dev/role": "worker",
        "penstock.dev/rank": "3",
        "penstock.dev/incarnation": "2",
        "app.kubernetes.io/managed-by": "penstock",
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("worker-3", "job")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    found = environment(pod["spec"]["containers"][0])
    assert found["PENSTOCK_ROLE"] == "worker"
    assert found["PENSTOCK_RANK"] == "3"
    assert found["PENSTOCK_INCARNATION"] == "2"
    assert found["PENSTOCK_TRAINER_ADDRESS"] == "trainer-0.job.team.svc:8476"
    assert found["PENSTOCK_JOB_TOKEN"] == {"secretKeyRef": {"name": "job-token", "key": "token"}}
    assert found["PENSTOCK_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_what_the_user_set_is_kept_but_not_our_names() -> None:
    raw = make_job()
    worker = raw["spec"]["replicaSpecs"]["worker"]["template"]
    worker["metadata"] = {
        "labels": {"team": "a", "penstock.dev/rank": "9"},
        "annotations": {"x": "y"},
    }
    worker["spec"].update(
        restartPolicy="Always", nodeSelector={"gpu": "yes"}, initContainers=[{"name": "prepare"}]
    )
    worker["spec"]["containers"][0]["env"] = [
        {"name": "MINE", "value": "1"},
        {"name": "PENSTOCK_RANK", "value": "77"},
    ]
    job, spec = read(raw)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["penstock.dev/rank"] == "0"
    assert pod["metadata"]["annotations"] == {"x": "y", "penstock.dev/main-container": "main"}
    assert pod["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert pod["spec"]["restartPolicy"] == "Never"
    found = environment(pod["spec"]["containers"][0])
    assert (found["MINE"], found["PENSTOCK_RANK"]) == ("1", "0")
    assert environment(pod["spec"]["initContainers"][0])["PENSTOCK_JOB_UID"] == "job-uid"


def test_the_template_is_not_changed() -> None:
    job, spec = read(make_job())
    before = spec.model_dump_json()
    pod = replica_pod(
        job, spec, Role.WORKER, 0, 0, RankTarget(4000, 1 << 30, 0, ("n",)), spare=True
    )
    pod["spec"]["containers"][0]["env"].clear()
    assert spec.model_dump_json() == before


def test_resources_become_requests_and_limits_of_the_first_container() -> None:
    raw = make_job()
    containers = raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    containers[0]["resources"] = {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}}
    containers.append({"name": "side", "resources": {"requests": {"cpu": "1"}}})
    job, spec = read(raw)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget(2500, 3 << 30))
    first, second = pod["spec"]["containers"]
    assert first["resources"] == {
        "requests": {"cpu": "2500m", "memory": "3Gi"},
        "limits": {"nvidia.com/gpu": 1, "cpu": "2500m", "memory": "3Gi"},
    }
    assert second["resources"] == {"requests": {"cpu": "1"}}


def with_a_proxy(first: str, second: str) -> tuple[Job, ElasticJobSpec]:
    raw = make_job()
    spec = raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    [train] = spec["containers"]
    spec["containers"] = [{**train, "name": first}, {**train, "name": second}]
    spec["initContainers"] = [{"name": "fetch"}]
    return read(raw)


@pytest.mark.parametrize(
    ("names", "main"), [(("proxy", "main"), 1), (("main", "proxy"), 0), (("train", "proxy"), 0)]
)
def test_the_main_container_is_main_by_name_else_the_first(
    names: tuple[str, str], main: int
) -> None:
    job, spec = with_a_proxy(*names)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget(2500, 3 << 30))
    containers = pod["spec"]["containers"]
    template = spec.replica_specs.worker.template["spec"]["containers"]
    beside, trains = containers[1 - main], containers[main]
    assert pod["metadata"]["annotations"]["penstock.dev/main-container"] == names[main]
    assert trains["resources"]["limits"] == {"cpu": "2500m", "memory": "3Gi"}
    assert beside["resources"] == template[1 - main]["resources"]
    assert "PENSTOCK_JOB_TOKEN" in environment(trains)
    for other in (beside, pod["spec"]["initContainers"][0]):
        assert "PENSTOCK_JOB_TOKEN" not in environment(other)
        assert environment(other)["PENSTOCK_RANK"] == "0"
    data_worker = replica_pod(job, spec, Role.DATA_WORKER, 0, 0, RankTarget())
    assert [one["name"] for one in data_worker["spec"]["containers"]] == [names[main]]


def test_a_pod_knows_its_main_container_when_another_is_put_before_it() -> None:
    job, spec = read(make_job())
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())
    pod["spec"]["containers"][0]["name"] = "train"
    pod["metadata"]["annotations"]["penstock.dev/main-container"] = "train"
    assert main_of_pod(pod)["name"] == "train"
    pod["spec"]["containers"].insert(0, {"name": "injected"})
    assert main_of_pod(pod)["name"] == "train"
    del pod["metadata"]["annotations"]
    assert main_of_pod(pod)["name"] == "injected"


def test_a_sidecar_that_names_a_token_is_given_it() -> None:
    raw = make_job()
    containers = raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    containers.append({"name": "side", "env": [{"name": "PENSTOCK_JOB_TOKEN"}]})
    job, spec = read(raw)
    _, side = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())["spec"]["containers"]
    assert environment(side)["PENSTOCK_JOB_TOKEN"]["secretKeyRef"]["name"] == "job-token"


SHM = "/dev/shm"


@pytest.mark.parametrize("role", [Role.WORKER, Role.DATA_WORKER])
def test_shared_memory_is_as_large_as_the_memory_that_is_planned(role: Role) -> None:
    job, spec = read(make_job())
    for target, limit in ((RankTarget(), "1Gi"), (RankTarget(None, 3 << 30), "3Gi")):
        pod = replica_pod(job, spec, role, 0, 0, target)["spec"]
        assert pod["volumes"] == [
            {"name": "penstock-shm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}
        ]
        [container] = pod["containers"]
        assert container["volumeMounts"] == [{"name": "penstock-shm", "mountPath": SHM}]


def test_shared_memory_of_a_pod_that_names_no_memory_is_bounded_by_the_kubelet() -> None:
    raw = make_job()
    [container] = raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    del container["resources"]
    job, spec = read(raw)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())["spec"]
    assert pod["volumes"] == [{"name": "penstock-shm", "emptyDir": {"medium": "Memory"}}]


@pytest.mark.parametrize("path", [SHM, f"{SHM}/"])
def test_shared_memory_of_the_template_is_kept(path: str) -> None:
    raw = make_job()
    template = raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    template["volumes"] = [{"name": "own", "emptyDir": {"medium": "Memory"}}]
    template["containers"][0]["volumeMounts"] = [{"name": "own", "mountPath": path}]
    job, spec = read(raw)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())["spec"]
    assert pod["volumes"] == template["volumes"]
    assert pod["containers"][0]["volumeMounts"] == template["containers"][0]["volumeMounts"]


def test_a_pod_in_the_nodes_ipc_namespace_has_the_nodes_shared_memory() -> None:
    raw = make_job()
    raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["hostIPC"] = True
    job, spec = read(raw)
    assert "volumes" not in replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())["spec"]


def test_avoided_nodes_join_every_term_of_the_affinity() -> None:
    raw = make_job()
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": []}]
    raw["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    job, spec = read(raw)
    pod = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget(avoid_nodes=("bad", "worse")))
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    avoided = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("bad", "worse")
    ]
    assert [term["matchFields"] for term in required["nodeSelectorTerms"]] == [avoided, avoided]
    assert required["nodeSelectorTerms"][0]["matchExpressions"]


def test_trainer_has_two_tokens_and_its_own_account() -> None:
    job, spec = read(make_job())
    pod = trainer_pod(job, spec, SETTINGS, 1)
    assert pod["metadata"]["name"] == "job-trainer-0-1"
    assert pod["spec"]["serviceAccountName"] == "job-trainer"
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["penstock", "trainer"]
    assert container["image"] == "trainer:1"
    found = environment(container)
    assert found["PENSTOCK_BRAIN_URL"] == "http://brain:8477"
    assert found["PENSTOCK_ROLE"] == "trainer"
    paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert found["PENSTOCK_STATE_DIR"] == paths["penstock-state"]
    assert found["PENSTOCK_BRAIN_TOKEN_FILE"] == paths["brain-token"] + "/token"
    audiences = [
        source["serviceAccountToken"].get("audience")
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in source
    ]
    assert audiences == [None, "penstock-brain"]


def test_a_trainer_is_not_asked_while_it_cannot_answer_yet() -> None:
    job, spec = read(make_job())
    [container] = trainer_pod(job, spec, SETTINGS, 0)["spec"]["containers"]
    assert container["readinessProbe"]["initialDelaySeconds"] == TRAINER_STARTUP_SECONDS


DISK = {"spec": {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}]}}


def test_the_trainer_is_what_the_restricted_standard_admits() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    job, spec = read(make_job())
    pod = trainer_pod(job, spec, SETTINGS, 0)["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {kind for volume in pod["volumes"] for kind in volume} == {
        "name",
        "emptyDir",
        "projected",
    }


def test_a_volume_for_the_state_belongs_to_the_group_that_writes_it() -> None:
    job, spec = read(make_job(trainer={"template": DISK}, stateVolume="disk"))
    security = trainer_pod(job, spec, SETTINGS, 0)["spec"]["securityContext"]
    assert security["fsGroup"] == 65532
    assert security["fsGroupChangePolicy"] == "OnRootMismatch"
    assert security["runAsNonRoot"] is True


def test_a_quota_on_requests_and_limits_admits_the_trainer() -> None:
    job, spec = read(make_job())
    [container] = trainer_pod(job, spec, SETTINGS, 0)["spec"]["containers"]
    for kind in ("requests", "limits"):
        assert set(container["resources"][kind]) == {"cpu", "memory"}
    assert container["resources"]["limits"]["cpu"] == TRAINER_CPU_LIMIT


def test_the_template_has_the_last_word_on_users_and_limits() -> None:
    overlay = {
        "spec": {
            **DISK["spec"],
            "securityContext": {"runAsNonRoot": False, "fsGroup": 1000},
            "containers": [{"name": "trainer", "resources": {"limits": {"cpu": "8"}}}],
        }
    }
    job, spec = read(make_job(trainer={"template": overlay}, stateVolume="disk"))
    pod = trainer_pod(job, spec, SETTINGS, 0)["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is False
    assert pod["securityContext"]["fsGroup"] == 1000
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "2Gi"}


def test_trainer_without_a_brain() -> None:
    job, spec = read(make_job())
    pod = trainer_pod(job, spec, Settings(trainer_image="x"), 0)
    assert "PENSTOCK_BRAIN_URL" not in environment(pod["spec"]["containers"][0])


def test_trainer_template_is_laid_over_the_default() -> None:
    overlay = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"zone": "b"},
            "containers": [
                {
                    "name": "trainer",
                    "resources": {"requests": {"memory": "1Gi"}},
                    "env": [{"name": "MINE", "value": "1"}],
                    "readinessProbe": {"exec": {"command": ["true"]}},
                },
                {"name": "side", "image": "side"},
            ],
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    }
    raw = make_job(trainer={"template": overlay}, stateVolume="disk")
    job, spec = read(raw)
    pod = trainer_pod(job, spec, SETTINGS, 0)
    first, second = pod["spec"]["containers"]
    assert first["image"] == "trainer:1"
    assert first["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert first["readinessProbe"] == {"exec": {"command": ["true"]}}
    assert environment(first)["MINE"] == "1"
    assert second["name"] == "side"
    assert "PENSTOCK_BRAIN_URL" not in environment(second)
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == [
        "kubernetes-token",
        "brain-token",
        "disk",
    ]
    [state] = [
        one for one in first["volumeMounts"] if one["mountPath"] == "/var/lib/penstock/state"
    ]
    assert state["name"] == "disk"
    assert pod["metadata"]["labels"]["team"] == "a"


@pytest.mark.parametrize("asked", [None, False, True])
def test_workers_are_told_to_have_their_machines_checked(asked: bool | None) -> None:
    raw = make_job(workers={"replicas": 1})
    if asked is not None:
        raw["spec"]["nodeCheck"] = asked
    job, spec = read(raw)
    for role in (Role.WORKER, Role.DATA_WORKER):
        [container] = replica_pod(job, spec, role, 0, 0, RankTarget())["spec"]["containers"]
        told = {one["name"]: one.get("value") for one in container["env"]}
        expected = "1" if asked and role is Role.WORKER else None
        assert told.get("PENSTOCK_NODE_CHECK") == expected
        assert "PENSTOCK_NODE_CHECK_SHARE" not in told


def test_workers_are_told_the_share_of_the_time_for_checks_while_they_train() -> None:
    raw = make_job(workers={"replicas": 1})
    raw["spec"]["nodeCheckWhileTraining"] = True
    job, spec = read(raw)
    for role, expected in ((Role.WORKER, "0.001"), (Role.DATA_WORKER, None)):
        [container] = replica_pod(job, spec, role, 0, 0, RankTarget())["spec"]["containers"]
        told = {one["name"]: one.get("value") for one in container["env"]}
        assert told.get("PENSTOCK_NODE_CHECK_SHARE") == expected
        assert "PENSTOCK_NODE_CHECK" not in told


def test_workers_are_told_how_many_pods_a_replica_group_has() -> None:
    for workers, expected in (({"replicas": 4, "minReplicas": 2, "nodeUnit": 2}, "2"), ({}, None)):
        job, spec = read(make_job(workers=workers))
        for role in (Role.WORKER, Role.DATA_WORKER):
            [container] = replica_pod(job, spec, role, 0, 0, RankTarget())["spec"]["containers"]
            told = environment(container).get("PENSTOCK_REPLICA_PODS")
            assert told == (expected if role is Role.WORKER else None)
