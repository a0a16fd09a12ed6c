"""Batches that are made ahead of a session's steps: the same ones, whoever makes them."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from penstock.crds import environment
from penstock.data.consuming.process import pool_of_process
from penstock.trainer import elastic
from penstock.trainer.loader import batch_makers
from penstock.trainer.loader.session_loader import SessionLoader
from penstock.trainer.loader.slot_stream import SlotStream
from tests.data.planes import eventually
from tests.patience import patient

SAMPLES, GLOBAL_BATCH, EPOCHS, SLOTS = 50, 16, 3, 4


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


class Noise(Dataset[Any]):
    """Samples that draw from the generators that datasets draw from, and say who made them."""

    def __init__(self, size: int = SAMPLES, bad: int = -1) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.bad:
            raise LookupError(f"no picture {index}")
        return {
            "index": index,
            "torch": torch.rand(3),
            "numpy": np.random.rand(2),
            "maker": os.getpid(),
        }


def start(**changes: Any) -> tuple[nn.Module, elastic.Session]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    fields = {
        "dataset_size": SAMPLES,
        "global_batch": GLOBAL_BATCH,
        "epochs": EPOCHS,
        "slots_per_step": SLOTS,
        "seed": 3,
        **changes,
    }
    return model, elastic.session(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **fields
    )


def batches(dataset: Any = None, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every micro-batch of a whole training, with its batch."""
    model, session = start()
    with session:
        loader = session.loader(Noise() if dataset is None else dataset, **options)
        for step in session:
            for micro, batch in loader.load(step):
                yield micro, batch
                micro.backward(model(batch["torch"]).mean())
            assert step.commit()
    assert session.finished
    assert session._state.audit.totals()["samples_seen"] == SAMPLES * EPOCHS
    assert session._state.audit.totals()["samples_repeated"] == 0


def has_ready(stream: SlotStream) -> bool:
    return stream.queue.window.ready >= 2


def frozen(batch: dict[str, torch.Tensor]) -> list[bytes]:
    return [batch[name].numpy().tobytes() for name in ("index", "torch", "numpy")]


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_have_the_same_bits_with_any_number_of_workers(workers: int) -> None:
    alone = [frozen(batch) for _, batch in batches(num_workers=0)]
    makers, made = set(), []
    for _, batch in batches(num_workers=workers):
        made.append(frozen(batch))
        makers |= set(batch["maker"].tolist())
    assert made == alone
    assert os.getpid() not in makers
    assert len(makers) <= workers


def test_a_batch_holds_the_samples_of_its_micro_batch_and_differs_between_epochs() -> None:
    drawn: dict[int, list[bytes]] = {}
    for micro, batch in batches():
        assert batch["index"].tolist() == micro.indices.tolist()
        for index, numbers in zip(batch["index"].tolist(), batch["torch"], strict=True):
            drawn.setdefault(index, []).append(numbers.numpy().tobytes())
    assert {len(set(of_epochs)) for of_epochs in drawn.values()} == {EPOCHS}


def test_what_the_model_draws_does_not_depend_on_the_loader() -> None:
    def draws(workers: int | None) -> list[float]:
        model, session = start(epochs=1)
        found = []
        with session:
            loader = session.loader(Noise(), num_workers=workers or 0)
            for step in session:
                for micro in step if workers is None else (m for m, _ in loader.load(step)):
                    found.append(torch.rand(()).item())
                    micro.backward(model(torch.ones(1, 3)).mean())
                step.commit()
        return found

    assert draws(None) == draws(0) == draws(1)


def test_batches_are_made_ahead_into_the_next_epoch_and_its_workers_end_with_the_session() -> None:
    model, session = start(epochs=2)
    with session:
        loader = session.loader(Noise(), num_workers=2)
        for step in session:
            for micro, batch in loader.load(step):
                if step.number == 3 and not loader._kept:  # the last of the epoch: two samples
                    [*_, ahead] = loader._streams
                    assert ahead.epoch == 1
                    eventually(partial(has_ready, ahead))
                micro.backward(model(batch["torch"]).mean())
            step.commit()
    assert not pool_of_process().makers.queues
    eventually(lambda: not pool_of_process().makers.links)


def test_a_step_that_is_done_again_and_another_range_get_their_own_batches() -> None:
    expected = {
        (micro.slot.epoch, micro.slot.step, micro.slot.micro): frozen(batch)
        for micro, batch in batches()
    }
    _, session = start()
    own = [range(4), range(2), range(2), range(1, 4), range(3, 3), range(4), range(2, 3), range(4)]
    numbers = [0, 1, 1, 2, 3, 4, 4, 9]
    with session:
        loader = session.loader(Noise(), num_workers=2)
        for number, slots in zip(numbers, own, strict=True):
            for micro, batch in loader.load(elastic.Step(session, number, slots)):
                name = micro.slot.epoch, micro.slot.step, micro.slot.micro
                assert batch["index"].tolist() == micro.indices.tolist()
                assert frozen(batch) == expected[name], name


def test_batches_that_are_made_are_kept_when_the_range_grows() -> None:
    _, session = start(slots_per_step=8, global_batch=16)
    with session:
        loader = session.loader(Noise(), num_workers=1)
        for _ in loader.load(elastic.Step(session, 0, range(4))):
            pass
        stream = loader._streams[0]
        eventually(partial(has_ready, stream))
        steps = loader.load(elastic.Step(session, 1, range(8)))
        next(steps)
        assert loader._kept.keys() >= {9}, "slot 8 was given, slot 9 was made with it"
        rest = [micro.slot.micro for micro, _ in steps]
        assert rest == list(range(1, 8))


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost_or_repeated() -> None:
    alone = [frozen(batch) for _, batch in batches(num_workers=0)]
    made, killed = [], set()
    for micro, batch in batches(num_workers=2):
        made.append(frozen(batch))
        if not killed and micro.slot.step == 1:
            killed.add(int(batch["maker"][0]))
            os.kill(*killed, signal.SIGKILL)
    assert killed
    assert made == alone


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_dataset_raises_is_the_programs_error_once_and_named(workers: int) -> None:
    given = []
    with pytest.raises(LookupError, match="no picture 7") as caught:
        given += [micro for micro, _ in batches(Noise(bad=7), num_workers=workers)]
    [note] = [one for one in caught.value.__notes__ if "Penstock" in one]
    _, session = start()
    [slot] = [
        session.order.slot(number)
        for number in range(session.order.total_slots // EPOCHS)
        if 7 in session.order.samples(session.order.slot(number))
    ]
    assert f"micro-batch {slot.micro} of step {slot.step} in epoch 0" in note
    assert ("sample 7 of" in note) == (workers == 0), "a local worker's error is as PyTorch's"


def test_an_error_blames_the_slot_that_was_being_computed() -> None:
    model, session = start()

    def train() -> None:
        with session:
            loader = session.loader(Noise(bad=7), num_workers=1)
            for step in session:
                for micro, batch in loader.load(step):
                    micro.backward(model(batch["torch"]).mean())
                step.commit()

    with pytest.raises(LookupError):
        train()
    assert session._step is not None
    assert session._step.working_on is not None
    slot = session.order.slot(session._step.working_on)
    assert 7 in session.order.samples(slot)


def test_a_worker_init_fn_runs_in_each_worker_and_samples_see_theirs() -> None:
    class Asks(Noise):
        def __getitem__(self, index: int) -> dict[str, Any]:
            info = get_worker_info()
            assert info is not None
            dataset: Any = info.dataset
            assert dataset.prepared == info.id
            return {**super().__getitem__(index), "of": info.num_workers}

    def prepare(number: int) -> None:
        info = get_worker_info()
        assert info is not None
        dataset: Any = info.dataset
        dataset.prepared = number

    for _, batch in batches(Asks(), num_workers=2, worker_init_fn=prepare):
        assert set(batch["of"].tolist()) == {2}


def test_collate_fn_makes_the_batch() -> None:
    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"torch": torch.stack([one["torch"] for one in samples]), "size": len(samples)}

    sizes = [batch["size"] for _, batch in batches(collate_fn=collate, num_workers=1)]
    assert sum(sizes) == SAMPLES * EPOCHS


def test_no_connection_of_the_training_process_is_held_open_by_its_workers() -> None:
    """A member that leaves, or dies, is not to seem there because its workers are."""
    _, session = start()
    with session, socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        with here, there:
            loader = session.loader(Noise(), num_workers=2)
            _, batch = next(loader.load(elastic.Step(session, 0, range(4))))
            assert os.getpid() not in batch["maker"].tolist()
            here.close()
            there.settimeout(patient(5))
            assert there.recv(1) == b"", "a worker that lives on has the connection too"


class Endless(IterableDataset[Any]):
    """Samples without indices."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dataset": Endless()}, TypeError, "dataset: a Endless cannot be indexed"),
        ({"dataset": Noise(49)}, ValueError, "dataset: 49 samples; .* dataset_size 50"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor"),
        ({"batch_size": 4}, TypeError, "batch_size: .* global_batch and slots_per_step"),
        ({"shuffle": True}, TypeError, "shuffle: .* shuffle and seed of elastic.session"),
        ({"workers": 4}, TypeError, "workers: not an argument .*num_workers"),
    ],
)
def test_what_cannot_be_used_is_named(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    _, session = start()
    arguments = {"dataset": Noise(), **options}
    with session, pytest.raises(error, match=said):
        session.loader(arguments.pop("dataset"), **arguments)


def test_a_step_that_was_begun_and_a_session_that_is_over_are_errors() -> None:
    model, session = start()
    with session:
        loader = session.loader(Noise())
        step = next(iter(session))
        micro = next(iter(step))
        micro.backward(model(torch.ones(1, 3)).mean())
        with pytest.raises(elastic.SessionError, match="step 0 was begun already"):
            next(loader.load(step))
    with pytest.raises(elastic.SessionError, match="the session is over"):
        next(loader.load(elastic.Step(session, 1, range(4))))


def test_nothing_of_a_sharded_models_steps_moves_which_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(environment.PARTITION, "auto")
    model, session = start(epochs=2)
    with session:
        loader = SessionLoader(session, Noise(), {}, sharded=True)
        for step in session:
            for micro, batch in loader.load(step):
                assert type(batch["torch"]) is torch.Tensor
                micro.backward(model(batch["torch"]).mean())
            step.commit()
        loader.close()
    lines = [one for one in caplog.messages if "partition: " in one]
    assert len(lines) == 1
    assert "the loader of Noise: FellBack: its model is in several processes" in lines[0]


def test_local_workers_begin_anew_when_something_moves_and_each_sample_comes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stages:
        """Another thing to do with batches in each of the first epochs, and then nothing."""

        steps = 0

        def begin_epoch(self, why_not: str = "", seed: int | None = None) -> Any:
            Stages.steps += 1
            return partial(_noted, Stages.steps) if Stages.steps < 3 else None

        def deliver(self, given: Any, *, first: bool = True) -> Any:
            return given

        def end_step(self) -> None:
            """Nothing is looked at."""

    monkeypatch.setattr(batch_makers, "work_of_loader", lambda loader, members: Stages())
    seen: list[set[int]] = []
    makers: list[set[int]] = []
    samples = 8 * SAMPLES  # many more than are made ahead of an epoch
    model, session = start(epochs=4, dataset_size=samples)
    with session:
        loader = session.loader(Noise(samples), num_workers=1)
        for step in session:
            if step.in_epoch == 0:
                seen.append(set())
                makers.append(set())
            for micro, batch in loader.load(step):
                assert batch["index"].tolist() == micro.indices.tolist()
                seen[-1].add(int(batch.get("noted", 0)))
                makers[-1] |= set(batch["maker"].tolist())
                micro.backward(model(batch["torch"]).mean())
            step.commit()
    assert session._state.audit.totals()["samples_seen"] == samples * 4
    assert session._state.audit.totals()["samples_repeated"] == 0
    assert 1 in seen[0]
    assert 2 in seen[1]
    assert 0 in seen[2]
    assert seen[3] == {0}
    assert os.getpid() not in set().union(*makers)
    assert len(set().union(*makers)) == 3, "of each way one local worker"


def _noted(number: int, batch: Any) -> Any:
    return {**batch, "noted": number}
