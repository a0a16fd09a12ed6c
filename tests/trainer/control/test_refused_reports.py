"""What is refused for not fitting the job, or for being false, leaves the state as it was."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.ledger import (
    Ledger,
    LedgerError,
    LedgerOptions,
    StaleLeaseError,
)
from penstock.job.protocol import (
    DataSpec,
    LeaseRequest,
    MemberId,
    Phase,
    SessionReport,
)
from penstock.parameter_server.protocol import WorkerReport
from penstock.trainer.control.coordinator import Coordinator, JobFacts, RefusedError
from tests.parameter_server.control import recorded_lives as of_servers
from tests.parameter_server.control.test_moves import running
from tests.trainer.control.recorded_lives import Trainer, recorded
from tests.trainer.control.test_questions import written_out

DATA = DataSpec(dataset_size=64, global_batch=8, epochs=1, slots_per_step=1)
OTHER = DataSpec(dataset_size=7, global_batch=1, epochs=1, slots_per_step=1)
STRANGER = MemberId(rank=77, incarnation=0, nonce="stranger")


def session(data: DataSpec, committed: int | None = None) -> SessionReport:
    return SessionReport(
        member=STRANGER, phase=Phase.READY, address="h:1", data=data, committed=committed
    )


def send(trainer: Coordinator, report: SessionReport | WorkerReport | LeaseRequest) -> None:
    match report:
        case SessionReport():
            trainer.handle_session_report(report, 1e6)
        case WorkerReport():
            trainer.handle_worker_report(report, 1e6)
        case LeaseRequest():
            trainer.grant_lease(report, 1e6)


def refuse(trainer: Coordinator, report: SessionReport | WorkerReport | LeaseRequest) -> None:
    """Have it refused, and compare the whole state with that before."""
    before = written_out(trainer.state)
    with pytest.raises((RefusedError, LedgerError)):
        send(trainer, report)
    assert written_out(trainer.state) == before


def worker_report() -> WorkerReport:
    """One of a job of its own."""
    known = running().trainer.servers.find_worker(0)
    assert known is not None
    return known.report


def of_data(report: WorkerReport, data: DataSpec) -> WorkerReport:
    return report.model_copy(update={"lease": report.lease.model_copy(update={"data": data})})


def test_a_first_report_with_more_steps_than_its_data_opens_none() -> None:
    trainer = Coordinator(JobFacts(), "t")
    refuse(trainer, session(DATA, committed=1 << 30))
    assert trainer.state.data is None


def test_a_holder_of_other_data_leases_nothing() -> None:
    trainer = Coordinator(JobFacts(), "t")
    trainer.handle_session_report(session(DATA), 0.0)
    trainer.state.rendezvous.mark_ended(STRANGER.rank, STRANGER.incarnation)
    refuse(trainer, LeaseRequest(holder="a", data=OTHER, max_slots=1))
    assert not trainer.state.holders.active


def test_a_worker_of_other_data_makes_no_job_one_with_parameter_servers() -> None:
    trainer = Coordinator(JobFacts(), "t")
    trainer.grant_lease(LeaseRequest(holder="a", data=DATA, max_slots=1), 0.0)
    refuse(trainer, of_data(worker_report(), OTHER))
    assert not trainer.servers.active


def test_of_acknowledgements_one_of_which_is_false_none_is_taken_in() -> None:
    trainer = Coordinator(JobFacts(), "t")
    ask = LeaseRequest(holder="a", data=DATA, max_slots=4)
    leases = [trainer.grant_lease(ask, 0.0) for _ in range(2)]
    true, false = [(each.fence, each.start, each.stop) for each in leases]
    fence, start, stop = false
    wrong = ask.model_copy(update={"completed": (true, (fence, start, stop + 60))})
    refuse(trainer, wrong)
    refuse(trainer, ask.model_copy(update={"completed": (true,), "failed": ((fence, 63),)}))


def test_a_false_acknowledgement_of_a_worker_is_not_its_newest_report() -> None:
    world = running(slots=80)
    for _ in range(100):
        ledger = world.trainer.state.ledger
        if ledger is not None and ledger.leases():
            break
        world.round()
    assert ledger is not None
    lease = ledger.leases()[0]
    known = world.trainer.servers.find_worker(int(lease.holder[len("worker-")]))
    assert known is not None
    completed = ((lease.fence, lease.start, 1 << 20),)
    said = known.report.lease.model_copy(update={"completed": completed})
    refuse(world.trainer, known.report.model_copy(update={"lease": said}))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_at_no_time_of_a_life_does_a_refused_report_change_anything(seed: int) -> None:
    trainer, stranger = Trainer(), of_data(worker_report(), OTHER)
    for number, (call, now, said, _) in enumerate(recorded()[seed]):
        trainer.play(call, now, said)
        if number % 9:
            continue
        of_job = trainer.coordinator.state.data
        if of_job is None:
            refuse(trainer.coordinator, session(DATA, committed=1 << 30))
            continue
        refuse(trainer.coordinator, session(OTHER))
        refuse(trainer.coordinator, session(of_job, committed=1 << 30))
        refuse(trainer.coordinator, LeaseRequest(holder="a", data=OTHER, max_slots=1))
        refuse(trainer.coordinator, stranger)


@pytest.mark.parametrize("seed", [0, 1])
def test_nor_in_a_job_with_parameter_servers(seed: int) -> None:
    trainer, worker = of_servers.Trainer(), of_data(worker_report(), OTHER)
    for number, (call, now, said, _) in enumerate(of_servers.recorded()[seed]):
        trainer.play(call, now, said)
        if number % 29 or trainer.coordinator.state.data is None:
            continue
        refuse(trainer.coordinator, session(OTHER))
        refuse(trainer.coordinator, LeaseRequest(holder="a", data=OTHER, max_slots=1))
        refuse(trainer.coordinator, worker)


_fences = st.integers(0, 4)
_slots = st.integers(0, 12)


@given(
    st.lists(st.tuples(_fences, _slots, _slots), max_size=4),
    st.lists(st.tuples(_fences, _slots), max_size=3),
)
def test_the_check_says_what_the_ledger_says(
    completed: list[tuple[int, int, int]], failed: list[tuple[int, int]]
) -> None:
    ledger = Ledger(LedgerOptions(total_slots=16))
    for _ in range(3):
        ledger.lease("a", 0.0, 4)
    try:
        ledger.state.check_acknowledgements(completed, failed)
        false = False
    except LedgerError:
        false = True
    assert _is_false(ledger, completed, failed) == false


def _is_false(
    ledger: Ledger, completed: list[tuple[int, int, int]], failed: list[tuple[int, int]]
) -> bool:
    """Whether the ledger refuses one of them, and not because its lease has ended."""
    calls = [partial(ledger.complete, *said) for said in completed]
    calls += [partial(ledger.fail, *said) for said in failed]
    for call in calls:
        try:
            call()
        except StaleLeaseError:
            continue
        except LedgerError:
            return True
    return False
