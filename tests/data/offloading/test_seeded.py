"""Declared functions that draw: the same numbers wherever they run, and none of the program's."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.crds import environment as names
from penstock.data.hooked import INTERCEPT
from penstock.data.offloading.loader_calls import LoaderCalls
from penstock.data.offloading.offload import offload
from penstock.data.offloading.seeded import call_seeded, digest_of
from penstock.data.seeding import preserved
from tests.data.offloading.test_offload import Program

CONSTANTS = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none())
TENSORS = st.builds(
    torch.full,
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([0, 1, 0.0, 1.5]),
)
ARGUMENTS = st.recursive(
    st.one_of(CONSTANTS, TENSORS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)


def noisy(image: torch.Tensor) -> torch.Tensor:
    return image + torch.rand(image.shape) + random.random() + float(np.random.rand())


def states() -> tuple[Any, ...]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(as_tuples, value))
    return {k: as_tuples(v) for k, v in value.items()} if isinstance(value, dict) else value


@given(ARGUMENTS)
def test_arguments_that_travelled_have_the_same_digest(arguments: Any) -> None:
    assert digest_of(arguments) == digest_of(as_tuples(arguments))


@given(TENSORS.filter(torch.numel))
def test_other_numbers_shapes_and_types_have_another_digest(tensor: torch.Tensor) -> None:
    others = [tensor + 1, tensor.unsqueeze(0), tensor.double(), [tensor], {"x": tensor}, None]
    assert digest_of(tensor) not in map(digest_of, others)
    transposed = tensor.T.contiguous().T if tensor.dim() == 2 else tensor.clone()
    assert digest_of(tensor) == digest_of(transposed)


@given(st.integers(0, 1 << 63), st.integers(0, 1000))
def test_a_call_draws_by_its_seed_and_arguments_and_leaves_generators_alone(
    seed: int, fill: int
) -> None:
    image = torch.full((2, 3), float(fill))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = states()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = call_seeded(seed, noisy, (image,), {})
    assert states() == expected
    assert torch.equal(first, call_seeded(seed, noisy, (image.clone(),), {}))
    assert not torch.equal(first, call_seeded(seed + 1, noisy, (image,), {}))
    assert not torch.equal(first - fill, call_seeded(seed, noisy, (image + 1,), {}) - fill - 1)


def test_generators_are_put_back_after_an_error() -> None:
    def fails() -> None:
        torch.rand(())
        raise LookupError

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with pytest.raises(LookupError):
        call_seeded(1, fails, (), {})
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("partition", ["declared", "auto", "never"])
def test_what_is_drawn_does_not_depend_on_who_draws(
    partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INTERCEPT, "1")
    monkeypatch.setenv(names.PARTITION, partition)
    augment: Any = offload(noisy, random="batch")
    loader = LoaderCalls()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for seed in (30, 10, 20):
        stage = loader.begin_epoch(seed=seed)
        for step in range(60):
            batch = {"image": torch.full((4, 6), float(step))}
            with preserved():  # as another process
                sent = pickle.loads(cloudpickle.dumps(stage)) if stage else None
                made = sent.with_seed(seed)(copy.deepcopy(batch)) if sent else batch
            got = loader.deliver(made)
            own = call_seeded(seed, noisy, (batch["image"],), {})
            assert torch.equal(augment(got["image"]), own)
    moved = 0 if partition == "never" else 109
    assert (augment.offloaded.calls, augment.offloaded.moved) == (180, moved)
    assert torch.equal(torch.rand(3), expected), "the program's own draws are another matter"


def test_nothing_that_draws_is_sent_where_others_have_no_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(INTERCEPT, "1")
    augment: Any = offload(noisy, random="batch")
    program = Program(lambda batch: augment(batch["image"]))
    for epoch in (1, 2):  # the number of an epoch is then its seed
        assert program.loader.begin_epoch() is None
        for _ in range(5):
            batch = program.loader.deliver(program.batch())
            own = call_seeded(epoch, noisy, (batch["image"],), {})
            assert torch.equal(augment(batch["image"]), own)
    assert augment.offloaded.moved == 0


def test_without_penstock_run_nothing_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INTERCEPT, raising=False)
    assert offload(noisy, random="batch") is noisy


@pytest.mark.parametrize("value", ["", "sample", True, 1])
def test_what_random_may_be_is_said(value: Any) -> None:
    with pytest.raises(ValueError, match=r"random: .*; must be 'batch'"):
        offload(noisy, random=value)


SCRIPT = textwrap.dedent(
    """
    import hashlib, os, random, sys
    import torch
    import penstock.data
    from torch.utils.data import DataLoader, TensorDataset

    def augment(images):
        flips = torch.rand(len(images), 1) < 0.5
        return torch.where(flips, images.flip(-1), images) + random.random()

    def train(workers):
        torch.manual_seed(1)
        change = penstock.data.offload(augment, random="batch")
        data = TensorDataset(torch.randn(80, 6), torch.arange(80) % 3)
        loader = DataLoader(data, 4, shuffle=True, num_workers=workers)
        head, digest = torch.nn.Linear(6, 3), hashlib.sha256()
        for epoch in range(4):
            for images, labels in loader:
                hidden = torch.nn.functional.dropout(head(change(images)), 0.2)
                loss = torch.nn.functional.cross_entropy(hidden, labels)
                head.zero_grad()
                loss.backward()
                for one in head.parameters():
                    one.data.sub_(one.grad, alpha=0.1)
                digest.update(loss.detach().numpy().tobytes())
        print(digest.hexdigest(), change.offloaded.moved)

    if __name__ == "__main__":
        torch.set_num_threads(1)
        for partition, workers in zip(sys.argv[1::2], sys.argv[2::2]):
            os.environ["PENSTOCK_PARTITION"] = partition
            train(int(workers))
    """
)


def train(folder: Path, data_workers: int, *ways: tuple[str, int]) -> list[tuple[str, int]]:
    """For each way, a partition and a number of local workers: digest of the losses, calls moved.

    One program trains in one after the other.
    """
    script = folder / "train.py"
    script.write_text(SCRIPT)
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ |= {"PENSTOCK_PARTITION_SHARE": "1"}
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", str(data_workers), "--", sys.executable]
    command += [str(script), *(str(word) for way in ways for word in way)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, env=environ, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(digest, int(moved)) for digest, moved in lines]


@pytest.mark.slow
def test_losses_are_the_same_whoever_augments(tmp_path: Path) -> None:
    never, here, local = train(tmp_path, 0, ("never", 1), ("declared", 0), ("declared", 2))
    [elsewhere] = train(tmp_path, 1, ("declared", 0))
    assert never[1] == 0
    assert local[1] > 0
    assert here[0] == local[0] == elsewhere[0] == never[0]
