"""Every Python block of the pages runs as it stands; only what it takes as given is put in.

Those of docs/algorithms.md are installed and compared by `tests.sim.ps.test_own_algorithm`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import penstock.data
from penstock.client import BrainClient
from penstock.crds import environment
from penstock.trainer import elastic
from penstock.wire import JobRegistration
from penstock_cluster.testing import RunningCluster
from tests.api.service import REGISTRATION
from tests.client.embedded import cluster_with_definitions, condition, job, set_status
from tests.client.test_against_the_service import service
from tests.docs.pages import ROOT, Block, blocks

BLOCKS = {
    "docs/algorithms.md": 2,
    "docs/buckets.md": 2,
    "docs/data-workers.md": 2,
    "docs/embedded-cluster.md": 1,
    "docs/partition.md": 4,
    "docs/sdk.md": 2,
    "docs/tasks/gpu.md": 1,
    "docs/tasks/tensorflow.md": 1,
    "docs/training.md": 4,
}
JOBS = "elasticjobs.penstock.dev"


def test_no_block_is_left_out() -> None:
    assert Counter(str(one.page.relative_to(ROOT)) for one in blocks("python")) == BLOCKS


def run(page: str, number: int, **given: Any) -> dict[str, Any]:
    """Run a page's block, counted from 0, with what it takes as given; the names that it made."""
    block: Block = [one for one in blocks("python") if one.page == ROOT / page][number]
    names = {"__name__": "__main__", **given}
    exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)
    return names


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def brain_url(sqlite_url: str) -> Iterator[str]:
    with service(sqlite_url) as url:
        yield url


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, brain_url: str) -> Iterator[RunningCluster]:
    """A cluster and a Brain that a program finds by its environment, as a person's would."""
    monkeypatch.chdir(ROOT)
    with cluster_with_definitions() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig_path))
        monkeypatch.setenv("PENSTOCK_BRAIN_URL", brain_url)
        monkeypatch.setenv("PENSTOCK_BRAIN_TOKEN", "token")
        yield running


@contextmanager
def training(cluster: RunningCluster, brain_url: str, name: str) -> Iterator[None]:
    """Plays controller and trainer: a job that appears is planned once, and succeeds."""

    def play() -> None:
        found = cluster.wait(lambda: cluster.find(JOBS, name, "default"), f"job {name}", 30)
        uid = found["metadata"]["uid"]
        with BrainClient(brain_url) as brain:
            brain.register(uid, JobRegistration.model_validate({**REGISTRATION, "name": name}))
            brain.finish(uid, "Succeeded")
        set_status(cluster, name, condition("Succeeded"), state="Succeeded")

    player = threading.Thread(target=play, daemon=True)
    player.start()
    try:
        yield
    finally:
        player.join(40)
    assert not player.is_alive()


def test_a_job_is_submitted_awaited_and_its_plans_are_printed(
    cluster: RunningCluster, brain_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(cluster, brain_url, "digits"):
        run("docs/sdk.md", 0)
    state, plan = capsys.readouterr().out.splitlines()
    assert state == "Succeeded"
    assert plan.startswith("1 ")


def test_a_jobs_plans_are_followed_to_its_end(
    cluster: RunningCluster, brain_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = cluster.create(JOBS, job("digits"), cluster.namespace("team"))["metadata"]["uid"]
    with BrainClient(brain_url) as brain:
        registration = {**REGISTRATION, "name": "digits", "namespace": "team"}
        brain.register(uid, JobRegistration.model_validate(registration))
        timer = threading.Timer(0.3, lambda: brain.finish(uid, "Succeeded"))
        timer.start()
        run("docs/sdk.md", 1)
        timer.join()
    assert capsys.readouterr().out.startswith("1 ")


def test_an_elastic_session_trains(capsys: pytest.CaptureFixture[str]) -> None:
    images = torch.randn(432, 4, generator=torch.Generator().manual_seed(0))
    labels = (images.sum(1) > 0).long()
    model = torch.nn.Linear(4, 2)

    def evaluate(trained: torch.nn.Module) -> float:
        return float((trained(images).argmax(1) == labels).float().mean())

    run(
        "docs/training.md",
        0,
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.05),
        images=images,
        labels=labels,
        loss_function=torch.nn.functional.cross_entropy,
        evaluate=evaluate,
    )
    assert '"samples_seen": 8640, "samples_lost": 0' in capsys.readouterr().out
    assert evaluate(model) > 0.95


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_a_session_with_a_loader_trains_and_clips() -> None:
    images = torch.randn(432, 4, generator=torch.Generator().manual_seed(0))
    dataset = torch.utils.data.TensorDataset(images, (images.sum(1) > 0).long())
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    run("docs/training.md", 2, torch=torch, model=model, optimizer=optimizer)
    norms: list[float] = []

    def note_norm(*_: object) -> None:
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    optimizer.register_step_pre_hook(note_norm)
    found = run(
        "docs/training.md",
        1,
        elastic=elastic,
        model=model,
        optimizer=optimizer,
        dataset=dataset,
        loss_function=lambda output, labels: 9 * functional.cross_entropy(output, labels),
    )
    assert found["session"].finished
    assert len(norms) == 60
    assert norms[0] == pytest.approx(1.0, abs=1e-3)
    assert max(norms) < 1.001


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_shards_and_batches_are_leased_by_a_program_on_its_own() -> None:
    batches: list[torch.Tensor] = []
    records = Counter[str]()
    run(
        "docs/training.md",
        3,
        dataset=torch.arange(100),
        DataLoader=torch.utils.data.DataLoader,
        train=batches.append,
        train_on=lambda path, start, stop: records.update({path: stop - start}),
    )
    seen = Counter(int(index) for batch in batches for index in batch)
    assert seen == dict.fromkeys(range(100), 3)
    assert records == {"a.tfrecord": 9000, "b.tfrecord": 400}


def test_a_loader_without_pytorch() -> None:
    dataset = [{"pixels": np.full(3, index), "name": str(index)} for index in range(70)]
    found = run("docs/data-workers.md", 0, dataset=dataset)
    assert set(found["batch"]) == {"pixels", "name"}
    state = found["loader"].state_dict()
    found["loader"].load_state_dict(state)


def test_batches_that_are_made_once(tmp_path: Path) -> None:
    loader = [np.full(3, index) for index in range(120)]
    found = run("docs/data-workers.md", 1, loader=loader, folder=tmp_path / "made")
    assert [batch.tolist() for batch in found["half"]] == [one.tolist() for one in loader[100:]]


def test_steps_of_like_length() -> None:
    lengths = [1 + index % 300 for index in range(500)]
    dataset = [torch.full((length,), index) for index, length in enumerate(lengths)]

    def pad(samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

    found = run("docs/buckets.md", 1, dataset=dataset, lengths=lengths, pad=pad, rank=0, world=1)
    batches = list(found["loader"])
    assert sorted(int(row[0]) for batch in batches for row in batch) == list(range(500))
    real = sum(lengths) / sum(batch.numel() for batch in batches)
    assert real > 0.7


def test_a_stream_is_batched_by_length() -> None:
    lengths = [1 + index * 37 % 300 for index in range(500)]
    texts = [torch.full((length,), index) for index, length in enumerate(lengths)]

    def pad(samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

    found = run("docs/buckets.md", 0, texts=texts, pad=pad)
    batches = list(torch.utils.data.DataLoader(found["Batches"](texts), None, collate_fn=pad))
    assert sorted(int(row[0]) for batch in batches for row in batch) == list(range(500))
    assert sum(lengths) / sum(batch.numel() for batch in batches) > 0.7


def test_a_container_is_killed_on_an_embedded_cluster() -> None:
    run("docs/embedded-cluster.md", 0)


def test_bytes_are_normalised_where_they_are_used() -> None:
    given = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    mean, std = torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.25)
    made = run("docs/tasks/gpu.md", 0, torch=torch, device="cpu", images=given, mean=mean, std=std)[
        "images"
    ]
    assert torch.equal(made, (given.float() / 255 - 0.5) / 0.25)
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_a_frozen_encoder_is_declared() -> None:
    encoder = torch.nn.Linear(4, 2).eval().requires_grad_(False)
    images = torch.arange(8.0).reshape(2, 4)
    found = run("docs/partition.md", 0, encode=encoder, loader=[(images, torch.zeros(2))])
    assert torch.equal(found["hidden"], torch.nn.functional.linear(images, *encoder.parameters()))


def test_augmentation_is_declared_and_without_penstock_run_draws_as_it_did() -> None:
    images = torch.rand(6, 4)
    augment = run("docs/partition.md", 1, penstock=penstock, augment=_noisy)["augment"]
    torch.manual_seed(3)
    declared = augment(images)
    torch.manual_seed(3)
    assert torch.equal(declared, _noisy(images))


def _noisy(images: torch.Tensor) -> torch.Tensor:
    return images + torch.rand_like(images)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_an_encoder_is_declared_in_a_session() -> None:
    images = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    dataset = torch.utils.data.TensorDataset(images, (images.sum(1) > 0).long())
    encode = torch.nn.Linear(4, 8).eval().requires_grad_(False)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with elastic.session(
        model=model, optimizer=optimizer, dataset_size=dataset, global_batch=16, epochs=2
    ) as session:
        given = {"dataset": dataset, "model": model, "loss_function": functional.cross_entropy}
        run("docs/partition.md", 2, session=session, encode=encode, **given)
    assert session.finished


def test_stages_of_samples_and_of_batches() -> None:
    given = {"dataset": np.arange(64.0), "decode": lambda sample: -sample}
    found = run("docs/partition.md", 3, **given, encode=lambda batch: batch / batch.sum())
    assert [round(float(batch.sum()), 6) for batch in found["loader"]] == [1.0, 1.0]


def test_a_tf_data_pipeline(tf: Any) -> None:
    batches: list[Any] = []
    states: list[Any] = []
    given = {"parse": lambda record: record, "files": [f"part-{one}" for one in range(20)]}
    found = run(
        "docs/tasks/tensorflow.md", 0, **given, train=batches.append, checkpoint=states.append
    )
    records = Counter(text for batch in batches for text in batch.numpy().tolist())
    assert len(records) == 60
    assert set(records.values()) == {3}
    assert [state["epoch"] for state in states] == [1, 2, 3]
    found["data"].load_state_dict(states[0])
