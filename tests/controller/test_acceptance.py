"""Bad input that the API server lets through, and what a person is told about it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.reconcile.model.parsing import read_spec
from penstock.kube.errors import ApiRefusedError
from tests.controller.life import Life, job, template

Json = dict[str, Any]


def test_a_quantity_that_does_not_parse(life: Life) -> None:
    life.create_job(workers={"template": template(memory="12 GB")})
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidSpec")
    message = life.message("Accepted")
    assert message.startswith(
        "spec.replicaSpecs.worker.template.spec.containers[main].resources: memory: '12 GB'"
    )
    assert "such as 500m, 4, 1.5Gi" in message
    assert life.names(live=False) == []


def test_a_quantity_that_overflows_is_over_quota(life: Life) -> None:
    life.create_job(
        workers={"replicas": 3, "template": template(memory="9E")}, resourceLimits={"memory": "8E"}
    )
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert "spec.resourceLimits[memory]: the replicas request" in life.message("Accepted")


def test_a_spec_beyond_its_own_limits_leaves_what_runs(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, resourceLimits={"cpu": "3"})
    life.settle()
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=5))
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert "the replicas request 5 of at most 3" in life.message("Accepted")
    assert len(life.names("worker")) == 2
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=3))
    life.settle()
    assert life.condition("Accepted")[0] == "True"
    assert len(life.names("worker")) == 3


def test_accelerators_count_against_the_limits(life: Life) -> None:
    wanted = template()
    wanted["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    life.create_job(
        workers={"replicas": 3, "template": wanted}, resourceLimits={"nvidia.com/gpu": 4}
    )
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert "spec.resourceLimits[nvidia.com/gpu]: the replicas request 6 of at most 4" in (
        life.message("Accepted")
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"strategy": "Magic"}, "strategy"),
        ({"replicaSpecs": {}}, "replicaSpecs.worker"),
        ({"failurePolicy": {"maxRestarts": -1}}, "failurePolicy.maxRestarts"),
    ],
)
def test_a_spec_from_another_version_of_the_schema(life: Life, change: Json, told: str) -> None:
    raw = job()
    raw["spec"] = {**raw["spec"], **change}
    life.server.put("elasticjobs", raw)
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidSpec")
    assert told in life.message("Accepted")


def test_read_spec_names_field_and_value() -> None:
    raw = {**job()["spec"], "ttlSecondsAfterFinished": "soon"}
    spec, fault = read_spec(raw)
    assert spec is None
    assert "ttlSecondsAfterFinished: 'soon'" in fault


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("services", "job"),
        ("secrets", "job-token"),
        ("serviceaccounts", "job-trainer"),
        ("roles", "job-trainer"),
        ("rolebindings", "job-trainer"),
    ],
)
def test_an_object_in_the_way_is_named(life: Life, resource: str, name: str) -> None:
    kind = {
        "services": "Service",
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "roles": "Role",
        "rolebindings": "RoleBinding",
    }[resource]
    life.server.put(resource, {"kind": kind, "metadata": {"name": name}})
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert life.condition("Accepted") == ("False", "NameTaken")
    assert f"{kind} {name} exists and does not belong to this job" in life.message("Accepted")
    assert life.names(live=False) == []
    life.server.remove(resource, name)
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert life.names("worker") == ["job-worker-0-0"]


def test_a_pod_in_the_way_is_named(life: Life) -> None:
    foreign = {
        "metadata": {
            "name": "job-worker-0-0",
            "labels": {
                "penstock.dev/role": "worker",
                "penstock.dev/rank": "7",
                "penstock.dev/incarnation": "7",
                "penstock.dev/job-uid": "other",
            },
        },
        "spec": {"containers": [{"name": "main"}]},
    }
    life.server.put("pods", foreign)
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert life.condition("Accepted") == ("False", "NameTaken")
    assert "Pod job-worker-0-0 exists" in life.message("Accepted")


def refuse_pods(life: Life, code: int, reason: str, message: str) -> None:
    put = life.server.put

    def refusing(resource: str, found: Json) -> Json:
        if resource == "pods" and "-worker-" in found["metadata"]["name"]:
            raise ApiRefusedError(message, code=code, reason=reason)
        return put(resource, found)

    life.server.put = refusing  # type: ignore[method-assign]  # stands in for the server's own


def test_a_template_that_the_api_server_refuses(life: Life) -> None:
    told = "Pod is invalid: spec.containers[0].image: Required value"
    refuse_pods(life, 422, "Invalid", told)
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert told in life.message("Accepted")
    del life.server.put
    life.settle()
    assert life.condition("Accepted")[0] == "True"
    assert life.names("worker") == ["job-worker-0-0"], "a refused incarnation is not spent"


@pytest.mark.parametrize(
    ("told", "cure"),
    [
        (
            "exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8",
            "lower what the job asks for",
        ),
        (
            "failed quota: team: must specify limits.cpu for: main",
            "under resources in the template",
        ),
        (
            'violates PodSecurity "restricted:latest": runAsNonRoot != true',
            "set what it names in the template",
        ),
        ("denied by the team's own policy", "policy"),
    ],
)
def test_a_pod_that_the_namespace_forbids(life: Life, told: str, cure: str) -> None:
    refuse_pods(life, 403, "Forbidden", told)
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert life.condition("Accepted")[0] == "True"
    assert life.condition("Scaling") == ("False", "PodRefused")
    said = life.message("Scaling")
    assert said.startswith("Pod job-worker-0-0: ")
    assert told in said
    assert cure in said


def test_a_job_with_a_name_of_63_characters(life: Life) -> None:
    name = "a" * 63
    life.server.put(
        "elasticjobs",
        job(
            name,
            workers={"replicas": 1},
            roles={"dataWorker": {"replicas": 1, "template": template()}},
        ),
    )
    life.deliver()
    assert life.one_pass(("ns", name))
    pods = list(life.server.objects["pods"].values())
    assert len(pods) == 3
    for pod in pods:
        assert len(pod["spec"]["hostname"]) <= 63
        assert len(pod["spec"]["subdomain"]) <= 63
        assert len(pod["metadata"]["name"]) <= 253
        assert all(len(value) <= 63 for value in pod["metadata"]["labels"].values())
    assert name in life.server.objects["services"]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("optimize", ["Auto", "Manual"])
def test_a_limit_within_which_nothing_runs(life: Life, resource: str, optimize: str) -> None:
    bare = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    life.create_job(workers={"template": bare}, optimize=optimize, resourceLimits={resource: "0"})
    life.settle()
    life.server.advance(600)
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert life.message("Accepted") == (
        f"spec.resourceLimits[{resource}]: '0': no worker can run within it;"
        " raise it or leave it out"
    )
    assert life.names(live=False) == []


def test_no_accelerators_at_all_is_a_limit_like_any_other(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, resourceLimits={"nvidia.com/gpu": "0"})
    life.settle()
    assert life.condition("Accepted")[0] == "True"


def beyond_its_limits(life: Life, **spec: Any) -> None:
    life.create_job(workers={"replicas": 2}, resourceLimits={"cpu": "3"}, **spec)
    life.settle()
    life.edit_spec(lambda found: found["replicaSpecs"]["worker"].update(replicas=5))
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert len(life.names("worker")) == 2


def test_a_job_beyond_its_limits_is_suspended_and_resumes_within_them(life: Life) -> None:
    beyond_its_limits(life)
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    assert life.names() == []
    assert life.condition("Suspended") == ("True", "Suspended")
    assert life.condition("Accepted") == ("False", "OverQuota")
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.settle()
    assert life.names("worker") == []
    assert life.condition("Accepted") == ("False", "OverQuota")
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=3))
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert len(life.names("worker")) == 3


def test_a_job_beyond_its_limits_meets_its_deadline(life: Life) -> None:
    beyond_its_limits(life, activeDeadlineSeconds=100)
    life.server.advance(101)
    life.settle()
    assert life.condition("Failed") == ("True", "DeadlineExceeded")
    assert life.names() == []


def test_a_job_beyond_its_limits_succeeds_with_the_pods_it_has(life: Life) -> None:
    beyond_its_limits(life)
    life.end_pod("job-trainer-0-0", 0)
    life.settle()
    for name in life.names("worker"):
        life.end_pod(name, 0)
    life.settle()
    assert life.condition("Succeeded") == ("True", "DataExhausted")


def test_limits_taken_away_from_a_job_that_runs_leave_it_under_control(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, activeDeadlineSeconds=100)
    life.settle()
    life.edit_spec(lambda spec: spec.update(resourceLimits={"cpu": "0"}))
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert len(life.names("worker")) == 2
    life.server.advance(101)
    life.settle()
    assert life.condition("Failed") == ("True", "DeadlineExceeded")


def test_a_job_that_asks_for_too_many_servers_keeps_those_it_has(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1},
        strategy="ParameterServer",
        roles={"ps": {"replicas": 2, "template": template()}},
        resourceLimits={"cpu": "3"},
    )
    life.settle()
    life.server.advance(2)
    life.edit_spec(lambda spec: spec["replicaSpecs"]["ps"].update(replicas=3))
    life.settle()
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert "the replicas request 4 of at most 3" in life.message("Accepted")
    assert "Refused" in life.events()
    assert life.server.objects["scales"] == {}
    life.end_pod("job-ps-1-0", 137, pod_reason="Evicted")
    life.end_pod("job-worker-0-0", 137, pod_reason="Evicted")
    life.settle()
    assert life.names("ps") == ["job-ps-0-0", "job-ps-1-1"]
    assert life.names("worker") == ["job-worker-0-1"]
    assert life.condition("Accepted") == ("False", "OverQuota")
    life.edit_spec(lambda spec: spec["replicaSpecs"]["ps"].update(replicas=2))
    life.settle()
    assert life.condition("Accepted")[0] == "True"


def test_servers_beyond_the_limits_of_a_suspended_job_are_not_prepared(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1},
        strategy="ParameterServer",
        roles={"ps": {"replicas": 1, "template": template()}},
        resourceLimits={"cpu": "2"},
    )
    life.settle()
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    life.edit_spec(lambda spec: spec["replicaSpecs"]["ps"].update(replicas=2))
    for _ in range(3):
        life.settle()
        life.server.advance(700)
    assert life.condition("Accepted") == ("False", "OverQuota")
    assert life.server.objects["scales"] == {}
