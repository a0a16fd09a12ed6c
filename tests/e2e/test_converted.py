"""Manifests of other systems, as people have them, run to their end once they are submitted.

The programs are small, and each tells what it saw: a converted job whose pods end without having
met each other is no success.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from benchmarks.elastic.processes import ROOT
from penstock.local.control_plane.components import penstock
from tests.e2e.control_plane import ControlPlane, Json, needs_kubectl
from tests.patience import patient

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

PROGRAMS: Final = ROOT / "benchmarks" / "converted_programs"
SUM: Final = PROGRAMS / "all_reduce.py"
CLUSTER: Final = PROGRAMS / "tf_config.py"

DLROVER: Final = "elastic.iml.github.io/v1alpha1"


def container(name: str, *command: str, **more: object) -> Json:
    return {"name": name, "image": "registry.example.com/it:1", "command": list(command), **more}


def pods(main: Json, **more: object) -> Json:
    return {"spec": {"restartPolicy": "Never", **more, "containers": [main]}}


def dlrover_workers(folder: Path) -> list[Json]:
    """As those of DLRover's examples: a shell, its launcher, numbers from the environment."""
    launcher = (
        "dlrover-run --network-check --nnodes=$NODE_NUM \\\n --nproc_per_node=2 --max_restarts=1 \\"
    )
    main = container(
        "main",
        "/bin/bash",
        "-c",
        f"cd {PROGRAMS} \\\n && {launcher}\n ./{SUM.name} {folder}",
        imagePullPolicy="Always",
        volumeMounts=[{"mountPath": "/dev/shm", "name": "dshm"}],
        resources={"requests": {"cpu": "200m", "memory": "512Mi"}},
    )
    shared_memory = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    worker = {"replicas": 2, "restartCount": 1, "template": pods(main, volumes=shared_memory)}
    master = {"template": pods({"name": "main", "imagePullPolicy": "Always", "image": "master"})}
    spec = {
        "distributionStrategy": "AllreduceStrategy",
        "optimizeMode": "single-job",
        "replicaSpecs": {"worker": worker, "dlrover-master": master},
    }
    return [
        {"apiVersion": DLROVER, "kind": "ElasticJob", "metadata": {"name": "words"}, "spec": spec}
    ]


def dlrover_servers(folder: Path) -> list[Json]:
    """Parameter servers, a chief and a worker, and an evaluator that never ends."""
    main = container(
        "main",
        "/bin/bash",
        "-c",
        f"cd {PROGRAMS} && {sys.executable} -m {CLUSTER.stem} {folder}/met",
        resources={"requests": {"cpu": "100m", "memory": "128Mi"}},
    )
    role = {"autoScale": False, "replicas": 1, "restartCount": 1, "template": pods(main)}
    roles = dict.fromkeys(("ps", "chief", "worker", "evaluator"), role)
    spec = {
        "distributionStrategy": "ParameterServerStrategy",
        "optimizeMode": "manual",
        "replicaSpecs": {**roles, "ps": {**role, "replicas": 2}},
    }
    return [
        {"apiVersion": DLROVER, "kind": "ElasticJob", "metadata": {"name": "clicks"}, "spec": spec}
    ]


def pytorch_job(folder: Path) -> list[Json]:
    """A Master and a Worker without a launcher: a rank each."""
    template = pods(container("pytorch", sys.executable, str(SUM), str(folder)))
    role = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "faces"},
            "spec": {
                "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 1},
                "pytorchReplicaSpecs": {"Master": role, "Worker": role},
            },
        }
    ]


def train_job(folder: Path) -> list[Json]:
    """A TrainJob beside the runtime that it names, which says how many processes a pod has."""
    node = {
        "name": "node",
        "template": {"spec": {"template": pods(container("node", "torchrun", "none.py"))}},
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "ours"},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": 1}},
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }
    trainer = {"numNodes": 2, "command": ["torchrun", str(SUM)], "args": [str(folder)]}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tunes"},
        "spec": {"runtimeRef": {"name": "ours", "kind": "TrainingRuntime"}, "trainer": trainer},
    }
    return [job, runtime]


def batch_job(folder: Path) -> list[Json]:
    """A Job of one pod, whose restart policy and back-off are Kubernetes' own."""
    text = f"open('{folder}/alone', 'w').write('done')"
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "single"},
            "spec": {
                "backoffLimit": 2,
                "completions": 1,
                "template": pods(container("train", sys.executable, "-c", text)),
            },
        }
    ]


def summed(folder: Path) -> dict[str, Json]:
    """What each rank told."""
    return {one.name: json.loads(one.read_text()) for one in folder.iterdir()}


def a_world_of(pod_count: int, processes: int) -> Callable[[Path], None]:
    def holds(folder: Path) -> None:
        world = pod_count * processes
        total = world * (world + 1) // 2
        assert summed(folder) == {
            f"rank-{rank}": {"world": world, "sum": total, "local": rank % processes}
            for rank in range(world)
        }

    return holds


def all_met(folder: Path) -> None:
    names = ("chief-0", "worker-0", "ps-0", "ps-1")
    assert json.loads((folder / "met").read_text()) == {name: name for name in names}


def ran_once(folder: Path) -> None:
    assert [one.name for one in folder.iterdir()] == ["alone"]


@pytest.mark.parametrize(
    ("manifests", "holds"),
    [
        pytest.param(dlrover_workers, a_world_of(2, 2), id="dlrover-workers"),
        pytest.param(dlrover_servers, all_met, id="dlrover-parameter-servers"),
        pytest.param(pytorch_job, a_world_of(2, 1), id="pytorchjob"),
        pytest.param(train_job, a_world_of(2, 1), id="trainjob"),
        pytest.param(batch_job, ran_once, id="job"),
    ],
)
def test_a_converted_job_runs_to_its_end(
    plane: ControlPlane,
    tmp_path: Path,
    manifests: Callable[[Path], list[Json]],
    holds: Callable[[Path], None],
) -> None:
    folder = tmp_path / "told"
    folder.mkdir()
    documents = manifests(folder)
    submitted = subprocess.run(
        penstock("submit", "-f", "-"),
        input=yaml.safe_dump_all(documents),
        capture_output=True,
        text=True,
        timeout=patient(60),
        env={**os.environ, "KUBECONFIG": str(plane.home.kubeconfig)},
    )
    assert submitted.returncode == 0, submitted.stderr
    name = documents[0]["metadata"]["name"]
    plane.wait_for(name, "Succeeded", 55)
    holds(folder)
    plane.kubectl("delete", "ej", name, "--wait=false")
