"""Any interleaving of edits, Scales, failures, lost events and restarts ends as the target says.

A hypothesis state machine lives many lives of a job on a server in memory. CI lives
`RUNS` of them; PENSTOCK_CONTROLLER_LIVES sets another number.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.controller.reconcile.model import timing
from tests.controller import convergence
from tests.controller.life import Life, template, with_accelerators
from tests.controller.test_problems import problem, say

RUNS = int(os.environ.get("PENSTOCK_CONTROLLER_LIVES", "100"))
STEPS = 40

Json = dict[str, Any]

CPU = st.sampled_from(["500m", "1", "2"])
MEMORY = st.sampled_from(["1Gi", "2Gi", "3Gi"])
OTHERS = ["ps", "dataWorker", "acceleratedDataWorker", "evaluator"]
FAULTS = st.sampled_from(["refuse", "lose", "blind", "crash-before", "crash-after"])


@st.composite
def rank_targets(draw: st.DrawFn) -> Json:
    target: Json = {}
    if draw(st.booleans()):
        target["memory"] = draw(MEMORY)
    if draw(st.booleans()):
        target["cpu"] = draw(CPU)
    if draw(st.booleans()):
        target["minIncarnation"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        target["avoidNodes"] = ["node-1"]
    return target or {"memory": "2Gi"}


@st.composite
def role_targets(draw: st.DrawFn, role: str) -> Json:
    target: Json = {}
    if draw(st.booleans()):
        target["replicas"] = draw(st.integers(0, 5))
    if draw(st.booleans()):
        target["resources"] = {"cpu": draw(CPU), "memory": draw(MEMORY)}
    if role == "worker" and draw(st.booleans()):
        target["spareReplicas"] = draw(st.integers(0, 2))
    if draw(st.integers(0, 3)) == 0:
        target["ranks"] = {str(draw(st.integers(0, 3))): draw(rank_targets())}
    return target or {"replicas": draw(st.integers(1, 4))}


class JobLife(RuleBasedStateMachine):
    """One job, its controller, and everything that may happen to them."""

    @initialize(
        strategy=st.sampled_from(["AllReduce", "AllReduce", "Local", "ParameterServer"]),
        optimize=st.sampled_from(["Auto", "Manual"]),
        least=st.integers(1, 2),
        evaluator=st.booleans(),
        data_workers=st.booleans(),
        offload=st.sampled_from(["Auto", "Auto", "Never"]),
        restarts=st.integers(0, 3),
    )
    def begin(
        self,
        strategy: str,
        optimize: str,
        least: int,
        evaluator: bool,
        data_workers: bool,
        offload: str,
        restarts: int,
    ) -> None:
        self.life = Life()
        self.number = 0
        self.faults: dict[int, str] = {}
        self.shown: list[Any] = []
        roles: Json = {}
        if strategy == "ParameterServer":
            roles["ps"] = {"template": template()}
        if evaluator:
            roles["evaluator"] = {"template": template()}
        if data_workers:
            roles["dataWorker"] = {"template": template()}
            roles["acceleratedDataWorker"] = {"template": with_accelerators(1)}
        workers: Json = {"minReplicas": 1 if strategy == "Local" else least}
        if strategy == "Local":
            workers["maxReplicas"] = 1
        self.life.create_job(
            workers=workers,
            roles=roles,
            strategy=strategy,
            optimize=optimize,
            failurePolicy={"maxRestarts": restarts, "maxPreemptions": 4},
            input={"offload": offload},
        )
        self.strategy = strategy
        self.life.deliver()

    # The controller

    @rule(passes=st.integers(1, 3), delivered=st.integers(0, 8))
    def work(self, passes: int, delivered: int) -> None:
        """Some late events, some passes, perhaps a fault on the way."""
        for _ in range(passes):
            self.deliver(delivered)
            count = len(self.life.server.calls)

            def fault(_: int, base: int = count) -> str | None:
                offset = len(self.life.server.calls) - base - 1
                return self.faults.pop(offset, None)

            self.life.fault = fault
            self.life.one_pass()
            self.life.fault = lambda _: None

    def deliver(self, count: int | None) -> None:
        self.shown = [*self.shown, *self.life.server.pending[:count]][-10:]
        self.life.deliver(count)

    @rule(offset=st.integers(0, 12), kind=FAULTS)
    def arm(self, offset: int, kind: str) -> None:
        """One of the next calls goes wrong."""
        self.faults = {offset: kind}

    @rule()
    def restart(self) -> None:
        self.life.restart()

    @rule()
    def lose_events(self) -> None:
        """Events that never come; a complete list is read some time after."""
        self.life.server.pending.clear()

    @rule()
    def repeat_events(self) -> None:
        for event in self.shown:
            self.life.show(event.resource, event.kind, event.object)

    @rule()
    def relist(self) -> None:
        self.life.relist()

    # People, the Brain and the trainer

    @rule(
        data=st.data(),
        role=st.sampled_from(["worker", "worker", *OTHERS]),
        policy=st.sampled_from(["Apply", "Apply", "Apply", "Pin"]),
        source=st.sampled_from(["Brain", "User", "Scheduler"]),
        dry_run=st.integers(0, 5),
        earlier=st.booleans(),
        stale=st.integers(0, 7),
    )
    def scale(
        self,
        data: st.DataObject,
        role: str,
        policy: str,
        source: str,
        dry_run: int,
        earlier: bool,
        stale: int,
    ) -> None:
        self.number += 1
        roles = {role: data.draw(role_targets(role))}
        extra: Json = {"jobGeneration": max(1, stale)} if stale < 2 else {}
        name = f"{'a' if earlier else 'b'}-{self.number:03d}"
        self.life.create_scale(
            name, roles, policy=policy, source=source, dryRun=dry_run == 0, **extra
        )

    @rule(index=st.integers(0, 20))
    def delete_scale(self, index: int) -> None:
        names = sorted(self.life.server.objects["scales"])
        if names:
            self.life.server.remove("scales", names[index % len(names)])

    @rule(replicas=st.integers(0, 5))
    def edit_replicas(self, replicas: int) -> None:
        def change(spec: Json) -> None:
            worker = spec["replicaSpecs"]["worker"]
            fits = worker["minReplicas"] <= replicas <= worker.get("maxReplicas", 4096)
            if replicas == 0 or fits:
                worker["replicas"] = replicas

        self.life.edit_spec(change)

    @rule(role=st.sampled_from(OTHERS), replicas=st.integers(0, 4))
    def edit_other(self, role: str, replicas: int) -> None:
        def change(spec: Json) -> None:
            if role in spec["replicaSpecs"]:
                spec["replicaSpecs"][role]["replicas"] = replicas

        self.life.edit_spec(change)

    @rule(least=st.integers(1, 3), greatest=st.integers(3, 5))
    def edit_bounds(self, least: int, greatest: int) -> None:
        def change(spec: Json) -> None:
            worker = spec["replicaSpecs"]["worker"]
            if self.strategy != "Local" and worker["replicas"] in {0, 3}:
                worker.update(minReplicas=least, maxReplicas=greatest)

        self.life.edit_spec(change)

    @rule(cpu=st.sampled_from([None, 2, 4, 8, 100]))
    def edit_limits(self, cpu: int | None) -> None:
        def change(spec: Json) -> None:
            spec.pop("resourceLimits", None)
            if cpu is not None:
                spec["resourceLimits"] = {"cpu": str(cpu), "memory": "64Gi"}

        self.life.edit_spec(change)

    @rule()
    def toggle_suspend(self) -> None:
        self.life.edit_spec(lambda spec: spec.update(suspend=not spec.get("suspend")))

    @rule()
    def toggle_planner(self) -> None:
        self.life.planner_alive = not self.life.planner_alive

    @rule(consents=st.booleans())
    def answer(self, consents: bool) -> None:
        """The trainer answers whatever it is asked."""
        answer_trainer(self.life, consents)

    @rule(
        reasons=st.lists(
            st.sampled_from(["CheckpointsNotWritten", "JournalNotWritten", "StepLogNotWritten"]),
            unique=True,
        ),
        fatal=st.integers(0, 15),
    )
    def complain(self, reasons: list[str], fatal: int) -> None:
        """The trainer says what goes wrong, now and then something that ends the job."""
        said = [problem(reason) for reason in reasons]
        if fatal == 0:
            said.append(problem("SeparateCopies", fatal=True))
        if self.life.status:
            say(self.life, *said)

    # Nodes and containers

    @rule()
    def start_pods(self) -> None:
        self.life.run_pods()

    @rule()
    def finish_deletions(self) -> None:
        self.life.finish_deletions()

    @rule(
        index=st.integers(0, 20),
        fate=st.sampled_from(
            [
                "error",
                "oom",
                "killed",
                "evicted",
                "deleted",
                "gone",
                "image",
                "unschedulable",
                "config",
                "unknown",
                "done",
                "mute-oom",
            ]
        ),
        count=st.integers(1, 3),
    )
    def misfortune(self, index: int, fate: str, count: int) -> None:
        names = self.life.names()
        for step in range(min(count, len(names))):
            visit(self.life, names[(index + step) % len(names)], fate)

    @rule(kind=st.sampled_from(["secrets", "services", "serviceaccounts", "roles", "rolebindings"]))
    def lose_object(self, kind: str) -> None:
        """Somebody deletes one of the job's own objects, and the controller gets to know."""
        for name in [one for one in self.life.server.objects[kind] if one.startswith("job")]:
            self.life.server.remove(kind, name)
        self.life.find_missing_objects()

    @rule(seconds=st.sampled_from([1, 20, 61, 301, 601]))
    def wait(self, seconds: int) -> None:
        self.life.server.advance(seconds)

    @invariant()
    @precondition(lambda self: hasattr(self, "life"))
    def no_incarnation_twice(self) -> None:
        convergence.check_always(self.life)

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            self.life.fault = lambda _: None
            quiesce(self.life)
            convergence.check_settled(self.life)
            if not convergence.finished(self.life):
                self.compare_with_scratch()
        finally:
            self.life.close()

    def compare_with_scratch(self) -> None:
        """A job that never knew anything but the final spec and Scales has the same pods."""
        other = convergence.same_from_scratch(self.life)
        try:
            quiesce(other)
            accepted = {life.condition("Accepted")[0] for life in (self.life, other)}
            if accepted == {"True"} and not has_done(self.life):
                assert convergence.shape(self.life) == convergence.shape(other)
        finally:
            other.close()


def visit(life: Life, name: str, fate: str) -> None:
    """Something happens to one pod."""
    match fate:
        case "error":
            life.end_pod(name, 1, message="boom 17")
        case "oom":
            life.end_pod(name, 137, "OOMKilled")
        case "mute-oom":
            life.end_pod(name, 137, "OOMKilled", pod_reason="OOMKilled")
        case "killed":
            life.end_pod(name, 143)
        case "evicted":
            life.end_pod(name, 137, pod_reason="Evicted")
        case "done":
            life.end_pod(name, 0)
        case "deleted":
            life.run_pod(name)
            pod = life.server.objects["pods"][name]
            life.server.delete("pods", name, pod["metadata"]["uid"])
        case "gone":
            life.server.remove("pods", name)
        case "image":
            life.set_waiting(name, "ErrImagePull")
        case "config":
            life.set_waiting(name, "CreateContainerConfigError")
        case "unschedulable":
            life.set_unschedulable(name)
        case "unknown":
            life.run_pod(name)
            life.server.edit("pods", name, lambda pod: pod["status"].update(phase="Unknown"))


def answer_trainer(life: Life, consents: bool) -> None:
    for name, found in life.server.objects["scales"].items():
        for condition in (found.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Prepared" and condition["status"] == "Unknown":
                status = "True" if consents else "False"
                stamp = life.server.stamp()

                def change(scale: Json, status: str = status, stamp: str = stamp) -> None:
                    for one in scale["status"]["conditions"]:
                        if one["type"] == "Prepared":
                            one.update(status=status, reason="Trainer", lastTransitionTime=stamp)

                life.server.edit("scales", name, change)


def has_done(life: Life) -> bool:
    """Whether a pod has succeeded: a life from scratch has no such past."""
    return any(pod["status"]["phase"] == "Succeeded" for pod in life.pods(live=False))


def quiesce(life: Life) -> None:
    """Everything is delivered, everything that was asked is answered, and time goes by.

    A round is longer than the controller's longest pause: one in which nothing happens is the end.
    """
    longest = timing.PREPARATION.total_seconds() + 60
    life.relist()
    for _ in range(12):
        life.settle(limit=120)
        before = life.server.version
        answer_trainer(life, consents=True)
        recover(life)
        life.server.advance(longest)
        life.settle(limit=120)
        answer_trainer(life, consents=True)
        if life.server.version == before:
            return
    raise AssertionError(f"still changing: {life.server.calls[-20:]}")


def recover(life: Life) -> None:
    """Nodes come back, images can be pulled, and the planner finds room for every pod."""
    for pod in life.pods():
        status = pod["status"]
        if life.planner_alive and pod["spec"].get("schedulingGates"):
            life.server.edit(
                "pods", pod["metadata"]["name"], lambda found: found["spec"].pop("schedulingGates")
            )
        if status["phase"] in {"Pending", "Unknown"}:
            name = pod["metadata"]["name"]
            life.server.edit("pods", name, lambda found: found["status"].update(phase="Pending"))
            life.run_pod(name)


@pytest.mark.slow
@pytest.mark.timeout(0 if RUNS > 1000 else 60)
def test_any_life_ends_as_the_target_says() -> None:
    run_state_machine_as_test(
        JobLife,
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            phases=set(Phase) - ({Phase.shrink} if RUNS > 200 else set()),
        ),
    )
