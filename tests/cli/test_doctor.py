"""A healthy cluster is all green; each planted fault is found by name, with its cure."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml

from penstock.base.shards import lease_name
from penstock.cli.doctor.examination import CHECKS
from penstock.cli.doctor.model.finding import Finding, Verdict
from penstock.cli.exits import Exit
from penstock.crds import labels
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.schema import crd
from tests.cli.clinic import RBAC, SYSTEM, Clinic, clinic
from tests.cli.terminal import Terminal
from tests.client.embedded import condition, job

Json = dict[str, Any]
Plant = Callable[[Clinic], "contextlib.AbstractContextManager[None]"]
JOBS = "elasticjobs.penstock.dev"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    folder = tmp_path_factory.mktemp("brain")
    with clinic(f"sqlite+aiosqlite:///{folder / 'brain.sqlite'}") as found:
        yield found


@contextlib.contextmanager
def old_definition(at: Clinic) -> Iterator[None]:
    """The CRD of a release that did not know ``spec.input``."""
    whole = crd(ELASTICJOB)
    old = copy.deepcopy(whole)
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["input"]
    rules = spec.get("x-kubernetes-validations", [])
    spec["x-kubernetes-validations"] = [each for each in rules if "input" not in each["rule"]]
    at.cluster.apply(old)
    yield
    at.cluster.apply(whole)


@contextlib.contextmanager
def missing_policy(at: Clinic) -> Iterator[None]:
    name, resource = "penstock-trainer-scales", "validatingadmissionpolicies"
    qualified = f"{resource}.admissionregistration.k8s.io"
    stored = at.cluster.get(qualified, name)
    at.cluster.delete(qualified, name)
    yield
    restore(at, qualified, stored)


@contextlib.contextmanager
def missing_priority(at: Clinic) -> Iterator[None]:
    stored = at.cluster.get("priorityclasses.scheduling.k8s.io", "penstock-spare")
    at.cluster.delete("priorityclasses.scheduling.k8s.io", "penstock-spare")
    yield
    restore(at, "priorityclasses.scheduling.k8s.io", stored)


def restore(at: Clinic, resource: str, stored: Json) -> None:
    for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        stored["metadata"].pop(name, None)
    stored.pop("status", None)
    at.cluster.create(resource, stored)


@contextlib.contextmanager
def role_cut_short(at: Clinic) -> Iterator[None]:
    """Somebody has taken the controller's right to create pods."""
    resource, name = f"clusterroles.{RBAC}", "penstock-controller"
    rules = at.cluster.get(resource, name)["rules"]
    fewer = copy.deepcopy(rules)
    for rule in fewer:
        if rule["resources"] == ["pods"]:
            rule["verbs"].remove("create")
    at.cluster.patch(resource, name, {"rules": fewer})
    yield
    at.cluster.patch(resource, name, {"rules": rules})


@contextlib.contextmanager
def old_component(at: Clinic) -> Iterator[None]:
    tag = "app.kubernetes.io/version"
    before = at.cluster.get("deployments.apps", "penstock-scheduler", SYSTEM)
    is_now = before["metadata"]["labels"][tag]
    for value in ("0.0.1", is_now):
        at.cluster.patch(
            "deployments.apps", "penstock-scheduler", {"metadata": {"labels": {tag: value}}}, SYSTEM
        )
        if value != is_now:
            yield


@contextlib.contextmanager
def crashing_component(at: Clinic) -> Iterator[None]:
    at.ready("brain", 0)
    yield
    at.ready("brain", 1)


@contextlib.contextmanager
def dead_controller(at: Clinic) -> Iterator[None]:
    at.renew("controller", ago=timedelta(minutes=5))
    yield
    at.renew("controller")


@contextlib.contextmanager
def second_controller(at: Clinic) -> Iterator[None]:
    """Somebody runs one more control plane, which contends for a Lease of its own."""
    kind, name = "leases.coordination.k8s.io", "penstock-controller"
    spec = {**at.cluster.get(kind, name, SYSTEM)["spec"], "holderIdentity": "another"}
    at.cluster.create(kind, {"metadata": {"name": name}, "spec": spec}, "default")
    yield
    at.cluster.delete(kind, name, "default")


@contextlib.contextmanager
def held_shards(at: Clinic, **holders: str) -> Iterator[None]:
    """Leases of shards are held so, each named by its namespace's first letter and its number."""
    kind, first = "leases.coordination.k8s.io", "penstock-controller"
    places = {"s": SYSTEM, "d": "default"}
    spec = at.cluster.get(kind, first, SYSTEM)["spec"]
    made = []
    for where, holder in holders.items():
        name, namespace = lease_name(int(where[1:])), places[where[0]]
        own = {**spec, "holderIdentity": holder}
        if at.cluster.find(kind, name, namespace) is None:
            at.cluster.create(kind, {"metadata": {"name": name}, "spec": own}, namespace)
            made.append((name, namespace))
        else:
            at.cluster.patch(kind, name, {"spec": own}, namespace)
    yield
    for name, namespace in made:
        at.cluster.delete(kind, name, namespace)
    at.renew("controller")


def shard_without_holder(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return held_shards(at, s0="a shard 0 of 3", s1="b shard 1 of 3")


def two_holders_of_one_shard(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return held_shards(at, s0="a shard 0 of 2", s1="b shard 1 of 2", d1="c shard 1 of 2")


def two_numbers_of_shards(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return held_shards(at, s0="a", s1="b shard 1 of 2")


@contextlib.contextmanager
def no_scheduler(at: Clinic) -> Iterator[None]:
    at.cluster.delete("leases.coordination.k8s.io", "penstock-scheduler", SYSTEM)
    yield
    at.renew("scheduler")


@contextlib.contextmanager
def wrong_clock(at: Clinic) -> Iterator[None]:
    at.clock.skew = timedelta(seconds=-90)
    yield
    at.clock.skew = timedelta()


@contextlib.contextmanager
def no_node(at: Clinic) -> Iterator[None]:
    at.node("node-1", "Unknown")
    yield
    at.node("node-1")


@contextlib.contextmanager
def no_volume(at: Clinic) -> Iterator[None]:
    at.phase("Pending")
    yield
    at.phase("Bound")


@contextlib.contextmanager
def orphaned_gate(at: Clinic) -> Iterator[None]:
    """A gated pod of ten minutes ago, which no scheduler will ever look at."""
    pod = {
        "metadata": {"name": "orphan"},
        "spec": {
            "schedulingGates": [{"name": labels.PLACEMENT_GATE}],
            "containers": [{"name": "main", "image": "i"}],
        },
    }
    with created_in_the_past(at):
        at.cluster.create("pods", pod, "default")
    yield
    at.cluster.delete("pods", "orphan", "default", gracePeriodSeconds="0")


@contextlib.contextmanager
def created_in_the_past(at: Clinic) -> Iterator[None]:
    at.clock.skew = timedelta(minutes=-10)
    yield
    at.clock.skew = timedelta()


@contextlib.contextmanager
def forgotten_job(at: Clinic) -> Iterator[None]:
    with created_in_the_past(at):
        at.cluster.create(JOBS, job("forgotten"), "default")
    yield
    at.cluster.delete(JOBS, "forgotten", "default")


@contextlib.contextmanager
def refused_job(at: Clinic) -> Iterator[None]:
    at.cluster.create(JOBS, job("refused"), "default")
    said = {**condition("Accepted", status="False"), "reason": "OverQuota"}
    at.cluster.patch(JOBS, "refused", {"status": {"conditions": [said]}}, "default", "status")
    yield
    at.cluster.delete(JOBS, "refused", "default")


@contextlib.contextmanager
def silent_job(at: Clinic) -> Iterator[None]:
    """A job that runs since long, of which the Brain has heard nothing."""
    at.cluster.create(JOBS, job("silent"), "default")
    since = [condition("Accepted"), condition("Running")]
    at.cluster.patch(JOBS, "silent", {"status": {"conditions": since}}, "default", "status")
    yield
    at.cluster.delete(JOBS, "silent", "default")


@contextlib.contextmanager
def patched(at: Clinic, resource: str, name: str, change: Json, back: Json) -> Iterator[None]:
    at.cluster.patch(resource, name, change, SYSTEM)
    yield
    at.cluster.patch(resource, name, back, SYSTEM)


@contextlib.contextmanager
def unbound_policy(at: Clinic) -> Iterator[None]:
    """The policy is there, and denies nothing."""
    name = "penstock-trainer-scales"
    resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
    stored = at.cluster.get(resource, name)
    at.cluster.delete(resource, name)
    yield
    restore(at, resource, stored)


@contextlib.contextmanager
def missing_trainer_role(at: Clinic) -> Iterator[None]:
    resource, name = f"clusterroles.{RBAC}", "penstock-trainer"
    stored = at.cluster.get(resource, name)
    at.cluster.delete(resource, name)
    yield
    restore(at, resource, stored)


@contextlib.contextmanager
def broken_pod(at: Clinic, component: str, status: Json) -> Iterator[None]:
    """A pod of a component as the kubelet would describe it."""
    name = f"penstock-{component}"
    template = at.cluster.get("deployments.apps", name, SYSTEM)["spec"]["template"]
    metadata = {**template["metadata"], "name": f"{name}-abcde"}
    at.cluster.create("pods", {"metadata": metadata, "spec": template["spec"]}, SYSTEM)
    container = {"name": component, "image": "i", "imageID": "", "ready": False, **status}
    at.cluster.patch(
        "pods", metadata["name"], {"status": {"containerStatuses": [container]}}, SYSTEM, "status"
    )
    yield
    at.cluster.delete("pods", metadata["name"], SYSTEM, gracePeriodSeconds="0")


def crash_loop(at: Clinic) -> contextlib.AbstractContextManager[None]:
    """Between two crashes it is ready for moments."""
    ended = {"exitCode": 1, "message": "penstock controller: no token"}
    status = {
        "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    return broken_pod(at, "controller", status)


def missing_image(at: Clinic) -> contextlib.AbstractContextManager[None]:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    return broken_pod(at, "scheduler", {"restartCount": 0, "state": {"waiting": waiting}})


@contextlib.contextmanager
def scaled_to_nothing(at: Clinic) -> Iterator[None]:
    scaled = patched(
        at,
        "deployments.apps",
        "penstock-controller",
        {"spec": {"replicas": 0}},
        {"spec": {"replicas": 1}},
    )
    with scaled:
        yield


@contextlib.contextmanager
def lease_given_back(at: Clinic) -> Iterator[None]:
    resource, name = "leases.coordination.k8s.io", "penstock-scheduler"
    at.cluster.patch(resource, name, {"spec": {"holderIdentity": ""}}, SYSTEM)
    yield
    at.renew("scheduler")


@contextlib.contextmanager
def lost_node(at: Clinic) -> Iterator[None]:
    at.cluster.create("nodes", {"metadata": {"name": "node-2"}})
    at.node("node-2", "Unknown")
    yield
    at.cluster.delete("nodes", "node-2")


@contextlib.contextmanager
def suffering_job(at: Clinic, kind: str, reason: str, message: str) -> Iterator[None]:
    at.cluster.create(JOBS, job("suffers"), "default")
    said = {**condition(kind, status="False"), "reason": reason, "message": message}
    status = {"status": {"conditions": [condition("Accepted"), said]}}
    at.cluster.patch(JOBS, "suffers", status, "default", "status")
    yield
    at.cluster.delete(JOBS, "suffers", "default")


def refused_trainer(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return suffering_job(at, "Scaling", "PodRefused", 'pods "suffers-trainer-0-0" is forbidden')


def no_place(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return suffering_job(at, "Scaling", "Unschedulable", "1 of 2 pods find a node")


def full_disk(at: Clinic) -> contextlib.AbstractContextManager[None]:
    return suffering_job(at, "StorageHealthy", "CheckpointsNotWritten", "No space left on device")


@contextlib.contextmanager
def blind_scheduler(at: Clinic) -> Iterator[None]:
    """Nobody bound the scheduler's role to its account."""
    resource = f"clusterrolebindings.{RBAC}"
    stored = at.cluster.get(resource, "penstock-scheduler")
    at.cluster.delete(resource, "penstock-scheduler")
    yield
    restore(at, resource, stored)


FAULTS: list[tuple[Plant, str, str, str]] = [
    (old_definition, "CRDs", "older than this client: it lacks spec.input", "penstock crds |"),
    (missing_policy, "policies", "penstock-trainer-scales is missing", "penstock crds |"),
    (missing_priority, "policies", "PriorityClass penstock-spare is missing", "--print-manifests"),
    (
        role_cut_short,
        "components' rights",
        "the controller may not: create pods",
        "penstock controller --print-manifests",
    ),
    (old_component, "versions", "scheduler 0.0.1", "helm upgrade"),
    (crashing_component, "components", "penstock-brain has 0 of 1 pods", "logs deployment/"),
    (dead_controller, "Leases", "penstock-controller is not renewed, since ", "start the contr"),
    (
        second_controller,
        "Leases",
        "penstock-controller is held in 2 namespaces, default by another, penstock-system by",
        "stop the others",
    ),
    (
        shard_without_holder,
        "Leases",
        "nobody has ever held penstock-controller-2: no job of shard 2 of 3 is started",
        "start the controller",
    ),
    (
        two_holders_of_one_shard,
        "Leases",
        "penstock-controller-1 is held in 2 namespaces, default by c shard 1 of 2, ",
        "stop the others",
    ),
    (
        two_numbers_of_shards,
        "Leases",
        "controllers divide the jobs into 1 and 2 shards",
        "restart the ones of the old number",
    ),
    (no_scheduler, "Leases", "nobody has ever held penstock-scheduler", "start the scheduler"),
    (wrong_clock, "clocks", "the API server's clock is 90 s behind", "NTP"),
    (no_node, "nodes", "none of 1 nodes is ready", "kubectl get nodes"),
    (no_volume, "storage", "penstock-system/penstock-brain is Pending", "describe pvc"),
    (orphaned_gate, "gates", "default/orphan", "start the scheduler"),
    (forgotten_job, "jobs", "not looked at by any controller: default/forgotten", "get pods"),
    (refused_job, "jobs", "default/refused (OverQuota)", "penstock describe -n default refused"),
    (unbound_policy, "policies", "penstock-trainer-scales denies nothing", "penstock crds |"),
    (missing_trainer_role, "policies", "ClusterRole penstock-trainer is missing", "--print-man"),
    (
        crash_loop,
        "components",
        "penstock-controller-abcde is in CrashLoopBackOff after 7 restarts: penstock controller: ",
        "--previous",
    ),
    (missing_image, "components", "is in ImagePullBackOff: no such image", "describe pods"),
    (scaled_to_nothing, "components", "penstock-controller is scaled to 0", "--replicas=1"),
    (lease_given_back, "Leases", "penstock-scheduler is not renewed, it was given", "start the sc"),
    (lost_node, "nodes", "not ready: node-2", "kubectl describe node node-2"),
    (
        refused_trainer,
        "jobs",
        'default/suffers: PodRefused: pods "suffers-trainer-0-0" is forbidden',
        "penstock describe -n default suffers",
    ),
    (no_place, "jobs", "default/suffers: Unschedulable", "penstock describe"),
    (full_disk, "jobs", "CheckpointsNotWritten: No space left", "penstock describe"),
    (blind_scheduler, "components' rights", "the scheduler may not: list nodes", "helm upgrade"),
    (silent_job, "samples", "from running: silent", "penstock logs silent --role trainer"),
]


def test_a_healthy_cluster_is_all_green(place: Clinic) -> None:
    place.renew()
    ran, findings = place.examine("--strict")
    assert ran.code == Exit.OK
    assert {each["verdict"] for each in findings} == {"ok"}, findings
    assert len({each["check"] for each in findings}) >= len(CHECKS)


@pytest.mark.parametrize(
    ("plant", "check", "said", "cure"), FAULTS, ids=lambda of: getattr(of, "__name__", "")
)
def test_a_planted_fault_is_named_with_its_cure(
    place: Clinic, plant: Plant, check: str, said: str, cure: str
) -> None:
    place.renew()
    with plant(place):
        ran, findings = place.examine("--strict")
    assert ran.code == Exit.FAILED
    bad = [each for each in findings if each["verdict"] in ("fault", "warning")]
    assert any(
        each["check"] == check and said in each["said"] and cure in each["cure"] for each in bad
    ), bad
    if plant is not wrong_clock:  # a wrong clock makes Leases look old as well
        assert {each["check"] for each in bad} == {check}, "it is found, and nothing else"


def test_shards_that_have_one_holder_each_are_no_fault(place: Clinic) -> None:
    place.renew()
    with held_shards(place, s0="a shard 0 of 2", s1="b shard 1 of 2"):
        ran, findings = place.examine("--strict")
    assert ran.code == Exit.OK, findings
    said = [each["said"] for each in findings if each["check"] == "Leases"]
    assert "penstock-controller-1 is held by b shard 1 of 2" in said


def test_a_brain_that_is_away_is_a_fault(place: Clinic) -> None:
    place.renew()
    ran, findings = place.examine(brain_url="http://127.0.0.1:9")
    assert ran.code == Exit.FAILED
    [found] = [each for each in findings if each["verdict"] == "fault"]
    assert found["check"] == "Brain"
    assert "http://127.0.0.1:9" in found["said"]
    assert "--brain" in found["cure"]


def test_a_cluster_without_penstock_says_what_to_install(tmp_path: Any) -> None:
    from penstock_cluster.testing import api_server

    with api_server() as cluster:
        ran = Terminal(cluster.kubeconfig_path, "http://127.0.0.1:9")("doctor", "-o", "json")
    bad = {each["said"] for each in ran.json if each["verdict"] == "fault"}
    assert ran.code == Exit.FAILED
    assert "elasticjobs.penstock.dev is not installed" in bad


def test_a_caller_with_few_rights_is_told_of_them_and_of_what_was_not_looked_at(
    place: Clinic, tmp_path: Any
) -> None:
    place.renew()
    document = yaml.safe_load(place.cluster.kubeconfig_path.read_text())
    token = place.cluster.account_token("default", "default")
    document["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    findings = Terminal(path, place.brain_url)("doctor", "-o", "json").json
    of = {each["check"]: each for each in findings}
    assert of["your rights"]["verdict"] == "warning"
    assert "may not, in default: get elasticjobs.penstock.dev" in of["your rights"]["said"]
    assert "--clusterrole=penstock-editor" in of["your rights"]["cure"]
    assert {of[check]["verdict"] for check in ("nodes", "CRDs", "Leases")} == {"skipped"}


def test_no_fault_without_a_cure() -> None:
    with pytest.raises(ValueError, match="without a cure"):
        Finding("x", Verdict.FAULT, "broken")
