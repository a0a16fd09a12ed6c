"""Shards for processes that work on their own: without a trainer, and with one over HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from penstock.base.enums import Guarantee
from penstock.crds import environment
from penstock.data.ledger import Ledger, LedgerError, LedgerOptions
from penstock.job.protocol import (
    AgentReport,
    DataSpec,
    LeaseReply,
    LeaseRequest,
    ProcessState,
)
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.control.model import independent_leases
from penstock.trainer.server import Changes, Endpoints, make_server
from penstock.trainer.service import bind
from penstock.trainer.shards import ElasticSampler, FileShard, FileShards, ShardError

Start = Callable[[FileShards], Iterator[FileShard]]


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.TRAINER_ADDRESS, raising=False)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """A trainer that answers over HTTP on a thread of its own."""
    books = Coordinator(JobFacts(lease_seconds=20.0), identity="test")
    listening = bind("127.0.0.1", 0)
    server = make_server(Endpoints(books, Changes(books), "secret").app())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    monkeypatch.setenv(environment.TRAINER_ADDRESS, f"127.0.0.1:{listening.getsockname()[1]}")
    monkeypatch.setenv(environment.JOB_TOKEN, "secret")
    yield books
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def started(coordinator: Coordinator) -> Iterator[Callable[[FileShards], Iterator[FileShard]]]:
    """Begins loops that are not left (which would give their shards back) before the test ends."""
    loops: list[Any] = []

    def start(shards: FileShards) -> Iterator[FileShard]:
        loops.append(iter(shards))
        return loops[-1]  # type: ignore[no-any-return]  # loops are kept as Any

    yield start
    for loop in loops:
        loop.close()


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, incarnation: int = 0) -> None:
    monkeypatch.setenv(environment.RANK, str(rank))
    monkeypatch.setenv(environment.INCARNATION, str(incarnation))


@pytest.mark.parametrize("workers", [0, 2])
def test_alone_a_loader_gets_every_sample_once_per_epoch(workers: int) -> None:
    sampler = ElasticSampler(100, batch_size=8, epochs=2, seed=1)
    # Any iterable of lists will do.
    loader = DataLoader(range(100), batch_sampler=sampler, num_workers=workers)  # type: ignore[arg-type]
    seen = Counter(index for batch in sampler.acknowledged(loader) for index in batch.tolist())
    assert seen == Counter(dict.fromkeys(range(100), 2))


def test_alone_files_are_cut_into_ranges_of_records() -> None:
    shards = FileShards({"b": 25, "a": 10, "empty": 0}, records_per_shard=10, shuffle=False)
    found = [(shard.path, shard.start, shard.stop) for shard in shards]
    assert found == [("a", 0, 10), ("b", 0, 10), ("b", 10, 20), ("b", 20, 25)]


def test_two_processes_share_the_samples(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers = []
    for rank in range(2):
        as_rank(monkeypatch, rank)
        samplers.append(ElasticSampler(50, batch_size=4, epochs=3, seed=2))

    def train(sampler: ElasticSampler) -> Counter[int]:
        seen: Counter[int] = Counter()
        for batch in sampler.acknowledged(iter_once(sampler)):
            seen.update(batch)
            time.sleep(0.001)
        return seen

    with ThreadPoolExecutor() as pool:
        first, second = pool.map(train, samplers)
    assert first + second == Counter(dict.fromkeys(range(50), 3))
    assert first
    assert second
    assert coordinator.state.ledger is not None
    assert coordinator.state.ledger.finished


class iter_once:  # noqa: N801  (a loader without PyTorch: iterates its sampler)
    def __init__(self, sampler: ElasticSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._sampler)


def test_what_a_dead_process_held_goes_to_the_others(
    coordinator: Coordinator, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0)
    dead = started(FileShards({"f": 10}, records_per_shard=1, shuffle=False))
    assert next(dead).start == 0
    assert next(dead).start == 1  # acknowledges the first
    report = AgentReport(
        role="worker", rank=0, incarnation=0, state=ProcessState.EXITED, exit_code=137
    )
    coordinator.handle_agent_report(report, now=0.0)
    as_rank(monkeypatch, 1)
    rest = [shard.start for shard in FileShards({"f": 10}, records_per_shard=1, shuffle=False)]
    assert rest == list(range(1, 10)), "what was acknowledged was done again, or something is lost"


def test_a_process_that_crashed_is_blamed_for_its_shard_and_three_put_it_into_quarantine(
    coordinator: Coordinator, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for incarnation in range(3):
        as_rank(monkeypatch, 0, incarnation)
        assert next(started(FileShards({"f": 5}, records_per_shard=1, shuffle=False))).start == 0
        crashed = AgentReport(
            role="worker", rank=0, incarnation=incarnation, state=ProcessState.EXITED, exit_code=1
        )
        coordinator.handle_agent_report(crashed, now=0.0)
    as_rank(monkeypatch, 0, 3)
    loop = started(FileShards({"f": 5}, records_per_shard=1, shuffle=False))
    assert [next(loop).start for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(ShardError, match=r"slots 0\.\.1 failed on 3 different holders"):
        next(loop)


def test_an_agent_renews_what_its_process_holds(
    coordinator: Coordinator, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0)
    next(started(FileShards({"f": 5}, records_per_shard=1)))
    ledger = coordinator.state.ledger
    assert ledger is not None
    [before] = ledger.leases()
    alive = AgentReport(role="worker", rank=0, incarnation=0)
    coordinator.handle_agent_report(alive, now=before.deadline - 1)
    assert ledger.expire(before.deadline + 1) == []


def test_unsharded_means_that_every_process_has_all_samples_in_its_own_order(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.learn(replace(coordinator.state.facts, guarantee=Guarantee.UNSHARDED))
    orders = []
    for rank in range(2):
        as_rank(monkeypatch, rank)
        shards = FileShards({"f": 30}, records_per_shard=1, seed=5)
        orders.append([shard.start for shard in shards])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30))
    assert orders[0] != orders[1]


def test_unsharded_holders_beyond_the_ranks_of_a_job_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(independent_leases, "MAX_REPLICAS", 2)
    books = Coordinator(JobFacts(guarantee=Guarantee.UNSHARDED, lease_seconds=5.0), identity="t")
    data = DataSpec(dataset_size=8, global_batch=1, epochs=1)

    def lease(holder: str, now: float = 0.0) -> LeaseReply:
        return books.grant_lease(LeaseRequest(holder=holder, data=data, max_slots=1), now)

    for holder in ("worker-0.0", "worker-1.0", "worker-0.1"):
        assert lease(holder).stop > 0
    with pytest.raises(LedgerError, match=r"holder = 'worker-2\.0': 2 workers"):
        lease("worker-2.0")
    for life in range(50):
        lease(f"worker-0.2/{life}", now=10.0 * life)
    assert len(books.state.holders._seen) == 1, "those that are not heard any more are forgotten"


def test_at_most_once_means_that_what_a_dead_process_held_is_not_done_again(
    coordinator: Coordinator, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.learn(replace(coordinator.state.facts, guarantee=Guarantee.AT_MOST_ONCE))
    as_rank(monkeypatch, 0)
    dead = started(FileShards({"f": 10}, records_per_shard=1, shuffle=False))
    assert next(dead).start == 0
    killed = AgentReport(
        role="worker", rank=0, incarnation=0, state=ProcessState.EXITED, exit_code=137
    )
    coordinator.handle_agent_report(killed, now=0.0)
    as_rank(monkeypatch, 1)
    rest = [shard.start for shard in FileShards({"f": 10}, records_per_shard=1, shuffle=False)]
    assert rest == list(range(1, 10))


def test_another_dataset_is_refused_with_the_field(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0)
    next(iter(FileShards({"f": 10}, records_per_shard=1)))
    with pytest.raises(ShardError, match=r"data\.dataset_size: 11; the job began with 10"):
        next(iter(FileShards({"f": 11}, records_per_shard=1)))


def test_a_wrong_token_is_refused(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.JOB_TOKEN, "wrong")
    with pytest.raises(ShardError, match="wrong: PENSTOCK_JOB_TOKEN has to be"):
        next(iter(FileShards({"f": 10}, records_per_shard=1)))


def test_a_shard_of_no_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="records_per_shard: 0"):
        FileShards({"f": 1}, records_per_shard=0)


def test_a_lease_whose_answer_was_lost_goes_back_when_its_holder_says_what_it_holds() -> None:
    data = DataSpec(dataset_size=10, global_batch=1, epochs=1, slots_per_step=1)
    order = data.order(1)
    shared = Ledger(LedgerOptions(total_slots=order.total_slots))
    books = independent_leases.IndependentLeases(Ledger)
    request = LeaseRequest(holder="worker-0.0/a", data=data, max_slots=1, held=())

    def ask(request: LeaseRequest) -> LeaseReply:
        return books.serve(request, shared, order, Guarantee.EXACTLY_ONCE, now=0.0)

    ask(request)  # its answer is lost
    kept = ask(request)
    assert (kept.start, kept.stop) == (0, 1), "the slot was held by nobody who knew of it"
    ask(request.model_copy(update={"held": (kept.fence,), "max_slots": 0}))
    assert [lease.fence for lease in shared.leases()] == [kept.fence]
