"""Scales: admission, precedence, pins, dry runs, superseding, expiry."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.reconcile.model import timing
from tests.controller.life import Life, scale


@pytest.fixture
def running(life: Life) -> Life:
    """A job at its minimum of one worker, whose count is the plan's."""
    life.create_job(workers={"maxReplicas": 6})
    life.settle()
    return life


def test_a_scale_is_admitted_and_applied(running: Life) -> None:
    running.create_scale("plan", {"worker": {"replicas": 3}}, source="Brain", reason="Created")
    running.settle()
    assert len(running.names("worker")) == 3
    assert running.scale_condition("plan", "Admitted") == ("True", "Admitted")
    assert running.scale_condition("plan", "Prepared") == ("True", "NotRequired")
    assert running.scale_condition("plan", "Applied") == ("True", "Applied")
    assert running.scale_condition("plan", "Superseded")[0] == "False"
    assert running.scale_condition("plan", "Failed")[0] == "False"
    assert running.status["plan"] == {"name": "plan", "source": "Brain", "reason": "Created"}


def test_the_newest_counts_and_the_older_is_superseded(running: Life) -> None:
    running.create_scale("plan-a", {"worker": {"replicas": 3}})
    running.server.advance(2)
    running.create_scale("plan-b", {"worker": {"replicas": 2}})
    running.settle()
    assert len(running.names("worker")) == 2
    assert running.scale_condition("plan-a", "Superseded") == ("True", "NewerScale")
    assert running.scale_condition("plan-a", "Applied") == ("False", "NewerScale")
    assert running.scale_condition("plan-b", "Applied")[0] == "True"


def test_within_a_second_the_later_one_counts_whatever_its_name(running: Life) -> None:
    running.create_scale("plan-b", {"worker": {"replicas": 2}})
    running.create_scale("plan-a", {"worker": {"replicas": 3}})
    running.settle()
    assert len(running.names("worker")) == 3
    assert running.scale_condition("plan-b", "Superseded") == ("True", "NewerScale")


@pytest.mark.parametrize("seen_between", [True, False])
def test_a_clock_that_goes_back_silences_nobody(running: Life, seen_between: bool) -> None:
    """What a person wrote after it was Superseded, and stayed so when the clock was right again."""
    running.server.advance(3600)
    running.create_scale("before", {"worker": {"replicas": 4}})
    if seen_between:
        running.settle()
        assert len(running.names("worker")) == 4
    running.server.advance(-7200)
    running.create_scale("after", {"worker": {"replicas": 2}})
    running.settle()
    assert len(running.names("worker")) == 2
    assert running.scale_condition("before", "Superseded") == ("True", "NewerScale")
    running.server.advance(7200)
    running.settle()
    assert len(running.names("worker")) == 2


def test_a_number_is_never_changed_and_the_next_is_one_higher(running: Life) -> None:
    for name in ("one", "two"):
        running.create_scale(name, {"worker": {"replicas": 2}})
        running.settle()
    running.create_scale("refused", {"ps": {"replicas": 2}})
    running.settle()
    running.create_scale("four", {"worker": {"replicas": 3}})
    running.settle()
    numbers = {
        name: running.server.get("scales", name)["status"]["number"]
        for name in ("one", "two", "refused", "four")
    }
    assert numbers == {"one": 1, "two": 2, "refused": 3, "four": 4}


def test_scales_that_an_earlier_release_decided_come_before_all_with_a_number(
    running: Life,
) -> None:
    running.server.advance(3600)
    running.create_scale("old", {"worker": {"replicas": 4}})
    running.settle()
    running.server.edit("scales", "old", lambda found: found["status"].pop("number"))
    running.server.advance(-7200)
    running.create_scale("new", {"worker": {"replicas": 2}})
    running.settle()
    assert len(running.names("worker")) == 2
    assert "number" not in running.server.get("scales", "old")["status"]


def test_fields_are_independent(running: Life) -> None:
    running.create_scale("size", {"worker": {"resources": {"cpu": "3"}}})
    running.server.advance(2)
    running.create_scale("count", {"worker": {"replicas": 2}})
    running.settle()
    cpus = [
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for pod in running.pods("worker")
    ]
    assert cpus == ["3", "3"]
    assert running.scale_condition("size", "Superseded")[0] == "False"


def test_a_pin_holds_until_it_is_deleted(running: Life) -> None:
    running.create_scale("pin", {"worker": {"replicas": 4}}, policy="Pin")
    running.server.advance(2)
    running.create_scale("plan", {"worker": {"replicas": 2}}, source="Brain")
    running.settle()
    assert len(running.names("worker")) == 4
    assert running.scale_condition("plan", "Admitted")[0] == "True"
    assert running.scale_condition("plan", "Applied") == ("False", "PinnedByUser")
    running.server.remove("scales", "pin")
    running.settle()
    assert len(running.names("worker")) == 2
    assert running.scale_condition("plan", "Applied")[0] == "True"


def test_what_is_underneath_a_pin_never_expires(running: Life) -> None:
    running.create_scale("plan", {"worker": {"replicas": 2}}, ttlSecondsAfterFinished=1)
    running.settle()
    running.server.advance(2)
    running.create_scale(
        "pin", {"worker": {"replicas": 4}}, policy="Pin", ttlSecondsAfterFinished=1
    )
    running.settle()
    running.server.advance(10_000)
    running.settle()
    assert sorted(running.server.objects["scales"]) == ["pin", "plan"]
    running.server.remove("scales", "pin")
    running.settle()
    assert len(running.names("worker")) == 2


def test_a_fixed_count_overrides_a_pin(running: Life) -> None:
    running.create_scale("pin", {"worker": {"replicas": 4}}, policy="Pin")
    running.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=2))
    running.settle()
    assert len(running.names("worker")) == 2
    running.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=0))
    running.settle()
    assert len(running.names("worker")) == 4


@pytest.mark.parametrize(("asked", "got"), [(0, 2), (1, 2), (9, 6), (4096, 6)])
def test_counts_are_clamped(life: Life, asked: int, got: int) -> None:
    life.create_job(workers={"minReplicas": 2, "maxReplicas": 6})
    life.settle()
    life.create_scale("plan", {"worker": {"replicas": asked}})
    life.settle()
    assert len(life.names("worker")) == got
    assert life.scale_condition("plan", "Admitted") == ("True", "OutOfRange")


def test_a_stale_scale_is_refused(running: Life) -> None:
    running.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(maxReplicas=5))
    running.create_scale("stale", {"worker": {"replicas": 3}}, jobGeneration=1)
    running.create_scale("fresh", {"worker": {"replicas": 2}}, jobGeneration=2)
    running.settle()
    assert running.scale_condition("stale", "Failed") == ("True", "StaleJob")
    assert running.scale_condition("stale", "Admitted") == ("False", "StaleJob")
    assert running.scale_condition("fresh", "Admitted")[0] == "True"
    assert len(running.names("worker")) == 2


def test_admission_is_not_revised_when_the_job_moves_on(running: Life) -> None:
    running.create_scale("plan", {"worker": {"replicas": 3}}, jobGeneration=1)
    running.settle()
    running.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(maxReplicas=5))
    running.settle()
    assert running.scale_condition("plan", "Admitted")[0] == "True"
    assert len(running.names("worker")) == 3


def test_beyond_the_limits_a_scale_fails_and_changes_nothing(life: Life) -> None:
    life.create_job(resourceLimits={"cpu": "3"})
    life.settle()
    life.create_scale("ok", {"worker": {"replicas": 3}})
    life.settle()
    life.server.advance(2)
    life.create_scale("greedy", {"worker": {"replicas": 4}})
    life.settle()
    assert life.scale_condition("greedy", "Failed") == ("True", "OverQuota")
    assert len(life.names("worker")) == 3
    status = life.server.objects["scales"]["greedy"]["status"]
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert message == "spec.resourceLimits[cpu]: the replicas request 4 of at most 3"


def test_an_overridden_scale_is_held_to_the_limits_too(life: Life) -> None:
    life.create_job(resourceLimits={"cpu": "3"}, workers={"replicas": 1})
    life.settle()
    life.create_scale("greedy", {"worker": {"replicas": 4}})
    life.settle()
    assert life.scale_condition("greedy", "Failed") == ("True", "OverQuota")


def test_dry_run_previews_and_changes_nothing(running: Life) -> None:
    running.create_scale("now", {"worker": {"replicas": 2}})
    running.settle()
    running.server.advance(2)
    running.create_scale(
        "would",
        {"worker": {"replicas": 3, "resources": {"cpu": "2"}}, "dataWorker": {"replicas": 1}},
        dryRun=True,
    )
    running.create_scale("less", {"worker": {"replicas": 1}}, dryRun=True)
    running.settle()
    scales = running.server.objects["scales"]
    assert scales["would"]["status"]["preview"] == {
        "created": ["worker-2", "data-worker-0"],
        "removed": [],
        "resized": ["worker-0", "worker-1"],
    }
    assert scales["less"]["status"]["preview"]["removed"] == ["worker-1"]
    assert running.scale_condition("would", "Admitted") == ("True", "DryRun")
    assert running.scale_condition("would", "Applied") == ("False", "DryRun")
    assert running.names("worker") == ["job-worker-0-0", "job-worker-1-0"]


def test_superseded_scales_go_after_their_ttl(running: Life) -> None:
    running.create_scale("old", {"worker": {"replicas": 2}}, ttlSecondsAfterFinished=100)
    running.settle()
    running.server.advance(2)
    running.create_scale("new", {"worker": {"replicas": 3}}, ttlSecondsAfterFinished=1)
    running.settle()
    running.server.advance(90)
    running.settle()
    assert sorted(running.server.objects["scales"]) == ["new", "old"]
    running.server.advance(20)
    running.settle()
    assert sorted(running.server.objects["scales"]) == ["new"]
    assert len(running.names("worker")) == 3


def test_history_is_bounded(running: Life) -> None:
    for number in range(timing.SCALE_HISTORY + 20):
        running.create_scale(f"plan-{number:03d}", {"worker": {"replicas": 1 + number % 3}})
    running.settle()
    names = sorted(running.server.objects["scales"])
    assert len(names) == timing.SCALE_HISTORY + 1
    assert names[-1] == f"plan-{timing.SCALE_HISTORY + 19:03d}"
    assert len(running.names("worker")) == 1 + (timing.SCALE_HISTORY + 19) % 3


def test_while_suspended_a_scale_waits(running: Life) -> None:
    running.edit_spec(lambda spec: spec.update(suspend=True))
    running.settle()
    running.create_scale("plan", {"worker": {"replicas": 3}})
    running.settle()
    assert running.scale_condition("plan", "Applied") == ("False", "Suspended")
    running.edit_spec(lambda spec: spec.update(suspend=False))
    running.settle()
    assert running.scale_condition("plan", "Applied")[0] == "True"
    assert len(running.names("worker")) == 3


def test_a_role_that_the_job_does_not_have(running: Life) -> None:
    running.create_scale("ps", {"ps": {"replicas": 2}})
    running.settle()
    assert running.scale_condition("ps", "Failed") == ("True", "Invalid")


def test_a_scale_for_another_uid_is_refused(running: Life) -> None:
    running.server.put("scales", scale("foreign", "another-uid", {"worker": {"replicas": 3}}))
    running.settle()
    assert running.scale_condition("foreign", "Failed") == ("", ""), "it may only be early"
    running.server.advance(31)
    running.settle()
    assert running.scale_condition("foreign", "Failed") == ("True", "JobNotFound")
    assert len(running.names("worker")) == 1


def test_a_scale_for_a_missing_job_is_refused_and_expires(life: Life) -> None:
    life.server.put(
        "scales", scale("lone", "no-uid", {"worker": {"replicas": 3}}, ttlSecondsAfterFinished=60)
    )
    life.deliver()
    life.one_pass()
    assert life.scale_condition("lone", "Failed") == ("", "")
    life.server.advance(31)
    life.one_pass()
    assert life.scale_condition("lone", "Admitted") == ("False", "JobNotFound")
    status = life.server.objects["scales"]["lone"]["status"]
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert message == ("spec.jobRef: no ElasticJob 'job' with uid 'no-uid' exists in namespace ns")
    life.server.advance(61)
    life.one_pass()
    assert not life.server.objects["scales"]


def test_a_scale_for_a_finished_job(running: Life) -> None:
    running.end_pod("job-worker-0-0", 0)
    running.settle()
    running.create_scale("late", {"worker": {"replicas": 3}})
    running.settle()
    assert running.scale_condition("late", "Admitted") == ("False", "JobFinished")


def test_scale_in_removes_the_highest_ranks(running: Life) -> None:
    running.create_scale("five", {"worker": {"replicas": 5}})
    running.settle()
    running.server.advance(2)
    running.create_scale("two", {"worker": {"replicas": 2}})
    running.settle()
    assert running.names("worker") == ["job-worker-0-0", "job-worker-1-0"]


def test_a_rank_that_comes_back_is_a_later_incarnation(running: Life) -> None:
    for name, replicas in (("a", 3), ("b", 1), ("c", 3)):
        running.create_scale(name, {"worker": {"replicas": replicas}})
        running.settle()
        running.server.advance(2)
    assert running.names("worker") == ["job-worker-0-0", "job-worker-1-1", "job-worker-2-1"]


def test_min_incarnation_replaces_the_new_one_first(running: Life) -> None:
    running.create_scale("move", {"worker": {"ranks": {"0": {"minIncarnation": 1}}}})
    running.deliver()
    running.one_pass()
    assert running.names("worker") == ["job-worker-0-0", "job-worker-0-1"]
    running.deliver()
    running.one_pass()
    assert running.names("worker") == ["job-worker-0-0", "job-worker-0-1"], "the new is not Ready"
    running.settle()
    assert running.names("worker", live=False) == ["job-worker-0-1"]
    assert running.scale_condition("move", "Applied")[0] == "True"


def test_avoid_nodes_moves_a_rank(running: Life) -> None:
    running.create_scale("move", {"worker": {"ranks": {"0": {"avoidNodes": ["node-1"]}}}})
    running.settle()
    [pod] = running.pods("worker")
    assert pod["metadata"]["name"] == "job-worker-0-1"
    assert pod["spec"]["nodeName"] == "node-2"


def test_resources_change_in_place(running: Life) -> None:
    running.create_scale("big", {"worker": {"resources": {"cpu": "2", "memory": "3Gi"}}})
    running.settle()
    [pod] = running.pods("worker")
    assert pod["metadata"]["name"] == "job-worker-0-0"
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "3Gi"}


def test_resources_that_cannot_change_in_place_replace_the_pod(life: Life) -> None:
    bare = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    life.create_job(workers={"replicas": 1, "template": bare})
    life.settle()
    life.create_scale("big", {"worker": {"resources": {"cpu": "2"}}})
    life.settle()
    assert life.names("worker") == ["job-worker-0-1"]


def test_a_change_of_template_reaches_new_incarnations_only(running: Life) -> None:
    def change(spec: dict[str, object]) -> None:
        # JSON data, nested as the spec is.
        spec["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["image"] = "v2"  # type: ignore[index]

    running.edit_spec(change)
    running.settle()
    assert running.names("worker") == ["job-worker-0-0"]
    running.end_pod("job-worker-0-0", 137)
    running.settle()
    [pod] = running.pods("worker")
    assert pod["spec"]["containers"][0]["image"] == "v2"


def test_the_status_names_the_plan_in_force_and_none_where_the_spec_decides(running: Life) -> None:
    def fix(replicas: int, *, suspend: bool = False) -> None:
        def change(spec: dict[str, Any]) -> None:
            spec["replicaSpecs"]["worker"]["replicas"] = replicas
            spec["suspend"] = suspend

        running.edit_spec(change)
        running.settle()

    running.create_scale("one", {"worker": {"replicas": 1, "memory": "2Gi"}}, source="Brain")
    running.settle()
    running.server.advance(2)
    running.create_scale("two", {"worker": {"replicas": 2}}, source="Brain")
    running.settle()
    assert running.status["plan"]["name"] == "two"
    fix(3)
    assert len(running.names("worker")) == 3
    assert "plan" not in running.status, "Scale one decides the memory, not how many there are"
    fix(3, suspend=True)
    assert "plan" not in running.status
    fix(0, suspend=True)
    assert running.status["plan"]["name"] == "two"
    fix(0)
    assert running.status["plan"]["name"] == "two"
    assert len(running.names("worker")) == 2


def test_a_plan_that_is_deleted_is_named_no_more(running: Life) -> None:
    running.create_scale("plan", {"worker": {"replicas": 2}}, source="Brain")
    running.settle()
    running.server.remove("scales", "plan")
    running.settle()
    assert "plan" not in running.status


@pytest.mark.parametrize("policy", ["Apply", "Pin"])
def test_a_dry_run_leaves_a_pin_and_what_is_underneath_alone(running: Life, policy: str) -> None:
    running.create_scale("plan", {"worker": {"replicas": 2}}, source="Brain")
    running.server.advance(2)
    running.create_scale("pin", {"worker": {"replicas": 4}}, policy="Pin")
    running.settle()
    running.server.advance(2)
    running.create_scale("what-if", {"worker": {"replicas": 3}}, policy=policy, dryRun=True)
    running.settle()
    assert len(running.names("worker")) == 4
    assert running.scale_condition("pin", "Applied") == ("True", "Applied")
    assert running.scale_condition("pin", "Superseded") == ("False", "InEffect")
    assert running.scale_condition("plan", "Superseded") == ("False", "InEffect")
    assert running.scale_condition("what-if", "Applied") == ("False", "DryRun")
    assert running.status["plan"]["name"] == "pin"
    running.server.advance(4000)
    running.settle()
    assert {"pin", "plan"} <= running.server.objects["scales"].keys()
    assert "what-if" not in running.server.objects["scales"], "its TTL is over"


def test_scales_of_others_go_with_the_job(running: Life) -> None:
    running.create_scale("plan", {"worker": {"replicas": 2}}, source="Brain")
    mine = running.create_scale("mine", {"worker": {"replicas": 3}})
    mine["metadata"]["ownerReferences"] = [{"kind": "Campaign", "name": "c", "uid": "other"}]
    running.relist()
    running.settle()
    owners = running.server.objects["scales"]["mine"]["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["other", running.job["metadata"]["uid"]]
    assert not any(owner.get("controller") for owner in owners)
    running.server.remove("elasticjobs", "job")
    assert running.server.objects["scales"] == {}


def test_a_scale_of_a_finished_job_goes_with_it_too(running: Life) -> None:
    running.end_pod("job-worker-0-0", 0)
    running.settle()
    running.create_scale("late", {"worker": {"replicas": 2}})
    running.settle()
    assert running.scale_condition("late", "Failed") == ("True", "JobFinished")
    running.server.remove("elasticjobs", "job")
    assert running.server.objects["scales"] == {}
