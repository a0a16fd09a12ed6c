"""A job from acceptance to its end: plans, suspension, deadlines, success."""

from __future__ import annotations

import pytest

from penstock.base.enums import Strategy
from penstock.controller.execution.tokens import KEY_SECRET
from tests.controller.life import Json, Life, Settings, template


def test_first_visit_writes_every_condition(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.deliver()
    life.one_pass()
    assert [one["type"] for one in life.status["conditions"]] == [
        "Accepted",
        "Planned",
        "Running",
        "Scaling",
        "Suspended",
        "StorageHealthy",
        "InputPartitioned",
        "Succeeded",
        "Failed",
    ]
    assert all(one["observedGeneration"] == 1 for one in life.status["conditions"])
    assert life.status["startTime"] == "2026-01-01T12:00:00Z"


def test_objects_of_a_job(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    uid = life.job["metadata"]["uid"]
    secret = life.server.objects["secrets"]["job-token"]
    assert len(bytes.fromhex(secret["stringData"]["token"])) == 32
    service = life.server.objects["services"]["job"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"penstock.dev/job-uid": uid}
    binding = life.server.objects["rolebindings"]["job-trainer"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "job-trainer")
    assert "job-trainer" in life.server.objects["serviceaccounts"]
    for kind in ("secrets", "services", "serviceaccounts", "roles", "rolebindings", "pods"):
        for name, found in life.server.objects[kind].items():
            if name == KEY_SECRET:  # the controller's own
                continue
            [owner] = found["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (uid, True)


@pytest.mark.parametrize("strategy", [Strategy.ALL_REDUCE, Strategy.PARAMETER_SERVER])
def test_a_trainers_role_names_its_job(life: Life, strategy: Strategy) -> None:
    """Only what cannot be narrowed to names has none; Scales are read where they ask a trainer."""
    servers = strategy is Strategy.PARAMETER_SERVER
    roles = {"ps": {"template": template(), "replicas": 1}} if servers else {}
    life.create_job(strategy=strategy.value, workers={"replicas": 1}, roles=roles)
    life.settle()
    rules = life.server.objects["roles"]["job-trainer"]["rules"]
    named = {
        (resource, verb)
        for rule in rules
        if rule.get("resourceNames") == ["job"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    whole = {
        (resource, verb)
        for rule in rules
        if "resourceNames" not in rule
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    reads = {("elasticjobs", verb) for verb in ("get", "list", "watch")}
    assert named == {*reads, ("elasticjobs/status", "patch")}
    scales = {("scales", "list"), ("scales", "watch"), ("scales/status", "patch")}
    least = {("scales", "create"), ("pods", "list"), ("pods", "watch")}
    assert whole == (least | scales if servers else least)


def test_a_binding_of_an_earlier_release_stays(life: Life) -> None:
    """What a role is bound to cannot be changed; its job's trainer goes on with what it had."""
    life.create_job(workers={"replicas": 1})
    life.settle()

    def of_an_earlier_release(binding: Json) -> None:
        binding["roleRef"].update(kind="ClusterRole", name="penstock-trainer")

    life.server.edit("rolebindings", "job-trainer", of_an_earlier_release)
    life.server.remove("roles", "job-trainer")
    life.restart()
    life.server.advance(1)
    life.find_missing_objects()
    life.settle()
    assert "job-trainer" in life.server.objects["roles"]
    assert life.server.objects["rolebindings"]["job-trainer"]["roleRef"]["kind"] == "ClusterRole"
    assert life.condition("Accepted")[0] == "True"


def test_a_trainer_of_an_earlier_release_is_left_running(life: Life) -> None:
    """Its pod has not all that the default template has now."""
    life.create_job(workers={"replicas": 1})
    life.settle()

    def of_an_earlier_release(pod: Json) -> None:
        del pod["spec"]["securityContext"]["runAsNonRoot"]
        del pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]

    life.server.edit("pods", "job-trainer-0-0", of_an_earlier_release)
    life.restart()
    life.settle()
    assert life.names(live=False) == ["job-trainer-0-0", "job-worker-0-0"]


def test_with_a_brain_workers_wait_for_the_plan(life: Life) -> None:
    life.create_job(optimize="Auto")
    life.settle()
    assert life.names() == ["job-trainer-0-0"]
    assert life.condition("Planned") == ("Unknown", "WaitingForPlan")
    assert life.status["state"] == "Planning"
    life.create_scale("plan", {"worker": {"replicas": 3}}, source="Brain")
    life.settle()
    assert len(life.names("worker")) == 3
    assert life.condition("Planned") == ("True", "PlanAdmitted")


def test_no_plan_30_seconds_after_the_trainer_is_ready(life: Life) -> None:
    life.create_job(optimize="Auto", workers={"minReplicas": 2})
    life.settle()
    life.server.advance(24)
    life.settle()
    assert life.names("worker") == []
    life.server.advance(7)
    life.settle()
    assert len(life.names("worker")) == 2
    assert life.condition("Planned") == ("False", "BrainUnavailable")
    assert "BrainUnavailable" in life.events()


def test_no_plan_5_minutes_after_acceptance_without_a_trainer(life: Life) -> None:
    life.create_job(optimize="Auto")
    life.settle(kubelet=False)
    life.server.advance(290)
    life.settle(kubelet=False)
    assert life.names("worker") == []
    life.server.advance(11)
    life.settle(kubelet=False)
    assert len(life.names("worker")) == 1


def test_a_late_plan_still_counts(life: Life) -> None:
    life.create_job(optimize="Auto")
    life.settle()
    life.server.advance(31)
    life.settle()
    life.create_scale("late", {"worker": {"replicas": 2}}, source="Brain")
    life.settle()
    assert len(life.names("worker")) == 2
    assert life.condition("Planned") == ("True", "PlanAdmitted")


def test_suspend_removes_the_trainer_last(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.deliver()
    life.one_pass()
    assert life.names() == ["job-trainer-0-0"]
    assert life.condition("Suspended") == ("False", "Draining")
    life.deliver()
    life.one_pass()
    assert life.names() == ["job-trainer-0-0"], "workers are still draining"
    life.settle()
    assert life.names(live=False) == []
    assert life.condition("Suspended") == ("True", "Suspended")
    assert life.status["state"] == "Suspended"


def test_resume_restores_the_targets(life: Life) -> None:
    life.create_job()
    life.settle()
    life.create_scale("plan", {"worker": {"replicas": 3}})
    life.settle()
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.settle()
    assert len(life.names("worker")) == 3
    assert life.condition("Running")[0] == "True"
    records = life.status["ranks"]["worker"].values()
    assert all(set(record) == {"incarnation"} for record in records), "nothing is counted"


def test_a_job_created_suspended_makes_no_pods(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, suspend=True)
    life.settle()
    assert life.names(live=False) == []
    assert life.condition("Suspended")[0] == "True"
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.settle()
    assert len(life.names("worker")) == 2


def test_all_ranks_succeeded(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.end_pod("job-worker-0-0", 0)
    life.settle()
    assert life.condition("Succeeded")[0] == "False"
    life.end_pod("job-worker-1-0", 0)
    life.settle()
    assert life.condition("Succeeded") == ("True", "AllRanksSucceeded")
    assert life.names() == []
    assert life.names("worker", live=False) == ["job-worker-0-0", "job-worker-1-0"]


def test_trainer_done_and_workers_exit(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.end_pod("job-trainer-0-0", 0)
    life.settle()
    assert life.condition("Succeeded")[0] == "False", "workers may still write their last words"
    life.end_pod("job-worker-0-0", 0)
    life.end_pod("job-worker-1-0", 143)
    life.settle()
    assert life.condition("Succeeded") == ("True", "DataExhausted")
    assert "job-worker-1-1" not in life.names(live=False), "nothing is replaced after the end"


def test_trainer_done_and_workers_that_never_exit(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    life.end_pod("job-trainer-0-0", 0)
    life.settle()
    life.server.advance(301)
    life.settle()
    assert life.condition("Succeeded") == ("True", "DataExhausted")
    assert life.names() == []


def test_workers_that_came_as_the_trainer_ended_are_ended_soon(life: Life) -> None:
    life.create_job()
    life.settle()
    life.create_scale("two", {"worker": {"replicas": 2}})
    life.settle()
    life.server.advance(60)
    life.create_scale("four", {"worker": {"replicas": 4}})
    life.settle()
    life.server.advance(2)
    life.end_pod("job-worker-0-0", 0)
    life.server.advance(3)
    life.end_pod("job-trainer-0-0", 0)
    life.settle()
    life.server.advance(10)
    life.settle()
    late = ["job-worker-2-0", "job-worker-3-0"]
    assert life.names("worker") == ["job-worker-1-0", *late], "they get a moment to exit"
    life.server.advance(10)
    life.settle()
    assert life.names("worker") == ["job-worker-1-0"], "who trained may save and evaluate"
    assert life.condition("Succeeded")[0] == "False"
    life.end_pod("job-worker-1-0", 0)
    life.settle()
    assert life.condition("Succeeded")[0] == "True"


def test_the_job_ends_with_the_grace_of_workers_that_came_too_late(life: Life) -> None:
    life.create_job()
    life.settle()
    life.server.advance(60)
    life.create_scale("two", {"worker": {"replicas": 2}})
    life.settle()
    life.end_pod("job-worker-0-0", 0)
    life.end_pod("job-trainer-0-0", 0)
    life.settle()
    assert life.condition("Succeeded")[0] == "False"
    life.server.advance(21)
    life.settle()
    assert life.condition("Succeeded") == ("True", "DataExhausted")
    assert life.names() == []


def test_trainer_done_but_every_worker_failed(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, failurePolicy={"maxRestarts": 5})
    life.settle()
    life.end_pod("job-trainer-0-0", 0)
    life.end_pod("job-worker-0-0", 1)
    life.settle()
    assert life.condition("Failed") == ("True", "WorkersFailed")


def test_deadline_does_not_count_suspension(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, activeDeadlineSeconds=100)
    life.settle()
    life.server.advance(60)
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    life.server.advance(1000)
    life.settle()
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.settle()
    assert life.status["suspendedSeconds"] >= 1000
    assert life.condition("Failed")[0] == "False"
    life.server.advance(50)
    life.settle()
    assert life.condition("Failed") == ("True", "DeadlineExceeded")
    assert "activeDeadlineSeconds, 100" in life.message("Failed")


def test_ttl_deletes_the_job(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, ttlSecondsAfterFinished=60)
    life.settle()
    life.end_pod("job-worker-0-0", 0)
    life.settle()
    life.server.advance(40)
    life.settle()
    assert life.server.objects["elasticjobs"]
    life.server.advance(30)
    life.settle()
    assert not life.server.objects["elasticjobs"]
    assert not life.server.objects["pods"]


def test_a_finished_job_never_starts_again(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    life.end_pod("job-worker-0-0", 0)
    life.settle()
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=5))
    life.create_scale("late", {"worker": {"replicas": 3}})
    life.settle()
    assert life.names() == []
    assert life.scale_condition("late", "Failed") == ("True", "JobFinished")


def test_a_job_managed_by_another_is_not_touched(life: Life) -> None:
    life.create_job(managedBy="kueue.x-k8s.io/multikueue")
    life.deliver()
    life.one_pass()
    assert life.server.calls == []
    assert life.status == {}


def test_our_own_name_as_manager_is_ours(life: Life) -> None:
    life.create_job(managedBy="penstock.dev/controller", workers={"replicas": 1})
    life.settle()
    assert life.condition("Running")[0] == "True"


@pytest.mark.parametrize("strategy", ["ParameterServer"])
def test_a_strategy_without_runtime_is_refused(strategy: str) -> None:
    known = frozenset({Strategy.ALL_REDUCE, Strategy.LOCAL})
    life = Life(Settings(trainer_image="trainer", supported_strategies=known))
    try:
        template = {"template": {"spec": {"containers": [{"name": "main"}]}}}
        life.create_job(strategy=strategy, roles={"ps": template})
        life.settle()
        assert life.condition("Accepted") == ("False", "UnsupportedStrategy")
        assert "supported: AllReduce, Local" in life.message("Accepted")
        assert life.names() == []
        assert life.status["state"] == "Pending"
    finally:
        life.close()


def test_local_has_one_worker(life: Life) -> None:
    life.create_job(strategy="Local")
    life.settle()
    life.create_scale("more", {"worker": {"replicas": 4}})
    life.settle()
    assert life.names("worker") == ["job-worker-0-0"]
    assert life.scale_condition("more", "Admitted") == ("True", "OutOfRange")


def test_spare_workers_come_on_top_at_a_lower_priority(life: Life) -> None:
    life.create_job(workers={"replicas": 2, "maxReplicas": 2, "spareReplicas": 1})
    life.settle()
    classes = [pod["spec"].get("priorityClassName") for pod in life.pods("worker")]
    assert classes == [None, None, "penstock-spare"]


def test_spares_are_not_waited_for(life: Life) -> None:
    life.create_job(workers={"replicas": 1, "spareReplicas": 1})
    life.settle(kubelet=False)
    life.run_pod("job-worker-0-0")
    life.run_pod("job-trainer-0-0")
    life.settle(kubelet=False)
    assert life.condition("Scaling") == ("False", "Settled")
    life.end_pod("job-worker-0-0", 0)
    life.settle(kubelet=False)
    assert life.condition("Succeeded")[0] == "True"


def test_counts_are_written_at_most_once_a_second(life: Life) -> None:
    life.create_job(workers={"replicas": 20})
    life.settle(kubelet=False)
    before = len(life.server.calls)
    for rank in range(20):
        life.run_pod(f"job-worker-{rank}-0")
        life.deliver()
        life.one_pass()
    writes = [call for call in life.server.calls[before:] if call[0] == "patch"]
    assert len(writes) <= 2, "Running flips once; counts may follow once"
