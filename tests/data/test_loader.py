"""The framework-free loader: the same batches with any data workers, and none lost or repeated."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.base.enums import Guarantee
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import BadSampleError
from penstock.data.pipeline import Stage
from penstock.data.queue.credits import PREFETCH
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.transport import messages
from tests.data import planes
from tests.data.planes import Noise, Plain, end, eventually, same, spawn, thread_worker

MOST_EPOCHS = 20


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with planes.consumer() as made:
        yield made


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "shared-memory"])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_batches_are_the_same_with_any_number_of_data_workers(
    consumer: Consumer, workers: int, tcp: bool
) -> None:
    processes = [spawn(consumer, tcp=tcp) for _ in range(workers)]
    try:
        eventually(lambda: len(consumer.workers) == workers)
        loader = Loader(Noise(seconds=0.002), 4, seed=7, consumer=consumer)
        got = [list(loader), list(loader)]
        assert consumer.counts.arrived > 0
    finally:
        for process in processes:
            end(process)
    again = Loader(Noise(), 4, seed=7)
    assert same(got[0], list(again))
    assert same(got[1], list(again))
    assert not same(got[0], got[1])


def test_batches_come_over_ipv6() -> None:
    with planes.consumer(host="::1") as consumer:
        assert consumer.address.startswith("[::1]:")
        process = spawn(consumer, tcp=True)
        try:
            eventually(lambda: len(consumer.workers) == 1)
            loader = Loader(Noise(seconds=0.002), 4, seed=7, consumer=consumer)
            epochs = [list(loader)]
            while consumer.counts.arrived == 0 and len(epochs) < MOST_EPOCHS:
                epochs.append(list(loader))
            assert consumer.counts.arrived > 0
        finally:
            end(process)
    alone = Loader(Noise(), 4, seed=7)
    for got in epochs:
        assert same(got, list(alone))


def test_data_workers_may_join_leave_and_die_within_an_epoch(consumer: Consumer) -> None:
    loader = Loader(Noise(400, seconds=0.002), 4, seed=7, consumer=consumer)
    batches = iter(loader)
    got = [next(batches) for _ in range(5)]
    first, second = spawn(consumer), spawn(consumer, tcp=True)
    third = None
    try:
        eventually(lambda: len(consumer.workers) == 2)
        got += [next(batches) for _ in range(30)]
        first.kill()
        got += [next(batches) for _ in range(10)]
        third = spawn(consumer)
        eventually(lambda: len(consumer.workers) == 2)
        got += [next(batches) for _ in range(10)]
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 0
        got += batches
        assert consumer.counts.arrived > 0
    finally:
        for process in (first, second, third):
            if process is not None:
                end(process)
    assert same(got, list(Loader(Noise(400), 4, seed=7)))


def test_a_data_worker_that_stops_answering_is_done_without(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.consuming.consumer.SILENCE_SECONDS", 1.0)
    process = spawn(consumer)
    try:
        eventually(lambda: len(consumer.workers) == 1)
        loader = Loader(Noise(2000, seconds=0.001), 4, seed=7, consumer=consumer)
        batches = iter(loader)
        got = []
        while not consumer.counts.arrived:
            got.append(next(batches))
        os.kill(process.pid, signal.SIGSTOP)
        got += batches
        assert consumer.workers == []
    finally:
        end(process)
    assert same(got, list(Loader(Noise(2000), 4, seed=7)))


def test_a_data_worker_whose_dataset_hangs_is_done_without(consumer: Consumer) -> None:
    loader = Loader(HangsElsewhere(), 2, seed=7, consumer=consumer)
    object.__setattr__(loader._options, "make_seconds", 0.5)
    process = spawn(consumer)
    try:
        eventually(lambda: len(consumer.workers) == 1)
        assert len(list(loader)) == 10
    finally:
        end(process)


class HangsElsewhere(Noise):
    """Samples that only the process that made the dataset can make."""

    def __init__(self) -> None:
        super().__init__(20)
        self.home = os.getpid()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if os.getpid() != self.home:
            signal.pause()
        return super().__getitem__(index)


def test_what_the_program_keeps_is_never_overwritten(consumer: Consumer) -> None:
    with thread_worker(consumer), thread_worker(consumer, tcp=True):
        eventually(lambda: len(consumer.workers) == 2)
        loader = Loader(Plain(400), 4, seed=3, consumer=consumer)
        kept = list(loader)
    assert same(kept, list(Loader(Plain(400), 4, seed=3)))


def test_the_state_goes_into_a_checkpoint_and_comes_back(consumer: Consumer) -> None:
    whole = Loader(Plain(), 4, seed=7)
    wanted = [*whole, *whole]
    first = Loader(Plain(), 4, seed=7, consumer=consumer)
    with thread_worker(consumer):
        eventually(lambda: len(consumer.workers) == 1)
        batches = iter(first)
        got = [next(batches) for _ in range(6)]
        state = first.state_dict()
        next(batches)  # the model did not live to see it saved
        second = Loader(Plain(), 4, seed=7, consumer=consumer)
        second.load_state_dict(state)
        got += list(second)
        assert second.state_dict() == {"version": 1, "epoch": 1, "position": 0}
        got += list(second)
    assert same(got, wanted)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "version: None"),
        ({"version": 1, "epoch": 0, "position": 99}, "position: 99; an epoch has 15 steps"),
        ({"version": 1, "epoch": "x", "position": 0}, "must be integers"),
    ],
)
def test_a_state_of_something_else_is_refused(state: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Loader(Noise(), 4).load_state_dict(state)


def test_consumers_of_a_group_share_each_step() -> None:
    parts = [list(Loader(Noise(51), 4, seed=1, index=index, count=3)) for index in range(3)]
    assert [len(part) for part in parts] == [5, 5, 5]
    seen = sorted(int(one) for part in parts for batch in part for one in batch["index"])
    assert seen == list(range(51))
    short = [list(Loader(Noise(50), 4, seed=1, index=index, count=3)) for index in range(3)]
    assert [len(part) for part in short] == [4, 4, 4]


def test_the_last_batch_may_be_dropped() -> None:
    assert len(list(Loader(Noise(50), 4, drop_last=True))) == 12
    assert len(list(Loader(Noise(50), 4))) == 13


def test_unsharded_consumers_see_everything_in_orders_of_their_own() -> None:
    orders = [
        [
            int(one)
            for batch in Loader(Noise(), 4, index=index, count=2, guarantee=Guarantee.UNSHARDED)
            for one in batch["index"]
        ]
        for index in range(2)
    ]
    assert orders[0] != orders[1]
    assert [sorted(order) for order in orders] == [list(range(60))] * 2


def test_at_most_once_loses_what_a_data_worker_died_with_and_says_so(consumer: Consumer) -> None:
    process = spawn(consumer)
    try:
        eventually(lambda: len(consumer.workers) == 1)
        loader = Loader(
            Noise(200, seconds=0.005),
            4,
            seed=7,
            consumer=consumer,
            guarantee=Guarantee.AT_MOST_ONCE,
        )
        batches = iter(loader)
        got = []
        while consumer.counts.arrived < 5:
            got.append(next(batches))
        process.kill()
        got += batches
    finally:
        end(process)
    assert 0 < loader.lost <= PREFETCH
    assert len(got) == 50 - loader.lost
    seen = [int(one) for batch in got for one in batch["index"]]
    assert len(set(seen)) == len(seen)


class Broken(Noise):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 13:
            raise ValueError("this sample is broken")
        return super().__getitem__(index)


@pytest.mark.parametrize("remote", [False, True])
def test_a_sample_that_raises_ends_the_epoch_and_is_named(consumer: Consumer, remote: bool) -> None:
    loader = Loader(Broken(), 4, shuffle=False, consumer=consumer)
    if remote:
        with thread_worker(consumer):
            eventually(lambda: len(consumer.workers) == 1)
            with pytest.raises(ValueError, match="this sample is broken") as caught:
                list(loader)
    else:
        with pytest.raises(ValueError, match="this sample is broken") as caught:
            list(loader)
    assert "sample 13 of train[0] epoch 0 step 3" in caught.value.__notes__[0]


@pytest.mark.parametrize("remote", [False, True])
def test_a_sample_that_raises_may_be_left_out(consumer: Consumer, remote: bool) -> None:
    loader = Loader(Broken(), 4, shuffle=False, consumer=consumer, skip_bad=True)
    if remote:
        with thread_worker(consumer):
            eventually(lambda: len(consumer.workers) == 1)
            got = list(loader)
    else:
        got = list(loader)
    assert [int(one) for batch in got for one in batch["index"]] == [
        one for one in range(60) if one != 13
    ]
    [bad] = loader.quarantine
    assert (bad.index, bad.batch.step) == (13, 3)


class Deadly(Noise):
    """A sample kills who tries to make it, unless that is the program."""

    def __init__(self) -> None:
        super().__init__(400)
        self.program = os.getpid()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 9:
            if os.getpid() == self.program:  # an assert here would be other code in data workers
                raise RuntimeError("nobody may try again what killed three")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True])
def test_a_sample_that_kills_data_workers_is_named_or_left_out(
    consumer: Consumer, skip: bool
) -> None:
    loader = Loader(Deadly(), 4, shuffle=False, consumer=consumer, skip_bad=skip)
    batches = iter(loader)
    processes = []
    try:
        for _ in range(3):
            processes.append(spawn(consumer))
            eventually(lambda: processes[-1].poll() is not None)
            eventually(lambda: not consumer.workers)
        if skip:
            got = [int(one) for batch in batches for one in batch["index"]]
            assert got == [one for one in range(400) if one // 4 != 2]
            assert [bad.index for bad in loader.quarantine] == [8, 9, 10, 11]
        else:
            with pytest.raises(BadSampleError, match=r"\[8, 9, 10, 11\]: 3 workers died"):
                list(batches)
    finally:
        for process in processes:
            end(process)


class Ragged(Noise):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3 if index == 5 else 4)


def test_a_ragged_batch_is_an_error_that_says_where(consumer: Consumer) -> None:
    with thread_worker(consumer):
        eventually(lambda: len(consumer.workers) == 1)
        with pytest.raises(ValueError, match="pad or crop") as caught:
            list(Loader(Ragged(), 4, shuffle=False, consumer=consumer))
    assert "samples [4, 5, 6, 7] of train[0] epoch 0 step 1" in caught.value.__notes__[0]


def test_a_batch_that_cannot_be_sent_is_made_here(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.transport.frame.MAX_BODY_BYTES", 20_000)
    with thread_worker(consumer, tcp=True):
        eventually(lambda: len(consumer.workers) == 1)
        got = list(Loader(Plain(), 4, seed=7, consumer=consumer))
    assert same(got, list(Loader(Plain(), 4, seed=7)))
    assert consumer.counts.arrived == 0


class Vast(Plain):
    """Samples of 2 GB, of which no page is ever touched."""

    def __getitem__(self, index: int) -> Any:
        return np.zeros(2 << 30, np.uint8)


def only(samples: list[Any]) -> Any:
    """A batch of one sample, which is not copied."""
    return samples[0]


@pytest.mark.slow
def test_batches_of_2_gb_are_made_here_and_the_log_says_why(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader(Vast(50), 1, consumer=consumer, collate=only)
    batches = iter(loader)
    with thread_worker(consumer, tcp=True):
        eventually(lambda: "could not make a batch" in caplog.text, 40)
        assert [batch.nbytes for batch in batches] == [2 << 30] * 50
    assert consumer.counts.arrived == 0
    [line] = [text for text in caplog.messages if "could not make a batch" in text]
    assert "a message of 2147483" in line
    assert "use smaller batches" in line


def test_in_shared_memory_a_batch_may_be_larger_than_a_message_from_the_first_on(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(Wide(), 4, seed=7, consumer=consumer)
    wanted = list(Loader(Wide(), 4, seed=7))
    monkeypatch.setattr("penstock.data.transport.frame.MAX_BODY_BYTES", 20_000)
    batches = iter(loader)
    with thread_worker(consumer):
        eventually(lambda: consumer.counts.arrived > 0)
        got = list(batches)
    assert same(got, wanted)


class Wide(Plain):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "numpy": np.full((128, 128), float(index))}


def test_a_worker_is_asked_once_it_has_opened_the_pipeline_whatever_the_sender_has_noticed(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed = threading.Event()
    send = WorkerConnection.send

    def linger(link: WorkerConnection, kind: int, *rest: Any) -> None:
        send(link, kind, *rest)
        if kind == messages.PIPELINE:
            noticed.wait(60)

    monkeypatch.setattr(WorkerConnection, "send", linger)
    batches = iter(Loader(Plain(50), 4, seed=7, consumer=consumer))
    try:
        with thread_worker(consumer):
            eventually(lambda: consumer.counts.arrived > 0, 5)
    finally:
        noticed.set()
    assert len(list(batches)) == 13


def test_stages_are_applied_and_must_be_for_the_cpu() -> None:
    doubled = list(Loader(list(range(10)), 5, shuffle=False, stages=[lambda x: 2 * x]))
    assert [batch.tolist() for batch in doubled] == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
    with pytest.raises(ValueError, match="device: 'cuda'"):
        Loader([1], 1, stages=[Stage(abs, device="cuda")])


def test_the_programs_own_random_numbers_are_left_alone() -> None:
    np.random.seed(1)
    for _ in Loader(Noise(), 4, seed=7):
        pass
    here = np.random.rand()
    np.random.seed(1)
    assert here == np.random.rand()


def test_an_iterator_that_is_dropped_takes_its_requests_along(consumer: Consumer) -> None:
    with thread_worker(consumer):
        eventually(lambda: len(consumer.workers) == 1)
        loader = Loader(Plain(200), 4, seed=7, consumer=consumer)
        for _ in loader:
            break
        whole = list(Loader(Plain(), 4, seed=7, consumer=consumer))
    assert same(whole, list(Loader(Plain(), 4, seed=7)))
