"""One bad object ends neither the planner nor its work on the others."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.job_view import read_job
from tests.scheduler.planner.documents import Json, job, node, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(terms: Any) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def bad_job(name: str, role: str, **fields: Any) -> Json:
    document = job(name)
    template = {"spec": {**document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]}}
    first = dict(template["spec"]["containers"][0])
    if "resources" in fields:
        first["resources"] = fields.pop("resources")
    template["spec"].update(containers=[first], **fields)
    document["spec"]["replicaSpecs"][role] = {"template": template}
    return document


@pytest.mark.parametrize("role", ["worker", "dataWorker"])
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"initContainers": [None]}, "spec.initContainers[0]"),
        ({"initContainers": "abc"}, "spec.initContainers"),
        ({"resources": "abc"}, "spec.containers[0].resources"),
        ({"resources": {"requests": ["cpu"]}}, "spec.containers[0].resources.requests"),
        ({"affinity": "x"}, "spec.affinity"),
        ({"affinity": affinity([None])}, "nodeSelectorTerms[0]"),
        ({"affinity": affinity([{"matchExpressions": [{"operator": "Exists"}]}])}, ".key"),
        ({"tolerations": ["x"]}, "spec.tolerations[0]"),
        ({"tolerations": 5}, "spec.tolerations"),
        ({"nodeSelector": "x"}, "spec.nodeSelector"),
        ({"nodeSelector": ["x"]}, "spec.nodeSelector"),
        ({"overhead": "x"}, "spec.overhead"),
    ],
)
def test_a_template_of_the_wrong_types_leaves_the_job_alone(
    role: str, fields: Json, told: str
) -> None:
    view = read_job(bad_job("j", role, **fields))
    assert f"j: {role}: " in view.hands_off
    assert told in view.hands_off


def test_what_nobody_foresaw_is_counted_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    state = ClusterState()
    state.put_job(job("a"))
    odd = job("b")
    odd["spec"]["replicaSpecs"]["dataWorker"] = "x"
    state.replace_jobs([odd, job("a"), job("c")])
    assert set(state.jobs) == {"uid-a", "uid-c"}
    state.put_job({**job("c"), "spec": "x"})
    assert set(state.jobs) == {"uid-a"}
    assert state.faults["job"] == 2
    assert "job default/b cannot be read and is left alone" in caplog.text


def test_a_node_or_a_pod_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    state = ClusterState()
    state.replace_nodes([node("n1"), {**node("n2"), "spec": {"taints": [None]}}])
    assert set(state.snapshot.nodes) == {"n1"}
    assert "n2" in state.problems
    bad = pod("p1", gated=True, job="j")
    bad["spec"]["schedulingGates"] = ["x"]
    state.replace_pods([bad, pod("p2", gated=True, job="j")], 0.0)
    assert set(state.pods) == {"uid-p2"}
    assert state.faults == {"node": 1, "pod": 1}
    assert "node n2 cannot be read" in caplog.text
