"""TrainJobs run in place, on a cluster that has Kubeflow Trainer's kinds and not its controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.control_plane import (
    ROOT,
    ControlPlane,
    Json,
    control_plane,
    needs_kubectl,
    until,
)
from tests.patience import patient

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

MANAGER: Final = "penstock.dev/controller"
VERSION: Final = "trainer.kubeflow.org/v1alpha1"
PROGRAMS: Final = Path(__file__).parent / "programs"


def definition(kind: str, plural: str, scope: str) -> Json:
    """A stand-in for a kind of Kubeflow Trainer: its names, and as much of its form as is read."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    condition = {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z][A-Za-z0-9_,:]*$"},
            "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "minimum": 0},
        },
    }
    counts = ("ready", "succeeded", "failed", "active", "suspended")
    of_job = {
        "type": "object",
        "required": ["name", *counts],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            **{count: {"type": "integer", "minimum": 0} for count in counts},
        },
    }
    status = {
        "type": "object",
        "minProperties": 1,
        "properties": {
            "conditions": {"type": "array", "maxItems": 8, "items": condition},
            "jobsStatus": {"type": "array", "maxItems": 100, "items": of_job},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.trainer.kubeflow.org"},
        "spec": {
            "group": "trainer.kubeflow.org",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": anything, "status": status},
                        }
                    },
                }
            ],
        },
    }


def train_job(name: str, *command: str, runtime: str = "ours", **spec: Any) -> Json:
    trainer = {"numNodes": 1, "command": list(command), **spec.pop("trainer", {})}
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "managedBy": MANAGER,
            "runtimeRef": {"name": runtime},
            "trainer": trainer,
            **spec,
        },
    }


RUNTIME: Final[Json] = {
    "apiVersion": VERSION,
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "ours"},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": 1}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {
                                "template": {
                                    "spec": {"containers": [{"name": "node", "image": "ours:1"}]}
                                }
                            }
                        },
                    }
                ]
            }
        },
    },
}


@pytest.fixture(scope="module")
def trainer_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("plane")
    with control_plane(folder, f"--train-jobs-managed-by={MANAGER}") as plane:
        for kind, plural, scope in (
            ("TrainJob", "trainjobs", "Namespaced"),
            ("ClusterTrainingRuntime", "clustertrainingruntimes", "Cluster"),
        ):
            plane.apply(definition(kind, plural, scope))
            plane.kubectl(
                "wait",
                "--for=condition=Established",
                f"crd/{plural}.trainer.kubeflow.org",
                f"--timeout={patient(30):.0f}s",
            )
        plane.apply(RUNTIME)
        yield plane


def shown(plane: ControlPlane, name: str) -> Json:
    return plane.get("trainjobs", name)


def condition(plane: ControlPlane, name: str, kind: str) -> tuple[str, str]:
    """Status and reason of a condition of a TrainJob."""
    conditions = shown(plane, name).get("status", {}).get("conditions", [])
    return next(
        ((one["status"], one["reason"]) for one in conditions if one["type"] == kind), ("", "")
    )


def await_condition(plane: ControlPlane, name: str, wanted: str, seconds: int = 40) -> None:
    timeout = f"--timeout={patient(seconds):.0f}s"
    plane.kubectl("wait", f"--for=condition={wanted}", f"trainjob/{name}", timeout)


def job_names(plane: ControlPlane) -> set[str]:
    return {one["metadata"]["name"] for one in plane.get("ej")["items"]}


def pods_of(plane: ControlPlane, name: str) -> list[Json]:
    found: list[Json] = plane.get("pods", selector=f"penstock.dev/job={name}")["items"]
    return found


def test_a_train_job_runs_in_place_and_goes_with_all_it_owns(
    trainer_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = trainer_plane
    other = train_job("others", "true")
    other["spec"]["managedBy"] = "trainer.kubeflow.org/trainjob-controller"
    plane.apply(other)
    command = ("torchrun", str(ROOT / "benchmarks/converted_programs/all_reduce.py"), str(tmp_path))
    plane.apply(train_job("tunes", *command, trainer={"numNodes": 2}))
    await_condition(plane, "tunes", "Complete", 55)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["rank-0", "rank-1"]
    counts = {"ready": 1, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    train = shown(plane, "tunes")
    assert train["status"]["jobsStatus"] == [{"name": "node", **counts}]
    [owner] = plane.get("ej", "tunes")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("TrainJob", train["metadata"]["uid"])
    assert job_names(plane) == {"tunes"}  # and none of what another manager has
    assert "status" not in shown(plane, "others")
    plane.kubectl("delete", "trainjob", "tunes", "others")
    until(lambda: not job_names(plane) and not pods_of(plane, "tunes"), 40)


def test_a_train_job_is_suspended_and_resumed(trainer_plane: ControlPlane, tmp_path: Path) -> None:
    plane, gate = trainer_plane, tmp_path / "gate"
    command = (sys.executable, str(PROGRAMS / "await_file.py"), str(gate))
    plane.apply(train_job("waits", *command, suspend=True))
    await_condition(plane, "waits", "Suspended")
    assert "waits" not in job_names(plane)

    def patch(suspend: str) -> None:
        body = f'{{"spec":{{"suspend":{suspend}}}}}'
        plane.kubectl("patch", "trainjob", "waits", "--type=merge", "-p", body)

    patch("false")
    worker = "penstock.dev/job=waits,penstock.dev/role=worker"

    def running() -> bool:
        pods = plane.get("pods", selector=worker)["items"]
        return [one["status"]["phase"] for one in pods] == ["Running"]

    until(running, 40)
    until(lambda: shown(plane, "waits")["status"]["jobsStatus"][0]["ready"] == 1, 20)
    assert condition(plane, "waits", "Suspended") == ("False", "Resumed")
    patch("true")
    until(lambda: condition(plane, "waits", "Suspended") == ("True", "Suspended"), 40)
    assert not plane.get("pods", selector=worker)["items"]
    gate.touch()
    patch("false")
    await_condition(plane, "waits", "Complete", 55)
    plane.kubectl("delete", "trainjob", "waits", "--wait=false")


def test_what_fails_and_what_cannot_be_converted_says_so(
    trainer_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = trainer_plane
    program = str(PROGRAMS / "await_file.py")
    command = ("torchrun", "--max-restarts=0", program, str(tmp_path), "3")
    plane.apply(train_job("fails", *command))
    plane.apply(train_job("rings", "mpirun", "train", runtime="mpi-distributed"))
    await_condition(plane, "rings", "Failed")
    assert condition(plane, "rings", "Failed") == ("True", "NotConvertible")
    await_condition(plane, "fails", "Failed", 55)
    assert condition(plane, "fails", "Failed") == ("True", "MaxRestartsExceeded")
    assert shown(plane, "fails")["status"]["jobsStatus"][0]["failed"] == 1
    assert "rings" not in job_names(plane)
    events = json.loads(plane.kubectl("get", "events", "-o", "json"))["items"]
    [told] = [one for one in events if one["involvedObject"]["name"] == "rings"]
    assert (told["reason"], told["involvedObject"]["kind"]) == ("NotConverted", "TrainJob")
    assert "MPI starts its programs" in told["message"]
    plane.kubectl("delete", "trainjob", "fails", "rings", "--wait=false")
