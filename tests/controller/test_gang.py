"""``spec.gang``: the groups and words that gang schedulers know, and a cluster without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.base.enums import GangScheduler
from tests.controller.life import Json, Life, Settings, template

PLUGINS = "podgroups.scheduling.x-k8s.io"
VOLCANO = "podgroups.scheduling.volcano.sh"
SERVERS = {"ps": {"replicas": 2, "template": template()}}


PUBLISHED: dict[str, dict[str, type | range]] = {
    PLUGINS: {
        "minMember": range(1, 2**31),
        "minResources": dict,
        "scheduleTimeoutSeconds": range(-(2**31), 2**31),
    },
    VOLCANO: {
        "minMember": range(-(2**31), 2**31),
        "minResources": dict,
        "minTaskMember": dict,
        "networkTopology": dict,
        "preemptable": bool,
        "priorityClassName": str,
        "queue": str,
    },
}
"""What the specs of both kinds of group may hold, as their definitions say that are published."""


def life_with(scheduler: GangScheduler | None) -> Life:
    return Life(Settings(trainer_image="trainer", gang_scheduler=scheduler))


@pytest.fixture
def gangs(request: pytest.FixtureRequest) -> Iterator[Life]:
    found = life_with(request.param)
    yield found
    found.close()


def with_scheduler(scheduler: GangScheduler | None) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("gangs", [scheduler], indirect=True)


def make(life: Life, gang: Json | None = None) -> None:
    life.create_job(
        workers={"minReplicas": 2, "spareReplicas": 1},
        roles=SERVERS,
        strategy="ParameterServer",
        gang={} if gang is None else gang,
    )
    life.settle()


@with_scheduler(GangScheduler.SCHEDULER_PLUGINS)
def test_scheduler_plugins(gangs: Life) -> None:
    make(gangs, {"timeoutSeconds": 60})
    group = gangs.server.objects[PLUGINS]["job"]
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group["spec"] == {"minMember": 4, "scheduleTimeoutSeconds": 60}
    assert group["metadata"]["ownerReferences"][0]["uid"] == gangs.job["metadata"]["uid"]
    label = "scheduling.x-k8s.io/pod-group"
    members = [pod for pod in gangs.pods() if pod["metadata"]["labels"].get(label) == "job"]
    assert [pod["metadata"]["name"] for pod in members] == [
        "job-ps-0-0",
        "job-ps-1-0",
        "job-worker-0-0",
        "job-worker-1-0",
    ]
    assert {pod["spec"]["schedulerName"] for pod in members} == {"scheduler-plugins-scheduler"}
    [trainer] = gangs.pods("trainer")
    assert "schedulerName" not in trainer["spec"]
    assert gangs.condition("Accepted") == ("True", "Accepted")


@with_scheduler(GangScheduler.VOLCANO)
def test_volcano(gangs: Life) -> None:
    make(gangs, {"queue": "research"})
    assert gangs.server.objects[VOLCANO]["job"]["spec"] == {"minMember": 4, "queue": "research"}
    [first, *_] = gangs.pods("worker")
    assert first["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"
    assert first["spec"]["schedulerName"] == "volcano"


@with_scheduler(GangScheduler.KUEUE)
def test_kueue_is_told_of_the_first_pods_alone(gangs: Life) -> None:
    make(gangs, {"queue": "research"})
    gangs.create_scale("more", {"worker": {"replicas": 3}})
    gangs.settle()
    assert not any(gangs.server.objects[kind] for kind in (PLUGINS, VOLCANO))
    tags = {pod["metadata"]["name"]: pod["metadata"] for pod in gangs.pods("worker")}
    first = tags["job-worker-0-0"]
    assert first["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert first["labels"]["kueue.x-k8s.io/pod-group-name"] == "job"
    assert first["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "4"
    grouped = [
        name for name, one in tags.items() if "kueue.x-k8s.io/pod-group-name" in one["labels"]
    ]
    assert sorted(grouped) == ["job-worker-0-0", "job-worker-1-0"]


@with_scheduler(GangScheduler.SCHEDULER_PLUGINS)
def test_a_cluster_without_groups_starts_the_pods_and_says_what_to_install(gangs: Life) -> None:
    gangs.server.unknown_kinds = {PLUGINS}
    make(gangs)
    assert gangs.condition("Accepted") == ("True", "GangUnavailable")
    assert "install scheduler-plugins" in gangs.message("Accepted")
    assert len(gangs.pods("worker")) == 3
    assert not any("schedulerName" in pod["spec"] for pod in gangs.pods())
    gangs.edit_spec(lambda spec: spec.update(ttlSecondsAfterFinished=5))  # forgets refusals
    gangs.server.remove("pods", "job-worker-1-0")
    gangs.settle()
    assert len(gangs.pods("worker")) == 3
    assert not any("schedulerName" in pod["spec"] for pod in gangs.pods())


@with_scheduler(GangScheduler.SCHEDULER_PLUGINS)
def test_groups_that_come_later_are_used_from_then_on(gangs: Life) -> None:
    gangs.server.unknown_kinds = {PLUGINS}
    make(gangs)
    gangs.server.unknown_kinds = set()
    gangs.server.advance(3600)
    gangs.server.remove("pods", "job-worker-1-0")
    gangs.settle()
    assert gangs.condition("Accepted") == ("True", "Accepted")
    [replaced] = [pod for pod in gangs.pods("worker") if "schedulerName" in pod["spec"]]
    assert replaced["metadata"]["labels"]["penstock.dev/rank"] == "1"


@with_scheduler(None)
def test_a_controller_without_a_gang_scheduler_says_so(gangs: Life) -> None:
    make(gangs)
    assert gangs.condition("Accepted") == ("True", "GangUnavailable")
    assert "--gang-scheduler" in gangs.message("Accepted")
    assert len(gangs.pods("worker")) == 3


@with_scheduler(GangScheduler.VOLCANO)
def test_a_job_that_asks_for_none_has_none(gangs: Life) -> None:
    gangs.create_job(workers={"replicas": 1})
    gangs.settle()
    assert not gangs.server.objects[VOLCANO]
    assert "schedulerName" not in gangs.pods("worker")[0]["spec"]


@with_scheduler(GangScheduler.SCHEDULER_PLUGINS)
def test_a_scheduler_of_the_templates_own_is_kept(gangs: Life) -> None:
    own = template()
    own["spec"]["schedulerName"] = "mine"
    gangs.create_job(workers={"replicas": 1, "template": own}, gang={})
    gangs.settle()
    assert gangs.pods("worker")[0]["spec"]["schedulerName"] == "mine"


@with_scheduler(GangScheduler.SCHEDULER_PLUGINS)
def test_a_controller_that_begins_anew_keeps_the_gang(gangs: Life) -> None:
    make(gangs)
    gangs.restart()
    gangs.server.remove("pods", "job-worker-0-0")
    gangs.settle()
    [found] = [
        p for p in gangs.pods("worker") if p["metadata"]["labels"]["penstock.dev/rank"] == "0"
    ]
    assert found["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


@pytest.mark.parametrize("gangs", [None, GangScheduler.VOLCANO], indirect=True)
def test_pods_of_a_gang_prefer_to_be_together(gangs: Life) -> None:
    own = template()
    theirs = {"weight": 1, "podAffinityTerm": {"topologyKey": "rack"}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    own["spec"]["affinity"] = {"podAffinity": {preferred: [theirs]}}
    gangs.create_job(
        workers={"replicas": 1, "template": own}, gang={"topologyKey": "topology.example.com/block"}
    )
    gangs.settle()
    [pod] = gangs.pods("worker")
    assert pod["spec"]["affinity"]["podAffinity"][preferred] == [
        theirs,
        {
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {
                    "matchLabels": {"penstock.dev/job-uid": gangs.job["metadata"]["uid"]}
                },
                "topologyKey": "topology.example.com/block",
            },
        },
    ]
    assert "affinity" not in gangs.pods("trainer")[0]["spec"]


@pytest.mark.parametrize("gang", [{}, {"queue": "q" * 63}, {"timeoutSeconds": 86_400}])
@pytest.mark.parametrize("roles", [{}, SERVERS])
@pytest.mark.parametrize(
    ("gangs", "resource"),
    [(GangScheduler.SCHEDULER_PLUGINS, PLUGINS), (GangScheduler.VOLCANO, VOLCANO)],
    indirect=["gangs"],
)
def test_a_group_is_one_by_the_published_definition(
    gangs: Life, resource: str, gang: Json, roles: Json
) -> None:
    strategy = "ParameterServer" if roles else "AllReduce"
    gangs.create_job(workers={}, roles=roles, strategy=strategy, gang=gang)
    gangs.settle()
    group = gangs.server.objects[resource]["job"]
    assert group["apiVersion"].partition("/")[0] == resource.partition(".")[2]
    assert "status" not in group
    for field, value in group["spec"].items():
        form = PUBLISHED[resource][field]
        assert value in form if isinstance(form, range) else isinstance(value, form), field
