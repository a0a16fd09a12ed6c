"""``penstock convert``, and ``penstock submit`` of another system's manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.cli.exits import Exit
from penstock_cluster.testing import RunningCluster
from tests.cli.terminal import Terminal
from tests.client.embedded import cluster_with_definitions, job
from tests.convert.manifests import BATCH_JOB, PYTORCH_JOB, RUNTIME, TRAIN_JOB

PLAN = """
apiVersion: elastic.iml.github.io/v1alpha1
kind: ScalePlan
metadata: {name: more}
spec: {ownerJob: there, replicaResourceSpecs: {worker: {replicas: 2}}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with cluster_with_definitions() as running:
        yield running


NOWHERE = Terminal(None)


def test_jobs_go_to_standard_output_and_the_account_to_the_other() -> None:
    ran = NOWHERE.ok("convert", "-f", "-", stdin=f"{PYTORCH_JOB}\n---\n{BATCH_JOB}")
    faces, single = yaml.safe_load_all(ran.out)
    assert (faces["metadata"]["name"], single["metadata"]["name"]) == ("faces", "single")
    lines = ran.err.splitlines()
    assert all(line.startswith("penstock: ") for line in lines)
    assert any("spec.runPolicy.cleanPodPolicy: None: dropped: " in line for line in lines)


def test_a_folder_is_converted_into_a_file_and_a_runtime_is_found_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "deeper"
    folder.mkdir(parents=True)
    (folder.parent / "runtime.yml").write_text(RUNTIME)
    (folder / "job.yaml").write_text(TRAIN_JOB.replace("torch-distributed", "ours"))
    (folder / "notes.txt").write_text("no manifest: [")
    ran = NOWHERE.ok("convert", "-f", str(folder.parent), "-o", str(tmp_path / "all.yaml"))
    assert ran.out == ""
    [found] = yaml.safe_load_all((tmp_path / "all.yaml").read_text())
    assert found["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["nodeSelector"]


def test_what_is_refused_is_said_and_the_rest_is_converted() -> None:
    text = f"{BATCH_JOB}\n---\n{RUNTIME}\n---\nkind: Thing\n---\n5"
    ran = NOWHERE("convert", "-f", "-", stdin=text)
    assert ran.code == Exit.USAGE
    assert yaml.safe_load(ran.out)["metadata"]["name"] == "single"
    said = [line for line in ran.err.splitlines() if "standard input: " in line]
    for line, reason in zip(
        said, ("a runtime is no job", "apiVersion: is needed", "no manifest"), strict=True
    ):
        assert reason in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "standard input: no manifest is there"),
        ("kind: [", "not YAML"),
        ("metadata: {}", "kind: is needed: one of PyTorchJob"),
        ("apiVersion: ray.io/v1\nkind: RayJob", "RayJob of ray.io is no job that can be"),
        ("apiVersion: flink.io/v1\nkind: TrainJob", "TrainJob of trainer.kubeflow.org is: correct"),
        ("apiVersion: penstock.dev/v1alpha1\nkind: PyTorchJob", "PyTorchJob of kubeflow.org can"),
        ("apiVersion: penstock.dev/v1alpha1\nkind: Pod", "Penstock's own are ElasticJob, Scale"),
    ],
)
def test_bad_input_is_one_line(text: str, said: str) -> None:
    ran = NOWHERE("convert", "-f", "-", stdin=text)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    [line] = ran.err.splitlines()
    assert line.startswith("penstock: ")
    assert said in line


def test_a_folder_without_manifests(tmp_path: Path) -> None:
    ran = NOWHERE("convert", "-f", str(tmp_path))
    assert ran.code == Exit.USAGE
    assert "a folder without a manifest" in ran.err


def test_what_is_ours_stays_as_it_is() -> None:
    own = job("own")
    ran = NOWHERE.ok("convert", "-f", "-", stdin=yaml.safe_dump(own))
    assert yaml.safe_load(ran.out) == own
    assert ran.err == "penstock: ElasticJob/own: is Penstock's own, and stays as it is\n"


def test_submit_converts_and_says_so_in_one_line(cluster: RunningCluster, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(BATCH_JOB)
    ran = Terminal(cluster.kubeconfig_path).ok("submit", "-f", str(manifest))
    assert ran.out == "elasticjob/single created\n"
    [line] = ran.err.splitlines()
    assert line.startswith("penstock: Job/single was converted: ")
    assert f"penstock convert -f {manifest} names them" in line
    stored = cluster.find("elasticjobs.penstock.dev", "single", "default")
    assert stored is not None
    assert stored["spec"]["strategy"] == "Local"


def test_a_scale_plan_is_sent_with_the_uid_of_its_job(cluster: RunningCluster) -> None:
    created = cluster.create("elasticjobs.penstock.dev", job("there"), "default")
    terminal = Terminal(cluster.kubeconfig_path)
    terminal.ok("submit", "-f", "-", "--dry-run", stdin=PLAN)
    assert cluster.find("scales.penstock.dev", "more", "default") is None
    assert terminal.ok("submit", "-f", "-", stdin=PLAN).out == "scale/more created\n"
    scale = cluster.find("scales.penstock.dev", "more", "default")
    assert scale is not None
    assert scale["spec"]["jobRef"] == {"name": "there", "uid": created["metadata"]["uid"]}
    missing = terminal("submit", "-f", "-", stdin=PLAN.replace("there", "nobody"))
    assert missing.code == Exit.NOT_FOUND
    assert terminal("submit", "--wait", "-f", "-", stdin=PLAN).code == Exit.USAGE
