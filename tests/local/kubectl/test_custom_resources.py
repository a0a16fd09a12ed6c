"""What people type about ElasticJobs works with the real kubectl, unpatched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.tests.kubectl.kubectl import Kubectl, needs_kubectl
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import RunningCluster, api_server

pytestmark = needs_kubectl

ROOT = Path(__file__).parents[3]
JOB = """
apiVersion: penstock.dev/v1alpha1
kind: ElasticJob
metadata:
  name: NAME
spec:
  strategy: AllReduce
  replicaSpecs:
    worker:
      minReplicas: 1
      maxReplicas: 8
      template:
        spec:
          containers:
          - name: main
            image: example.org/train:1
"""
JOBS = "elasticjobs.penstock.dev"


def job(name: str, **changes: str) -> str:
    text = JOB.replace("NAME", name)
    for old, new in changes.items():
        text = text.replace(f"{old}: ", f"{old}: {new} # was: ")
    return text


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(serving=ServeOptions(tls=True)) as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    found = Kubectl(cluster, tmp_path_factory.mktemp("kubectl"))
    found.ok("apply", "-f", str(ROOT / "crds" / "elasticjob.crd.yaml"))
    found.ok("apply", "--server-side", "-f", str(ROOT / "crds" / "scale.crd.yaml"))
    found.ok("wait", "--for=condition=Established", "--timeout=10s", f"crd/{JOBS}")
    return found


def test_apply_creates_then_leaves_alone_then_configures(kubectl: Kubectl) -> None:
    assert (
        kubectl.ok("apply", "-f", "-", stdin=job("one")) == "elasticjob.penstock.dev/one created\n"
    )
    assert "unchanged" in kubectl.ok("apply", "-f", "-", stdin=job("one"))
    assert "configured" in kubectl.ok("apply", "-f", "-", stdin=job("one", maxReplicas="4"))
    worker = "{.spec.replicaSpecs.worker.maxReplicas}"
    assert kubectl.ok("get", "ej", "one", f"-o=jsonpath={worker}") == "4"


def test_apply_removes_a_field_that_the_file_no_longer_has(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("less"))
    kubectl.ok("apply", "-f", "-", stdin=job("less").replace("      maxReplicas: 8\n", ""))
    spec = json.loads(kubectl.ok("get", JOBS, "less", "-o=json"))["spec"]
    assert "maxReplicas" not in spec["replicaSpecs"]["worker"]


def test_server_side_apply_names_the_manager_in_a_conflict(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in kubectl.ok(*apply, "--field-manager=a", stdin=job("ssa"))
    ran = kubectl.run(*apply, "--field-manager=b", stdin=job("ssa", maxReplicas="3"))
    assert ran.code == 1
    assert 'Apply failed with 1 conflict: conflict with "a"' in ran.err
    assert ".spec.replicaSpecs.worker.maxReplicas" in ran.err
    kubectl.ok(*apply, "--field-manager=b", "--force-conflicts", stdin=job("ssa", maxReplicas="3"))


def test_an_invalid_job_is_refused_with_field_and_rule(kubectl: Kubectl) -> None:
    ran = kubectl.run("apply", "-f", "-", stdin=job("bad", strategy="Sideways"))
    assert ran.code == 1
    assert ran.err.startswith('The ElasticJob "bad" is invalid: ')
    assert 'spec.strategy: Unsupported value: "Sideways"' in ran.err
    ran = kubectl.run("create", "-f", "-", stdin=job("bad") + "  colour: red\n")
    assert ran.code == 1
    assert 'strict decoding error: unknown field "spec.colour"' in ran.err


def test_get_prints_the_columns_of_the_crd(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("columns"))
    crd = yaml.safe_load((ROOT / "crds" / "elasticjob.crd.yaml").read_text())
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    wide = [column["name"].upper() for column in columns]
    narrow = [column["name"].upper() for column in columns if not column.get("priority")]
    # Two spaces at least lie between columns; a header may hold single spaces.
    head, row = kubectl.ok("get", "ej", "columns").splitlines()
    assert [part.strip() for part in head.split("  ") if part.strip()] == ["NAME", *narrow]
    assert row.startswith("columns ")
    head = kubectl.ok("get", "ej", "columns", "-o=wide").splitlines()[0]
    assert [part.strip() for part in head.split("  ") if part.strip()] == ["NAME", *wide]


def test_get_as_yaml_can_be_applied_again(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("again"))
    text = kubectl.ok("get", "ej", "again", "-o=yaml")
    before = yaml.safe_load(text)
    assert before["metadata"]["name"] == "again"
    # The annotation of the last configuration changes, nothing else.
    assert "configured" in kubectl.ok("apply", "-f", "-", stdin=text)
    after = yaml.safe_load(kubectl.ok("get", "ej", "again", "-o=yaml"))
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_get_watch_follows_changes(kubectl: Kubectl, cluster: RunningCluster) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("watched"))
    watching = kubectl.start("get", "ej", "-w", "--field-selector=metadata.name=watched", "-o=name")
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "elasticjob.penstock.dev/watched\n"
        kubectl.ok("label", "ej", "watched", "tier=gold")
        assert watching.stdout.readline() == "elasticjob.penstock.dev/watched\n"
    finally:
        watching.terminate()
        watching.communicate(timeout=10)


def test_describe_shows_spec_and_events(kubectl: Kubectl, cluster: RunningCluster) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("described"))
    stored = cluster.get(JOBS, "described", "default")
    cluster.create("events", event_about(stored, "Planned", "two workers"), "default")
    text = kubectl.ok("describe", "ej", "described")
    assert "Kind:         ElasticJob" in text
    assert re.search(r"Max Replicas: +8\n", text)
    assert "Planned" in text.split("Events:")[1]
    assert "two workers" in text.split("Events:")[1]


def event_about(stored: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    metadata = stored["metadata"]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "metadata": {"generateName": f"{metadata['name']}."},
        "involvedObject": {
            "apiVersion": stored["apiVersion"],
            "kind": stored["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "tests"},
    }


def test_events_lists_those_of_one_job(kubectl: Kubectl, cluster: RunningCluster) -> None:
    for name in ("noisy", "quiet"):
        kubectl.ok("apply", "-f", "-", stdin=job(name))
    noisy = cluster.get(JOBS, "noisy", "default")
    cluster.create("events", event_about(noisy, "Scaled", "to three"), "default")
    text = kubectl.ok("events", "--for=elasticjob.penstock.dev/noisy")
    assert "Scaled" in text
    assert "to three" in text
    ran = kubectl.run("events", "--for=elasticjob.penstock.dev/quiet")
    assert "No events found" in ran.out + ran.err


def test_explain_reads_the_published_schema(kubectl: Kubectl) -> None:
    text = kubectl.ok("explain", "elasticjob.spec.replicaSpecs.worker")
    assert "KIND:       ElasticJob" in text
    assert "minReplicas\t<integer>" in text
    assert "template\t<Object>" in text
    text = kubectl.ok("explain", "pod.spec.schedulingGates")
    assert "FIELD: schedulingGates <[]PodSchedulingGate>" in text


def test_diff_shows_what_an_apply_would_change(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("differs"))
    assert kubectl.run("diff", "-f", "-", stdin=job("differs")).code == 0
    ran = kubectl.run("diff", "-f", "-", stdin=job("differs", maxReplicas="5"))
    assert ran.code == 1
    assert "-      maxReplicas: 8" in ran.out
    assert "+      maxReplicas: 5" in ran.out
    ran = kubectl.run("diff", "--server-side", "-f", "-", stdin=job("new-one"))
    assert ran.code == 1
    assert "+  name: new-one" in ran.out
    assert kubectl.run("get", "ej", "new-one").code == 1


def test_scale_goes_through_the_scale_subresource(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("scaled"))
    assert "scaled" in kubectl.ok("scale", "ej", "scaled", "--replicas=3")
    replicas = "{.spec.replicaSpecs.worker.replicas}"
    assert kubectl.ok("get", "ej", "scaled", f"-o=jsonpath={replicas}") == "3"
    ran = kubectl.run("scale", "ej", "scaled", "--replicas=9")
    assert ran.code == 1
    assert "is invalid" in ran.err


def test_wait_for_a_condition_a_field_and_deletion(
    kubectl: Kubectl, cluster: RunningCluster
) -> None:
    kubectl.ok("apply", "-f", "-", stdin=job("awaited"))
    waiting = kubectl.start("wait", "ej/awaited", "--for=condition=Succeeded", "--timeout=20s")
    time.sleep(0.3)
    condition = {
        "type": "Succeeded",
        "status": "True",
        "reason": "Completed",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"status": {"conditions": [condition]}}
    cluster.patch(JOBS, "awaited", status, "default", "status")
    out, error = waiting.communicate(timeout=20)
    assert (out, error) == ("elasticjob.penstock.dev/awaited condition met\n", "")
    waiting = kubectl.start("wait", "ej/awaited", "--for=delete", "--timeout=20s")
    time.sleep(0.3)
    kubectl.ok("delete", "ej", "awaited", "--wait=false")
    assert waiting.communicate(timeout=20)[0] == "elasticjob.penstock.dev/awaited condition met\n"
    ran = kubectl.run("wait", "ej/scaled", "--for=jsonpath={.status.state}=Done", "--timeout=1s")
    assert ran.code == 1


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_cascades_as_asked(kubectl: Kubectl, cluster: RunningCluster, cascade: str) -> None:
    name = f"owner-{cascade}"
    kubectl.ok("apply", "-f", "-", stdin=job(name))
    owner = cluster.get(JOBS, name, "default")
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name,
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    child = {"metadata": {"name": f"child-{cascade}", "ownerReferences": [reference]}}
    cluster.create("configmaps", child, "default")
    out = kubectl.ok("delete", "ej", name, f"--cascade={cascade}", "--timeout=15s")
    assert out.startswith(f'elasticjob.penstock.dev "{name}" deleted')
    assert cluster.find(JOBS, name, "default") is None
    if cascade == "orphan":
        left = cluster.get("configmaps", f"child-{cascade}", "default")
        assert "ownerReferences" not in left["metadata"]
    else:
        cluster.wait(
            lambda: cluster.find("configmaps", f"child-{cascade}", "default") is None,
            "the dependent to go",
        )


def test_api_resources_lists_what_discovery_offers(kubectl: Kubectl) -> None:
    lines = kubectl.ok("api-resources", "--api-group=penstock.dev", "-o=wide").splitlines()
    assert any(line.startswith("elasticjobs ") and "ElasticJob" in line for line in lines)
    assert any(line.startswith("scales ") for line in lines)
    assert "pods" in kubectl.ok("api-resources", "-o=name").split()


def test_patch_edit_and_replace(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", stdin=job("patched"))
    kubectl.ok("patch", "ej", "patched", "--type=merge", '-p={"spec":{"suspend":true}}')
    assert kubectl.ok("get", "ej", "patched", "-o=jsonpath={.spec.suspend}") == "true"
    kubectl.ok(
        "patch",
        "ej",
        "patched",
        "--type=json",
        '-p=[{"op":"replace","path":"/spec/suspend","value":false}]',
    )
    text = kubectl.ok("get", "ej", "patched", "-o=yaml").replace("maxReplicas: 8", "maxReplicas: 2")
    assert "replaced" in kubectl.ok("replace", "-f", "-", stdin=text)
    ran = kubectl.run("replace", "-f", "-", stdin=text)
    assert ran.code == 1
    assert "the object has been modified" in ran.err
