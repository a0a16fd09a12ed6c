"""What the trainer refuses to workers of parameter servers, and what it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.base.enums import Guarantee
from penstock.crds.conditions import JobReason
from penstock.data.ledger import Ledger, LedgerOptions, SampleOrder
from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import LeaseRequest, MemberId, Phase, SessionReport
from penstock.parameter_server.control import state
from penstock.parameter_server.control.audits import audits_of
from penstock.parameter_server.control.records.transitions import Transitions
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import Applied, WorkerPhase, WorkerReport
from penstock.parameter_server.spec import DenseSpec
from penstock.trainer.control.coordinator import RefusedError
from tests.parameter_server.control.simulated_job import SPEC, SimWorker, World


def report(world: World, **changes: Any) -> WorkerReport:
    data = changes.pop("data", world.data)
    fields: dict[str, Any] = {
        "member": MemberId(rank=9, incarnation=0, nonce="x"),
        "spec": SPEC,
        "lease": LeaseRequest(holder="worker-9.0/x", data=data, max_slots=1),
        "dropped": {},
    }
    return WorkerReport(**{**fields, **changes})


def ready(**more: Any) -> World:
    world = World(slots=400, **more)
    world.add_server(0)
    world.add_worker(0)
    while not world.trainer.servers.serving:
        world.round()
    return world


def refusal(world: World, sent: WorkerReport) -> str:
    with pytest.raises(RefusedError) as caught:
        world.trainer.handle_worker_report(sent, world.now)
    return str(caught.value)


def test_another_model_is_refused_by_what_differs() -> None:
    world = ready()
    other = SPEC.model_copy(update={"dense": (DenseSpec(name="w", shape=(9,)),)})
    said = refusal(world, report(world, spec=other))
    assert "parameter w: shape [9] instead of shape [8]" in said


def test_other_data_are_refused_by_what_differs() -> None:
    world = ready()
    other = world.data.model_copy(update={"epochs": 3})
    assert "data.epochs: 3; the job began with 1" in refusal(world, report(world, data=other))


def test_a_trainer_that_has_forgotten_knows_the_data_from_the_servers() -> None:
    world = ready()
    world.restart_trainer(with_journal=False)
    first = report(world, data=world.data.model_copy(update={"epochs": 3}))
    for server in world.servers:
        world.trainer.handle_server_report(server.report(), world.now)
    assert "data.epochs: 3; the job began with 1" in refusal(world, first)
    world.run()
    world.check_end()


def test_a_batch_is_one_slot() -> None:
    world = World()
    other = world.data.model_copy(update={"slots_per_step": 2})
    assert "data.slots_per_step: 2" in refusal(world, report(world, data=other))


def test_a_model_that_does_not_fit_is_refused_with_both_sums() -> None:
    world = World()
    world.add_server(0).memory = 10
    world.add_server(1).memory = 11
    world.add_worker(0)
    for _ in range(10):
        world.round()
    assert "the model needs 32 bytes" in world.refusals[-1]
    assert "2 parameter servers have 21 bytes" in world.refusals[-1]
    world.add_server(2).memory = 11
    world.refusals.clear()
    world.run()
    world.check_end()


def test_a_share_that_a_server_has_no_room_for_is_refused_as_it_says() -> None:
    world = World()
    server = world.add_server(0)
    server.trouble = "its share takes 32 bytes, more than its memory of 31"
    world.add_worker(0)
    for _ in range(10):
        world.round()
    assert "ps-0.0: its share takes 32 bytes" in world.refusals[-1]
    server.trouble = ""
    world.run()
    world.check_end()


def test_no_guarantee_is_weaker_with_servers() -> None:
    world = World(slots=12)
    world.trainer.learn(replace(world.trainer.state.facts, guarantee=Guarantee.AT_MOST_ONCE))
    world.add_server(0)
    world.add_worker(0)
    world.run()
    world.check_end()
    unsharded = World()
    unsharded.trainer.learn(replace(unsharded.trainer.state.facts, guarantee=Guarantee.UNSHARDED))
    assert "input.guarantee: Unsharded" in refusal(unsharded, report(unsharded))


def test_a_process_that_was_replaced_is_refused() -> None:
    world = ready()
    old = world.workers[0]
    new = world.add_worker(0)
    new.exchange()
    old.exchange()
    assert "worker-0.0 was replaced" in world.refusals[-1]


def test_sessions_and_lone_holders_have_no_part_in_such_a_job() -> None:
    world = ready()
    lease = LeaseRequest(holder="worker-5.0/x", data=world.data, max_slots=1)
    with pytest.raises(RefusedError, match="workers of its parameter servers"):
        world.trainer.grant_lease(lease, world.now)
    session = SessionReport(
        member=MemberId(rank=5, incarnation=0, nonce="x"),
        phase=Phase.READY,
        address="h:1",
        data=world.data,
    )
    with pytest.raises(RefusedError, match="parameter servers' workers"):
        world.trainer.handle_session_report(session, world.now)


def test_a_worker_that_comes_when_servers_have_gone_is_told_so() -> None:
    world = ready()
    world.slots = 400
    world.run()
    world.tick(1.0)
    assert world.trainer.servers.state.phase is state.Phase.DONE
    late = world.trainer.handle_worker_report(report(world), world.now)
    assert late is not None
    assert late.over
    assert late.lease.finished
    world.trainer.handle_worker_report(report(world, phase=WorkerPhase.CLOSED), world.now)


def test_dropped_gradients_are_summed_over_workers_dead_or_alive() -> None:
    world = ready()
    for incarnation, nonce in enumerate("abc"):
        member = MemberId(rank=7, incarnation=incarnation, nonce=nonce)
        world.trainer.handle_worker_report(
            report(world, member=member, dropped={"w": 2}), world.now
        )
    summary = world.trainer.summary(world.now)
    assert summary.servers is not None
    assert summary.servers["dropped"] == {"w": 6}


def applied(*ranges: tuple[int, int], repeated: int = 0) -> Applied:
    slots = RangeSet(ranges)
    return Applied.of(slots, slots.total + repeated)


def test_an_epoch_is_audited_when_every_server_has_all_of_it() -> None:
    order = SampleOrder(dataset_size=10, global_batch=4, slots_per_step=1, epochs=3)
    ledger = Ledger(LedgerOptions(total_slots=order.total_slots))
    assert not audits_of(order, [applied((0, 3)), applied((0, 2))], ledger, {})
    found = audits_of(order, [applied((0, 3)), applied((0, 6), repeated=1)], ledger, {})
    assert [audit.samples_seen for audit in found.values()] == [10]
    assert found[0].samples_repeated == 3  # one update of a mean batch
    more = audits_of(order, [applied((0, 7), repeated=1)], ledger, found)
    assert {epoch: audit.samples_repeated for epoch, audit in more.items()} == {1: 0}


def test_quarantined_slots_are_lost_samples() -> None:
    order = SampleOrder(dataset_size=10, global_batch=4, slots_per_step=1, epochs=2)
    ledger = Ledger(LedgerOptions(total_slots=order.total_slots, skip_bad=True, max_failures=1))
    lease = ledger.lease("h", 0.0, 6)
    assert lease is not None
    ledger.fail(lease.fence, 2)
    found = audits_of(order, [applied((0, 2), (3, 6))], ledger, {})
    assert [(audit.samples_seen, audit.samples_lost) for audit in found.values()] == [
        (8, 2),
        (10, 0),
    ]


def test_a_transition_tells_its_parts() -> None:
    transitions = Transitions()
    transitions.begin("save", 10.0)
    transitions.begin("another", 10.1)  # workers are stopped already
    transitions.reached("halt", 10.25)
    transitions.name("servers 2 -> 4")
    transitions.end("serve", 10.5)
    [told] = transitions.after(0)
    assert str(told) == "servers 2 -> 4: workers stopped for 0.50 s (halt 0.250, serve 0.250)"
    assert not transitions.after(told.number)
    assert transitions.kept[0].plain()["parts"] == [["halt", 0.25], ["serve", 0.25]]


def test_a_chief_that_cannot_save_is_a_problem_of_the_job_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ready(save_every=6)
    problems = world.trainer.problems

    def full(worker: SimWorker, layout: Layout, number: int) -> None:
        worker.failed = "no checkpoint is written to /c: No space left on device"

    with monkeypatch.context() as patch:
        patch.setattr(SimWorker, "_save", full)
        for _ in range(2000):
            world.round()
            if problems.current():
                break
        [problem] = problems.current()
        assert problem.reason is JobReason.CHECKPOINTS_NOT_WRITTEN
        assert problem.source == "trainer"
        assert "could not save: no checkpoint is written to /c: No space" in problem.message
    for _ in range(2000):
        world.round()
        if not problems.current():
            break
    assert problems.current() == ()
