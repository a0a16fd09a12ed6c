"""Parameter servers: nothing of them changes before the trainer has made the training ready."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.reconcile.model import timing
from tests.controller.life import Life, template
from tests.controller.test_convergence import answer_trainer


@pytest.fixture
def servers(life: Life) -> Life:
    """Two servers, as a first plan says."""
    life.create_job(strategy="ParameterServer", roles={"ps": {"template": template()}})
    life.create_scale("a", {"ps": {"replicas": 2}})
    life.settle()
    assert len(life.names("ps")) == 2
    life.server.advance(2)
    return life


def test_the_first_plan_needs_no_consent(servers: Life) -> None:
    assert servers.scale_condition("a", "Prepared") == ("True", "NotRequired")
    assert servers.scale_condition("a", "Applied")[0] == "True"


def test_our_own_server_is_ready_when_it_serves(life: Life) -> None:
    without = template()
    del without["spec"]["containers"][0]["command"]
    life.create_job(strategy="ParameterServer", roles={"ps": {"template": without}})
    life.settle()
    [pod] = life.pods("ps")
    [made] = pod["spec"]["containers"]
    assert made["command"] == ["penstock", "ps"], "a template without a command runs our server"
    assert made["readinessProbe"] == {"tcpSocket": {"port": 8482}, "periodSeconds": 1}


@pytest.mark.parametrize("key", ["command", "args"])
def test_a_server_program_of_ones_own_is_left_as_it_is(life: Life, key: str) -> None:
    own = template()
    own["spec"]["containers"][0][key] = ["my-server"]
    life.create_job(strategy="ParameterServer", roles={"ps": {"template": own}})
    life.settle()
    [made] = life.pods("ps")[0]["spec"]["containers"]
    assert made[key] == ["my-server"]
    assert "readinessProbe" not in made


def test_a_replacement_comes_first_and_the_old_one_goes_when_it_serves(servers: Life) -> None:
    servers.create_scale("b", {"ps": {"ranks": {"1": {"minIncarnation": 1}}}})
    servers.settle()
    answer_trainer(servers, consents=True)
    servers.settle(kubelet=False)
    assert servers.names("ps") == ["job-ps-0-0", "job-ps-1-0", "job-ps-1-1"]
    servers.run_pod("job-ps-1-1", ready=False)
    servers.settle(kubelet=False)
    assert servers.names("ps") == ["job-ps-0-0", "job-ps-1-0", "job-ps-1-1"]
    servers.server.edit("pods", "job-ps-1-1", lambda pod: pod["status"].update(phase="Pending"))
    servers.settle()
    assert servers.names("ps") == ["job-ps-0-0", "job-ps-1-1"]


def test_suspended_the_servers_outlive_the_workers(servers: Life) -> None:
    servers.edit_spec(lambda spec: spec.update(suspend=True))
    servers.settle()
    assert _removed(servers) == ["worker", "ps", "ps", "trainer"]


def test_a_job_that_succeeded_leaves_no_server(servers: Life) -> None:
    servers.end_pod("job-worker-0-0", 0)
    servers.settle()
    assert _removed(servers) == ["ps", "ps", "trainer"]
    assert servers.condition("Succeeded")[0] == "True"


def test_servers_that_ended_with_their_job_are_not_made_again(servers: Life) -> None:
    for name in servers.names("ps"):
        servers.end_pod(name, 0)
    servers.settle()
    assert servers.names("ps") == []
    servers.end_pod("job-worker-0-0", 0)
    servers.settle()
    assert servers.condition("Succeeded")[0] == "True"
    assert servers.names() == []


def _removed(life: Life) -> list[str]:
    """The roles of the pods that the controller deleted, in its order."""
    calls = life.server.calls
    return [name.split("-")[1] for verb, kind, name in calls if (verb, kind) == ("delete", "pods")]


def test_a_change_waits_for_the_trainer(servers: Life) -> None:
    servers.create_scale("b", {"ps": {"replicas": 3}})
    servers.settle()
    assert servers.scale_condition("b", "Prepared") == ("Unknown", "AwaitingTrainer")
    assert servers.scale_condition("b", "Applied") == ("False", "AwaitingTrainer")
    assert len(servers.names("ps")) == 2
    answer_trainer(servers, consents=True)
    servers.settle()
    assert len(servers.names("ps")) == 3
    assert servers.scale_condition("b", "Applied")[0] == "True"


def test_a_refusal_fails_the_scale(servers: Life) -> None:
    servers.create_scale("b", {"ps": {"replicas": 1}, "worker": {"replicas": 3}})
    servers.settle()
    answer_trainer(servers, consents=False)
    servers.settle()
    assert servers.scale_condition("b", "Failed") == ("True", "NotPrepared")
    assert len(servers.names("ps")) == 2
    assert len(servers.names("worker")) == 1, "nothing of a Scale that failed is done"


def test_no_answer_fails_the_scale_after_a_time(servers: Life) -> None:
    servers.create_scale("b", {"ps": {"replicas": 1}})
    servers.settle()
    servers.server.advance(timing.PREPARATION.total_seconds() - 10)
    servers.settle()
    assert servers.scale_condition("b", "Failed")[0] == "False"
    servers.server.advance(11)
    servers.settle()
    assert servers.scale_condition("b", "Failed") == ("True", "NotPrepared")
    assert len(servers.names("ps")) == 2


def test_an_edit_of_the_spec_goes_the_same_way(servers: Life) -> None:
    def edit(count: int) -> None:
        def change(spec: dict[str, Any]) -> None:
            spec["replicaSpecs"]["ps"]["replicas"] = count

        servers.edit_spec(change)

    edit(4)
    servers.settle()
    assert len(servers.names("ps")) == 2
    [name] = [one for one in servers.server.objects["scales"] if one != "a"]
    assert servers.server.objects["scales"][name]["spec"]["reason"] == "SpecChanged"
    assert servers.scale_condition(name, "Prepared")[0] == "Unknown"
    answer_trainer(servers, consents=True)
    servers.settle()
    assert len(servers.names("ps")) == 4
    edit(0)
    servers.settle()
    assert len(servers.names("ps")) == 2, "0 returns the role to the plan"


def test_a_lost_server_is_replaced_without_asking(servers: Life) -> None:
    servers.end_pod("job-ps-1-0", 137, pod_reason="Evicted")
    servers.settle()
    assert servers.names("ps") == ["job-ps-0-0", "job-ps-1-1"]


def test_out_of_memory_doubles_the_number_then_the_memory(servers: Life) -> None:
    servers.end_pod("job-ps-1-0", 137, "OOMKilled")
    servers.settle()
    assert servers.names("ps") == ["job-ps-0-0", "job-ps-1-1"]
    answer_trainer(servers, consents=True)
    servers.settle()
    assert len(servers.names("ps")) == 4
    servers.server.advance(2)
    servers.end_pod("job-ps-1-1", 137, "OOMKilled")
    servers.settle()
    answer_trainer(servers, consents=True)
    servers.settle()
    assert len(servers.names("ps")) == 4, "its share did not shrink: more servers do not help"
    memory = {
        pod["metadata"]["labels"]["penstock.dev/rank"]: pod["spec"]["containers"][0]["resources"][
            "requests"
        ]["memory"]
        for pod in servers.pods("ps")
    }
    assert memory == {"0": "1Gi", "1": "2Gi", "2": "1Gi", "3": "1Gi"}


def _memory(life: Life) -> dict[str, str]:
    """What each server asks for, by rank."""
    return {
        pod["metadata"]["labels"]["penstock.dev/rank"]: pod["spec"]["containers"][0]["resources"][
            "requests"
        ]["memory"]
        for pod in life.pods("ps")
    }


def _kill(life: Life, rank: int) -> None:
    """The server of a rank runs out of memory, and the trainer consents to what comes of it."""
    [name] = [one for one in life.names("ps") if one.startswith(f"job-ps-{rank}-")]
    life.end_pod(name, 137, "OOMKilled")
    life.server.advance(5)
    life.settle()
    answer_trainer(life, consents=True)
    life.settle()


def _limited(life: Life, **limits: str) -> None:
    """Two servers of a core and 1 GiB, and a worker and the trainer beside them."""
    life.create_job(
        strategy="ParameterServer",
        roles={"ps": {"template": template()}},
        resourceLimits=limits,
        failurePolicy={"maxRestarts": 2},
    )
    life.create_scale("a", {"ps": {"replicas": 2}})
    life.settle()
    assert len(life.names("ps")) == 2
    life.server.advance(2)


def test_where_the_quota_allows_no_more_servers_they_get_more_memory(life: Life) -> None:
    _limited(life, cpu="4")
    _kill(life, 1)
    _kill(life, 1)
    assert _memory(life) == {"0": "1Gi", "1": "2Gi"}
    _kill(life, 0)
    assert _memory(life) == {"0": "2Gi", "1": "2Gi"}, "it is not asked for servers again"
    _kill(life, 1)
    assert _memory(life) == {"0": "2Gi", "1": "4Gi"}
    assert life.condition("Failed")[0] != "True"
    assert all("restarts" not in one for one in life.status["ranks"]["ps"].values())


def test_where_the_quota_allows_neither_restarts_are_spent_and_the_job_ends(life: Life) -> None:
    _limited(life, cpu="4", memory="3584Mi")
    for _ in range(5):
        assert life.condition("Failed")[0] != "True"
        _kill(life, 1)
    assert life.condition("Failed") == ("True", "MaxRestartsExceeded")
    assert "spec.resourceLimits[memory]" in life.message("Failed")
    assert len(life.server.objects["scales"]) == 3, "Scales are not written without end"


def test_servers_whose_memory_is_pinned_spend_restarts(servers: Life) -> None:
    servers.create_scale("pin", {"ps": {"ranks": {"1": {"memory": "1Gi"}}}}, policy="Pin")
    servers.settle()
    answer_trainer(servers, consents=True)
    servers.settle()
    for _ in range(12):
        if servers.condition("Failed")[0] != "True":
            _kill(servers, 1)
    assert servers.condition("Failed") == ("True", "MaxRestartsExceeded")
    assert "a pin or a later Scale keeps it as it is" in servers.message("Failed")
