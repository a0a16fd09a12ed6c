"""Workers against a real trainer and real servers, all in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec, MemberId
from penstock.parameter_server.arrays import Gradients
from penstock.parameter_server.control.records.checkpointing import CheckpointSchedule
from penstock.parameter_server.control.records.timeouts import Timeouts
from penstock.parameter_server.server.process import ParameterServer
from penstock.parameter_server.server.settings import ServerSettings
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.worker import duties
from penstock.parameter_server.worker.checkpoint import ModelFiles, Saved
from penstock.parameter_server.worker.chief import Save
from penstock.parameter_server.worker.client import ServersError
from penstock.parameter_server.worker.trainer_client import LeavingError, WorkerError
from penstock.parameter_server.worker.worker import Worker
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.server import Changes, Endpoints, make_server
from penstock.trainer.service import bind

TOKEN = "secret"
DATA = DataSpec(dataset_size=30, global_batch=2, epochs=2, slots_per_step=1)
TOTAL = 30


def model(rows: int = 40) -> ModelSpec:
    return ModelSpec(
        spaces=(SpaceSpec(dim=1, tables=(TableSpec(name="t", rows=rows, deviation=0.0),)),),
        dense=(DenseSpec(name="w", shape=(2,)),),
        optimizer=OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=1.0),
        partitions=8,
    )


class Job:
    """A trainer on a thread of its own, and its servers."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(JobFacts(lease_seconds=20.0), identity="test")
        self.servers: list[ParameterServer] = []
        self.workers: list[Worker] = []
        listening = bind("127.0.0.1", 0)
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        endpoints = Endpoints(self.coordinator, Changes(self.coordinator), TOKEN)
        self._http = make_server(endpoints.app())
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._http.serve(sockets=[listening]))
        )
        self._thread.start()

    def start_servers(self, count: int, memory: int | None = None) -> None:
        for rank in range(count):
            settings = ServerSettings(
                trainer=self.address, token=TOKEN, rank=rank, memory_limit_bytes=memory
            )
            self.servers.append(ParameterServer(settings))
            self.servers[-1].start()

    def worker(
        self,
        rank: int = 0,
        spec: ModelSpec | None = None,
        data: DataSpec = DATA,
        folder: Path | None = None,
        leaving: Callable[[], bool] = lambda: False,
        give_up_seconds: float = 30.0,
        save_every_slots: int = 0,
        staleness: int | None = None,
    ) -> Worker:
        spec = spec or model()
        worker = Worker(
            address=self.address,
            token=TOKEN,
            member=MemberId(rank=rank, incarnation=0, nonce=f"n{rank}"),
            holder=f"worker-{rank}.0/n{rank}",
            spec=spec,
            data=data,
            dense=np.zeros(spec.dense_size, np.float32),
            files=ModelFiles(folder, spec, data) if folder else None,
            save_every_slots=save_every_slots,
            staleness=staleness,
            leaving=leaving,
            give_up_seconds=give_up_seconds,
        )
        self.workers.append(worker)
        return worker

    def stop_trainer(self) -> None:
        self._http.should_exit = True
        self._thread.join(20)

    def close(self) -> None:
        for worker in self.workers:
            worker.close(goodbye_seconds=0.5)
        for server in self.servers:
            server.close()
        self.stop_trainer()
        assert not self._thread.is_alive()


@contextmanager
def running() -> Iterator[Job]:
    job = Job()
    try:
        yield job
    finally:
        job.close()


@pytest.fixture
def job() -> Iterator[Job]:
    with running() as found:
        yield found


def train(worker: Worker) -> int:
    """To the end of the data: row 0 counts batches, row `slot` the batches of the slot."""
    batches = 0
    while (slot := worker.next_slot()) is not None:
        if worker.begin(slot) is None:
            continue
        worker.pull([(0, np.array([0, 1 + slot]))])
        ones = -np.ones((2, 1), np.float32)
        worker.push(slot, [Gradients(0, np.array([0, 1 + slot]), ones)], None)
        batches += 1
    worker.finish()
    return batches


def test_workers_share_the_slots_and_each_is_applied_once(job: Job) -> None:
    job.start_servers(2)
    workers = [job.worker(rank) for rank in range(3)]
    with ThreadPoolExecutor() as pool:
        shares = list(pool.map(train, workers))
    assert sum(shares) == TOTAL
    [counts] = workers[1].pull([(0, np.arange(1 + TOTAL))])
    assert counts.ravel().tolist() == [TOTAL, *[1] * TOTAL]
    assert workers[0].applied() == [([(0, TOTAL)], TOTAL)] * 2
    assert sorted(worker.chief for worker in workers) == [False, False, True]
    for worker in workers:
        worker.close()
    assert job.coordinator.done()


def test_the_trained_model_is_on_disk_before_the_loop_ends_and_is_taken_up(tmp_path: Path) -> None:
    with running() as job:
        job.start_servers(2)
        worker = job.worker(folder=tmp_path)
        assert train(worker) == TOTAL
        worker.wait_for_save()
        worker.close()
    assert [path.name for path in tmp_path.glob("slots-*")] == [f"slots-{TOTAL:012d}.penstock"]
    with running() as job:
        job.start_servers(3)
        worker = job.worker(folder=tmp_path)
        assert train(worker) == 0
        [counts] = worker.pull([(0, np.arange(2))])
        assert counts.ravel().tolist() == [TOTAL, 1]
        worker.close()


def test_a_chief_that_cannot_save_is_heard_while_it_trains_and_tries_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "SAVE_RETRY_SECONDS", 0.1)
    saves = job.coordinator.servers.state.checkpoints
    saves.timeouts = Timeouts(retry=0.2)
    job.start_servers(1)
    folder = tmp_path / "model"
    folder.write_text("in the way")
    data = DATA.model_copy(update={"dataset_size": 20_000})
    worker = job.worker(data=data, folder=folder, save_every_slots=5)

    def train_until(ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not ready():
            assert time.monotonic() < deadline
            slot = worker.next_slot()
            assert slot is not None
            if worker.begin(slot) is not None:
                worker.push(slot, [], None)
                worker._exchange()

    failures: list[str] = []
    heard = CheckpointSchedule.fail
    monkeypatch.setattr(
        CheckpointSchedule, "fail", lambda *known: (failures.append("once"), heard(*known))[1]
    )
    train_until(lambda: len(failures) == 2)
    folder.unlink()
    train_until(lambda: saves.saved is not None)
    assert [path.name for path in folder.glob("slots-*")] == [f"slots-{saves.saved:012d}.penstock"]


def test_a_trained_model_that_cannot_be_saved_is_an_error_in_the_end(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "SAVE_RETRY_SECONDS", 0.1)
    job.coordinator.servers.state.checkpoints.timeouts = Timeouts(retry=0.2, last=1.0)
    job.start_servers(1)
    folder = tmp_path / "model"
    folder.write_text("in the way")
    worker = job.worker(folder=folder)
    assert train(worker) == TOTAL
    began = time.monotonic()
    with pytest.raises(WorkerError, match=rf"not on disk in {folder}: .*{folder}"):
        worker.wait_for_save()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("lacking", [0, 1], ids=["the first", "the second"])
def test_where_a_server_has_no_memory_for_a_copy_the_model_is_saved_without_one(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, lacking: int
) -> None:
    job.start_servers(2)
    job.servers[lacking]._shard.contents.snapshots._room.take = lambda _: False
    workers = [job.worker(rank, folder=tmp_path, save_every_slots=8) for rank in range(2)]
    with ThreadPoolExecutor() as pool:
        assert sum(pool.map(train, workers)) == TOTAL
    for worker in workers:
        worker.wait_for_save()
    assert (
        len([text for text in caplog.messages if "written while the training waits" in text]) == 1
    )
    files = ModelFiles(tmp_path, model(), DATA)
    assert files.list()[0].slots == TOTAL
    assert len(files.list()) > 1
    for saved in files.list():
        file = files.open(saved)
        counts = np.concatenate([file.partition(part)[0].ravel() for part in range(8)])
        seen = saved.slots
        assert sorted(counts.tolist())[-seen - 1 :] == [*[1.0] * seen, float(seen)]
        assert file.pushes == seen


def test_a_disk_that_takes_nothing_of_frozen_servers_lets_the_training_go_on(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, mended = threading.Event(), threading.Event()
    write = ModelFiles.write

    def hangs(files: ModelFiles, applied: RangeSet, pushes: int, parts: Any) -> Saved:
        begun.set()
        assert mended.wait(50)
        return write(files, applied, pushes, parts)

    monkeypatch.setattr(ModelFiles, "write", hangs)
    monkeypatch.setattr(Save, "is_stalled", partialmethod(Save.is_stalled, seconds=0.2))
    job.coordinator.servers.state.checkpoints.timeouts = Timeouts(retry=0.1)
    job.start_servers(2)
    job.servers[0]._shard.contents.snapshots._room.take = lambda _: False
    worker = job.worker(folder=tmp_path, save_every_slots=8)
    trained = []
    while len(trained) < 20:  # it goes on, though the first checkpoint is due at 8
        slot = worker.next_slot()
        assert slot is not None
        if worker.begin(slot) is not None:
            worker.push(slot, [], None)
            trained.append(slot)
    assert begun.is_set()
    assert "the disk takes too little" in job.coordinator.servers.save_error
    assert list(tmp_path.glob("slots-*")) == []
    mended.set()
    train(worker)
    worker.wait_for_save()
    names = [path.name for path in tmp_path.iterdir() if path.suffix == ".penstock"]
    assert names == [f"slots-{TOTAL:012d}.penstock"], "nothing of what went on was kept"


def test_another_model_or_other_data_are_refused_by_name(job: Job) -> None:
    job.start_servers(1)
    first = job.worker()
    assert first.next_slot() is not None
    other = job.worker(1, spec=model(rows=41))
    with pytest.raises(WorkerError, match="table t: 41 rows of 1 instead of 40 rows of 1"):
        other.next_slot()
    data = DATA.model_copy(update={"dataset_size": 31})
    with pytest.raises(WorkerError, match="dataset_size: 31"):
        job.worker(2, data=data).next_slot()
    first.close()


def test_a_table_larger_than_all_servers_is_refused_with_both_sums(job: Job) -> None:
    job.start_servers(2, memory=70 << 20)
    worker = job.worker(spec=model(rows=100 << 20))
    with pytest.raises(WorkerError, match=str(model(rows=100 << 20).bytes)):
        worker.next_slot()


def test_a_trainer_that_stays_away_is_an_error_in_the_end(job: Job) -> None:
    worker = job.worker(give_up_seconds=0.5)
    job.stop_trainer()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=rf"the trainer at {job.address} was away for 0 s"):
        worker.next_slot()
    assert time.monotonic() - began < 10
    worker.close(goodbye_seconds=0.2)


def test_who_is_asked_to_go_while_it_waits_goes(job: Job) -> None:
    asked = threading.Event()
    worker = job.worker(leaving=asked.is_set)
    threading.Timer(0.2, asked.set).start()
    with pytest.raises(LeavingError):
        worker.next_slot()  # there are no servers, so there is nothing to do
    worker.close()


def test_who_is_asked_to_go_while_it_waits_for_its_turn_goes(job: Job) -> None:
    job.start_servers(2)
    asked = threading.Event()
    first, second = job.worker(0, staleness=0), job.worker(1, staleness=0, leaving=asked.is_set)
    mine, yours = first.next_slot(), second.next_slot()
    assert mine is not None
    assert yours is not None
    assert first.begin(mine) is not None
    threading.Timer(0.2, asked.set).start()
    with pytest.raises(LeavingError):
        second.begin(yours)
    second.close()
    first.push(mine, [], None)
    assert train(first) == TOTAL - 1
    first.close()


def test_servers_that_never_come_are_an_error_in_the_end(job: Job) -> None:
    worker = job.worker(give_up_seconds=0.3)
    with pytest.raises(ServersError, match=r"no parameter servers for 0 s: waiting for param"):
        worker.pull([(0, np.array([1]))])
    worker.close()


def test_what_a_worker_gives_back_another_does(job: Job) -> None:
    job.start_servers(1)
    first, second = job.worker(0), job.worker(1)
    slot = first.next_slot()
    assert slot is not None
    first.close()
    assert train(second) == TOTAL
    second.close()
