"""What a job goes through when its pods fail, seen from outside."""

from __future__ import annotations

import pytest

from tests.controller.life import Life, template


def test_thirty_failures_are_replaced_in_one_pass(life: Life) -> None:
    life.create_job(workers={"replicas": 30})
    life.settle()
    for name in life.names("worker"):
        life.end_pod(name, 137)
    life.deliver()
    before = len(life.server.calls)
    assert life.one_pass()
    assert life.names("worker") == sorted(f"job-worker-{rank}-1" for rank in range(30))
    calls = life.server.calls[before:]
    assert [call[:2] for call in calls].count(("patch", "elasticjobs/status")) == 1


def test_exit_1_counts_and_then_fails_with_the_end_of_the_log(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, failurePolicy={"maxRestarts": 2})
    life.settle()
    for incarnation in range(3):
        name = f"job-worker-1-{incarnation}"
        life.server.logs[name] = f"line of {incarnation}\nValueError: no\n"
        life.end_pod(name, 1)
        life.settle()
    assert life.condition("Failed") == ("True", "MaxRestartsExceeded")
    message = life.message("Failed")
    assert "exited with code 1" in message
    assert message.endswith("line of 2\nValueError: no")
    assert life.names() == []
    assert life.status["replicas"]["worker"]["failed"] == 1
    assert life.status["completionTime"]


def test_preemptions_do_not_count_as_failures(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, failurePolicy={"maxRestarts": 0})
    life.settle()
    for incarnation in range(5):
        life.end_pod(f"job-worker-0-{incarnation}", 137, pod_reason="Preempting")
        life.settle()
    assert life.condition("Failed")[0] == "False"
    assert life.status["ranks"]["worker"]["0"] == {"incarnation": 5, "preemptions": 5}


@pytest.mark.parametrize("fate", ["deleted", "gone"])
def test_a_pod_taken_by_somebody_else_is_replaced(life: Life, fate: str) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    pod = life.server.objects["pods"]["job-worker-0-0"]
    if fate == "deleted":
        life.server.delete("pods", "job-worker-0-0", pod["metadata"]["uid"])
    else:
        life.server.remove("pods", "job-worker-0-0")
    life.settle()
    assert life.names("worker") == ["job-worker-0-1", "job-worker-1-0"]
    assert life.status["ranks"]["worker"]["0"] == {"incarnation": 1, "preemptions": 1}


def test_a_pod_lost_while_the_controller_was_down_is_counted(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.server.remove("pods", "job-worker-0-0")
    life.restart()
    life.settle()
    assert life.names("worker") == ["job-worker-0-1", "job-worker-1-0"]
    assert life.status["ranks"]["worker"]["0"] == {"incarnation": 1, "preemptions": 1}


def test_out_of_memory_doubles_the_ranks_memory(life: Life) -> None:
    life.create_job(workers={"replicas": 2, "template": template(memory="1Gi")})
    life.settle()
    life.end_pod("job-worker-1-0", 137, "OOMKilled")
    life.settle()
    assert life.names("worker") == ["job-worker-0-0", "job-worker-1-1"]
    pods = {pod["metadata"]["name"]: pod for pod in life.pods("worker")}
    resources = pods["job-worker-1-1"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "2Gi"
    [scale] = life.server.objects["scales"].values()
    assert scale["spec"]["source"] == "Controller"
    assert scale["spec"]["reason"] == "OutOfMemory"
    assert life.status["ranks"]["worker"] == {"1": {"incarnation": 1}}, "it costs no budget"
    assert life.status["plan"]["reason"] == "OutOfMemory"


def test_many_out_of_memory_need_one_scale(life: Life) -> None:
    life.create_job(workers={"replicas": 4})
    life.settle()
    for rank in range(4):
        life.end_pod(f"job-worker-{rank}-0", 137, "OOMKilled")
    life.settle()
    assert len(life.server.objects["scales"]) == 1
    assert life.names("worker") == [f"job-worker-{rank}-1" for rank in range(4)]


def test_out_of_memory_again_doubles_again_and_keeps_the_others(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.end_pod("job-worker-0-0", 137, "OOMKilled")
    life.settle()
    life.server.advance(5)
    life.end_pod("job-worker-1-0", 137, "OOMKilled")
    life.settle()
    life.server.advance(5)
    life.end_pod("job-worker-1-1", 137, "OOMKilled")
    life.settle()
    memory = {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        for pod in life.pods("worker")
    }
    assert memory == {"job-worker-0-1": "2Gi", "job-worker-1-2": "4Gi"}
    newest = max(life.server.objects["scales"])
    superseded = [
        name
        for name in life.server.objects["scales"]
        if life.scale_condition(name, "Superseded")[0] == "True"
    ]
    assert len(superseded) == 2
    assert newest not in superseded


def test_out_of_memory_beyond_the_limits_fails_the_job(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, resourceLimits={"memory": "2560Mi"})
    life.settle()
    life.server.logs["job-worker-1-0"] = "allocating\n"
    life.end_pod("job-worker-1-0", 137, "OOMKilled")
    life.settle()
    assert life.condition("Failed") == ("True", "OutOfMemory")
    assert "spec.resourceLimits[memory]" in life.message("Failed")
    [name] = life.server.objects["scales"]
    assert life.scale_condition(name, "Failed") == ("True", "OverQuota")


def test_out_of_memory_without_a_figure_counts_as_a_failure(life: Life) -> None:
    bare = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    life.create_job(workers={"replicas": 1, "template": bare}, failurePolicy={"maxRestarts": 0})
    life.settle()
    life.end_pod("job-worker-0-0", 137, "OOMKilled")
    life.settle()
    assert life.condition("Failed") == ("True", "MaxRestartsExceeded")
    assert "set resources.requests.memory" in life.message("Failed")


def test_out_of_memory_under_a_pin_spends_restarts_not_scales_without_end(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, failurePolicy={"maxRestarts": 2})
    life.settle()
    life.create_scale("pin", {"worker": {"ranks": {"0": {"memory": "1Gi"}}}}, policy="Pin")
    life.settle()
    for _ in range(6):
        for name in life.names("worker"):
            life.end_pod(name, 137, "OOMKilled")
        life.server.advance(5)
        life.settle()
    assert life.condition("Failed") == ("True", "MaxRestartsExceeded")
    assert "a pin keeps its memory as it is" in life.message("Failed")


def test_a_bad_image_is_told_at_once_and_fails_after_ten_minutes(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle(kubelet=False)
    life.set_waiting("job-worker-0-0", "ImagePullBackOff")
    life.settle(kubelet=False)
    assert life.condition("Scaling") == ("False", "ImageUnavailable")
    assert "container main of pod job-worker-0-0: ImagePullBackOff" in life.message("Scaling")
    life.server.advance(601)
    life.settle(kubelet=False)
    assert life.condition("Failed") == ("True", "ImageUnavailable")


def test_too_few_schedulable_is_said_after_a_minute(life: Life) -> None:
    life.create_job(workers={"replicas": 3, "minReplicas": 2})
    life.settle(kubelet=False)
    for rank in (1, 2):
        life.set_unschedulable(f"job-worker-{rank}-0")
    life.run_pod("job-worker-0-0")
    life.run_pod("job-trainer-0-0")
    life.settle(kubelet=False)
    assert life.condition("Scaling") == ("True", "Changing")
    life.server.advance(61)
    life.settle(kubelet=False)
    assert life.condition("Scaling") == ("False", "Unschedulable")
    assert "only 1 of at least 2 can be placed" in life.message("Scaling")
    assert "Insufficient cpu" in life.message("Scaling")
    assert life.condition("Running")[0] == "False"


def test_above_the_minimum_the_job_trains_with_what_there_is(life: Life) -> None:
    life.create_job(workers={"replicas": 3})
    life.settle(kubelet=False)
    life.set_unschedulable("job-worker-2-0")
    for name in ("job-worker-0-0", "job-worker-1-0", "job-trainer-0-0"):
        life.run_pod(name)
    life.server.advance(61)
    life.settle(kubelet=False)
    assert life.condition("Running")[0] == "True"
    assert life.condition("Scaling") == ("False", "PartiallyScheduled")
    assert life.status["workers"] == "2/3"


def test_trainer_lost_is_replaced_and_workers_keep_training(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.end_pod("job-trainer-0-0", 137)
    life.settle()
    assert life.names() == ["job-trainer-0-1", "job-worker-0-0", "job-worker-1-0"]
    assert life.status["trainer"] == {"incarnation": 1, "preemptions": 1}


def test_a_dead_pod_is_kept_for_its_log_for_a_while(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    life.end_pod("job-worker-0-0", 1)
    life.settle()
    assert life.names(live=False) == ["job-trainer-0-0", "job-worker-0-0", "job-worker-0-1"]
    life.server.advance(301)
    life.settle()
    assert life.names(live=False) == ["job-trainer-0-0", "job-worker-0-1"]


def test_a_half_failed_pod_is_removed_and_replaced(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()

    def fail_one(pod: dict[str, object]) -> None:
        pod["status"] = {
            "phase": "Running",
            "containerStatuses": [
                {"name": "main", "state": {"terminated": {"exitCode": 3}}},
                {"name": "side", "state": {"running": {}}},
            ],
        }

    life.server.edit("pods", "job-worker-0-0", fail_one)
    life.settle()
    assert life.names("worker", live=False) == ["job-worker-0-1"]
    assert life.status["ranks"]["worker"]["0"] == {"incarnation": 1, "restarts": 1}


def test_what_a_program_prints_is_made_readable(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, failurePolicy={"maxRestarts": 0})
    life.settle()
    life.server.logs["job-worker-0-0"] = (
        "\x1b[31mred\x1b[0m 10%\r20%\r\n\x00\x01\ufffd\ufffdPK\x03 \u202eevil\ud800 \u00fc\n"
    )
    life.end_pod("job-worker-0-0", 1)
    life.settle()
    assert life.condition("Failed")[0] == "True"
    assert life.message("Failed").endswith(
        "Last lines of its log:\nred 10%\n20%\n\ufffdPK\ufffd \ufffdevil\ufffd \u00fc"
    )


def test_a_long_log_does_not_crowd_out_what_happened(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, failurePolicy={"maxRestarts": 0})
    life.settle()
    life.server.logs["job-worker-0-0"] = "x" * 60_000 + "the end"
    life.end_pod("job-worker-0-0", 1)
    life.settle()
    message = life.message("Failed")
    assert message.startswith("container main of pod job-worker-0-0 exited with code 1")
    assert message.endswith("the end")
    assert len(message) <= 4096
