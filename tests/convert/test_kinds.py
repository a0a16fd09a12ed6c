"""Each kind of manifest, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.yaml_text import documents
from penstock.convert.convert import convert
from penstock.convert.source import Outcome, RefusedError
from penstock.crds.check import faults_in
from tests.convert.manifests import (
    BATCH_JOB,
    DLROVER_JOB,
    PYTORCH_JOB,
    RUNTIME,
    TF_JOB,
    TRAIN_JOB,
    command,
    converted,
    lost,
    notes_on,
    spec,
    worker,
)

Json = dict[str, Any]


def document(text: str) -> Json:
    [found] = documents(text)
    assert isinstance(found, dict)
    return found


def to_do(conversion: Any) -> list[str]:
    return [note.meaning for note in conversion.notes if note.outcome is Outcome.TO_DO]


@pytest.mark.parametrize("text", [PYTORCH_JOB, DLROVER_JOB, TRAIN_JOB, BATCH_JOB])
def test_an_image_without_penstock_is_named_once_and_one_with_it_is_not(text: str) -> None:
    asked = [one for one in to_do(converted(text)) if "pip install" in one]
    assert len(asked) == 1
    own = text.replace("registry.example.com/", "registry.example.com/penstock:")
    assert [one for one in to_do(converted(own)) if "pip install" in one] == []


def test_pytorch_job() -> None:
    conversion = converted(PYTORCH_JOB)
    assert conversion.result["metadata"] == document(PYTORCH_JOB)["metadata"]
    assert command(conversion) == [
        "penstock", "run", "--nproc-per-node=2", "--", "train.py", "--epochs=3",
    ]  # fmt: skip
    role = worker(conversion)
    assert (role["replicas"], role["minReplicas"], role["maxReplicas"]) == (4, 4, 4)
    found = spec(conversion)
    assert found["strategy"] == "AllReduce"
    assert found["optimize"] == "Manual"
    assert found["failurePolicy"] == {"maxRestarts": 5}
    assert (found["ttlSecondsAfterFinished"], found["suspend"]) == (60, True)
    [policy] = notes_on(conversion, "spec.runPolicy.cleanPodPolicy")
    assert str(policy).startswith(
        "PyTorchJob/faces: spec.runPolicy.cleanPodPolicy: None: dropped: pods of an ended job stay"
    )


def elastic(**policy: Any) -> Json:
    job = document(PYTORCH_JOB)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["elasticPolicy"] = policy
    return job


def test_an_elastic_pytorch_job_keeps_its_number_unless_it_was_scaled() -> None:
    role = worker(convert(elastic(minReplicas=1, maxReplicas=6)))
    assert (role["replicas"], role["minReplicas"], role["maxReplicas"]) == (3, 1, 6)
    scaled = convert(elastic(minReplicas=1, maxReplicas=6, metrics=[{"type": "Resource"}]))
    assert "replicas" not in worker(scaled)
    assert spec(scaled)["optimize"] == "Auto"


def test_a_pytorch_job_that_is_never_restarted_bears_no_failure() -> None:
    text = PYTORCH_JOB.replace("OnFailure", "Never").replace("backoffLimit: 5, ", "")
    assert spec(converted(text))["failurePolicy"] == {"maxRestarts": 0}


def test_what_the_master_has_of_its_own_is_named() -> None:
    job = document(PYTORCH_JOB)
    container = {"name": "pytorch", "image": "other", "command": ["torchrun", "train.py"]}
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {"spec": {"containers": [container]}}
    conversion = convert(job)
    where = "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image"
    assert [note.outcome for note in notes_on(conversion, where)] == [Outcome.DROPPED]


def test_a_plain_program_of_a_pytorch_job_is_one_rank_a_pod() -> None:
    text = PYTORCH_JOB.replace("[torchrun, --rdzv_backend, c10d, train.py]", "[python, train.py]")
    assert command(converted(text))[:5] == ["penstock", "run", "--nproc-per-node=1", "--", "python"]


def test_dlrover_job() -> None:
    conversion = converted(DLROVER_JOB)
    found, role = spec(conversion), worker(conversion)
    assert (found["strategy"], found["optimize"]) == ("AllReduce", "Auto")
    assert found["failurePolicy"] == {"maxRestarts": 7}
    assert found["resourceLimits"] == {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert (role["replicas"], role["minReplicas"], role["maxReplicas"]) == (4, 2, 4)
    assert command(conversion)[2] == (
        'cd /work && exec penstock run --nproc-per-node=1 -- train.py --text "a b"'
    )
    pod = role["template"]["spec"]
    assert "restartPolicy" not in pod
    assert pod["containers"][0]["env"] == [{"name": "LEVEL", "value": "debug"}]
    assert notes_on(conversion, "spec.replicaSpecs.dlrover-master")


def servers(**ps: Any) -> Json:
    job = document(DLROVER_JOB)
    roles = job["spec"]["replicaSpecs"]
    roles["worker"]["template"]["spec"]["containers"][0]["command"] = ["python", "estimator.py"]
    roles["ps"] = {**roles["worker"], **ps}
    job["spec"]["distributionStrategy"] = "ParameterServerStrategy"
    return job


def test_parameter_servers_of_dlrover_are_tensorflows_of_fixed_size() -> None:
    job = servers(replicas=2, autoScale=True)
    job["spec"]["replicaSpecs"]["chief"] = dict(job["spec"]["replicaSpecs"]["worker"], replicas=1)
    del job["spec"]["replicaSpecs"]["worker"]["replicas"]
    conversion = convert(job)
    found = spec(conversion)
    assert (found["strategy"], found["framework"]) == ("ParameterServer", "TensorFlow")
    assert found["optimize"] == "Manual"
    for name, number in (("ps", 2), ("worker", 2)):
        role = found["replicaSpecs"][name]
        assert (role["replicas"], role["minReplicas"], role["maxReplicas"]) == (number,) * 3
        container = role["template"]["spec"]["containers"][0]
        assert container["command"] == ["python", "estimator.py"]
        assert container["env"] == [{"name": "LEVEL", "value": "debug"}]
    assert [one for one in to_do(conversion) if "one of worker, as" in one]
    assert [one for one in to_do(conversion) if "penstock.trainer.ps" in one]
    assert not [one for one in to_do(conversion) if "pip install" in one]
    assert lost(job, conversion) == []
    assert faults_in(conversion.result) == []


def test_a_role_that_dlrover_scales_leaves_its_number_to_the_brain() -> None:
    job = document(DLROVER_JOB)
    job["spec"]["replicaSpecs"]["worker"]["autoScale"] = True
    role = worker(convert(job))
    assert (role.get("replicas"), role["minReplicas"], role["maxReplicas"]) == (None, 1, 4)


def in_units(words: str, **role: Any) -> Any:
    job = document(DLROVER_JOB)
    job["spec"]["replicaSpecs"]["worker"] |= role
    container = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["command"] = ["dlrover-run", *words.split(), "train.py"]
    conversion = convert(job)
    assert lost(job, conversion) == []
    assert faults_in(conversion.result) == []
    return conversion


def test_the_unit_of_dlrover_run_is_a_node_unit() -> None:
    conversion = in_units("--node_unit=2 --nnodes=1:$NODE_NUM", replicas=5, autoScale=True)
    role = worker(conversion)
    assert (role["nodeUnit"], role["minReplicas"], role["maxReplicas"]) == (2, 2, 4)
    assert worker(in_units("--node-unit 2", replicas=4))["nodeUnit"] == 2
    assert "nodeUnit" not in worker(in_units("--node-unit=1", replicas=3))


@pytest.mark.parametrize("option", ["--node-unit=2", "--node-unit=$UNIT"])
def test_a_unit_that_no_number_of_workers_has_is_named(option: str) -> None:
    conversion = in_units(option, replicas=3)
    assert "nodeUnit" not in worker(conversion)
    [note] = [one for one in conversion.notes if one.path[-1] == "--node-unit"]
    assert note.outcome is Outcome.DROPPED


PLAN = """
apiVersion: elastic.iml.github.io/v1alpha1
kind: ScalePlan
metadata: {name: more, labels: {scale-type: manual, team: faces}}
spec:
  ownerJob: words
  replicaResourceSpecs:
    worker: {replicas: 3, resource: {cpu: "0.5", memory: 1Gi, ephemeral-storage: 1Gi}}
  migratePods: [{name: words-ps-7, resource: {cpu: 4}}]
  removePods: [{name: words-worker-2}]
"""


def test_scale_plan() -> None:
    conversion = converted(PLAN)
    found = spec(conversion)
    assert conversion.result["kind"] == "Scale"
    assert conversion.result["metadata"]["labels"] == {"team": "faces", "penstock.dev/job": "words"}
    assert found["jobRef"]["name"] == "words"
    assert found["source"] == "User"
    assert found["roles"] == {
        "worker": {"replicas": 3, "resources": {"cpu": "0.5", "memory": "1Gi"}},
        "ps": {"ranks": {"7": {"cpu": "4"}}},
    }
    assert [one for one in to_do(conversion) if "spec.jobRef.uid" in one]


def test_train_job_with_a_built_in_runtime() -> None:
    conversion = converted(TRAIN_JOB)
    assert command(conversion) == [
        "penstock", "run", "--nproc-per-node=4", "--", "-m", "tunes.train",
    ]  # fmt: skip
    assert worker(conversion)["replicas"] == 2
    container = worker(conversion)["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert container["env"] == [{"name": "LEVEL", "value": "debug"}]


def test_train_job_with_a_runtime_beside_it() -> None:
    job = document(TRAIN_JOB)
    job["spec"] = {"runtimeRef": {"name": "ours"}, "trainer": {"env": []}}
    conversion = convert(job, [document(RUNTIME), job])
    assert command(conversion) == ["penstock", "run", "--nproc-per-node=2", "--", "base.py"]
    assert worker(conversion)["replicas"] == 3
    assert worker(conversion)["template"]["spec"]["nodeSelector"] == {"pool": "gpus"}
    assert spec(conversion)["gang"] == {"timeoutSeconds": 60}
    where = "spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds"
    assert [note.outcome for note in notes_on(conversion, where)] == [Outcome.CHANGED]


def test_a_runtime_that_is_not_at_hand_is_named() -> None:
    conversion = converted(TRAIN_JOB.replace("torch-distributed", "theirs"))
    assert [one for one in to_do(conversion) if "kubectl get clustertrainingruntime theirs" in one]


def test_patches_of_a_train_job_reach_its_pods() -> None:
    job = document(TRAIN_JOB)
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"pool": "gpus"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    job["spec"]["runtimePatches"] = [
        {"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    ]
    template = worker(convert(job))["template"]
    assert template["metadata"]["labels"] == {"a": "b"}
    assert template["spec"]["nodeSelector"] == {"pool": "gpus"}
    del job["spec"]["runtimePatches"]
    job["spec"]["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], **pod}]
    assert worker(convert(job))["template"] == template


def test_a_queue_of_kueue_becomes_the_pods_and_the_job_is_not_suspended() -> None:
    job = document(TRAIN_JOB)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "mine"}
    job["spec"]["suspend"] = True
    conversion = convert(job)
    assert worker(conversion)["template"]["metadata"]["labels"] == job["metadata"]["labels"]
    assert "suspend" not in spec(conversion)


def test_batch_job() -> None:
    conversion = converted(BATCH_JOB)
    found = spec(conversion)
    assert (found["strategy"], found["failurePolicy"]) == ("Local", {"maxRestarts": 2})
    assert found["activeDeadlineSeconds"] == 600
    assert command(conversion) == ["penstock", "run", "--", "python", "train.py"]
    assert worker(conversion)["template"]["metadata"]["labels"] == {"app": "single"}


def test_a_batch_job_of_several_pods_has_one_world_or_programs_of_their_own() -> None:
    job = document(BATCH_JOB)
    job["spec"] |= {"parallelism": 3, "completions": 3, "completionMode": "Indexed"}
    plain = convert(job)
    assert spec(plain)["independentWorkers"] is True
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["torchrun", "train.py"]
    world = convert(job)
    assert "independentWorkers" not in spec(world)
    assert (spec(world)["strategy"], worker(world)["replicas"]) == ("AllReduce", 3)


def test_a_container_without_a_command_runs_as_it_is_where_there_is_one_pod() -> None:
    text = BATCH_JOB.replace("        command: [python, train.py]\n", "")
    conversion = converted(text)
    assert "command" not in worker(conversion)["template"]["spec"]["containers"][0]
    assert [one for one in to_do(conversion) if "without Penstock's agent" in one]


def test_one_pod_of_another_framework_is_a_local_job() -> None:
    text = PYTORCH_JOB.replace("PyTorchJob", "JAXJob").replace("pytorchReplica", "jaxReplica")
    job = document(text.replace("torchrun, --rdzv_backend, c10d", "python"))
    del job["spec"]["jaxReplicaSpecs"]["Master"], job["spec"]["nprocPerNode"]
    with pytest.raises(RefusedError, match="keep the JAXJob"):
        convert(job)
    job["spec"]["jaxReplicaSpecs"]["Worker"]["replicas"] = 1
    assert spec(convert(job))["strategy"] == "Local"


def test_tf_job_with_parameter_servers() -> None:
    conversion = converted(TF_JOB)
    found = spec(conversion)
    assert (found["strategy"], found["framework"]) == ("ParameterServer", "TensorFlow")
    counts = {name: role["replicas"] for name, role in found["replicaSpecs"].items()}
    assert counts == {"worker": 3, "ps": 2, "evaluator": 1}
    assert command(conversion) == ["python", "train.py"]
    assert found["failurePolicy"] == {"maxRestarts": 0}
    assert notes_on(conversion, "spec.successPolicy")
    assert faults_in(conversion.result) == []


def test_tf_job_of_workers_is_all_reduce_and_of_one_pod_local() -> None:
    job = document(TF_JOB)
    roles = job["spec"]["tfReplicaSpecs"]
    del roles["PS"], roles["Evaluator"]
    found = spec(convert(job))
    assert (found["strategy"], found["framework"]) == ("AllReduce", "TensorFlow")
    assert found["replicaSpecs"]["worker"]["replicas"] == 3
    roles["Worker"]["replicas"] = 0
    conversion = convert(job)
    assert (spec(conversion)["strategy"], "framework" in spec(conversion)) == ("Local", False)
    assert lost(job, conversion) == []


def test_a_scheduling_policy_is_a_gang() -> None:
    job = document(PYTORCH_JOB)
    policy = {"minAvailable": 4, "queue": "research", "scheduleTimeoutSeconds": 90}
    job["spec"]["runPolicy"]["schedulingPolicy"] = policy
    assert spec(convert(job))["gang"] == {"queue": "research", "timeoutSeconds": 90}
    job["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "high"}
    assert "gang" not in spec(convert(job))


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("labels", "scheduling.x-k8s.io/pod-group"),
        ("annotations", "scheduling.k8s.io/group-name"),
        ("annotations", "gang.scheduling.koordinator.sh/name"),
    ],
)
def test_the_name_of_a_group_becomes_a_gang_and_leaves_the_pods(field: str, name: str) -> None:
    job = document(DLROVER_JOB)
    template = job["spec"]["replicaSpecs"]["worker"]["template"]
    template["metadata"] = {
        field: {name: "words-group"},
        "annotations": {
            **({name: "words-group"} if field == "annotations" else {}),
            "scheduling.volcano.sh/queue-name": "research",
            "gang.scheduling.koordinator.sh/waiting-time": "2m",
        },
    }
    conversion = convert(job)
    assert spec(conversion)["gang"] == {"queue": "research", "timeoutSeconds": 120}
    assert worker(conversion)["template"]["metadata"] == {
        "annotations": {"scheduling.volcano.sh/queue-name": "research"}
    }
    assert lost(job, conversion) == []
    assert faults_in(conversion.result) == []


def test_a_queue_alone_is_no_gang() -> None:
    job = document(DLROVER_JOB)
    queue = {"annotations": {"scheduling.volcano.sh/queue-name": "research"}}
    job["spec"]["replicaSpecs"]["worker"]["template"]["metadata"] = queue
    conversion = convert(job)
    assert "gang" not in spec(conversion)
    assert worker(conversion)["template"]["metadata"] == queue


@pytest.mark.parametrize("text", [PYTORCH_JOB, DLROVER_JOB, PLAN, TRAIN_JOB, TF_JOB, BATCH_JOB])
def test_fields_of_tomorrow_are_named_and_the_result_is_accepted(text: str) -> None:
    job = document(text)
    job["spec"]["ofTomorrow"] = {"deep": [{"one": 1}]}
    conversion = convert(job)
    assert notes_on(conversion, "spec.ofTomorrow.deep[0].one")
    assert faults_in(conversion.result) == []
