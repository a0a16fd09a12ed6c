"""What of two loaders that look alike is not the same."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.data.pipeline import Pipeline
from penstock.data.sharing.likeness import LOOKED_AT_BYTES, unlike
from penstock.data.sharing.pipeline import SharedPipeline


class Pictures(list[int]):
    """A dataset that holds more than samples."""

    def __init__(self, size: int = 40, **more: Any) -> None:
        super().__init__(range(size))
        vars(self).update(more)


class Sounds(Pictures):
    """Another."""


def shared(
    dataset: Any, *, tile: int = 8, common: bool = False, prepare: Any = None
) -> SharedPipeline:
    pipeline = Pipeline(dataset, list, prepare=prepare)
    return SharedPipeline(pipeline, len(dataset), tile, b"key", common)


def seed_worker(number: int, seed: int) -> None:
    """As programs have one."""


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (Pictures(args={"lr": 0.1, "dir": "/d"}), {"args": {"lr": 0.2}}, "dataset.args['lr'],"),
        (Pictures(args=SimpleNamespace(lr=0.1)), {"args": SimpleNamespace(lr=0.2)}, "args.lr,"),
        (Pictures(ops=[1, (2, 3)]), {"ops": [1, (2, 4)]}, "dataset.ops[1][1],"),
        (Pictures(lr=0.1), {}, "dataset.lr,"),
        (Pictures(crop=np.arange(3)), {"crop": np.arange(1, 4)}, "dataset.crop,"),
    ],
)
def test_the_innermost_part_is_named(one: Pictures, other: dict[str, Any], said: str) -> None:
    told = unlike(shared(one), shared(Pictures(**other)))
    assert told is not None
    assert said in told
    assert "has a Pictures of 40 samples too" in told


def test_batch_sizes_and_functions_are_named() -> None:
    told = unlike(shared(Pictures(), tile=2), shared(Pictures()))
    assert told is not None
    assert "another batch size: those that 8 divides share" in told
    one, other = (shared(Pictures(), prepare=partial(seed_worker, seed=n)) for n in range(2))
    told = unlike(one, other)
    assert told is not None
    assert "another worker_init_fn," in told


def test_what_is_too_large_to_look_at_is_not_named() -> None:
    large = np.zeros(LOOKED_AT_BYTES + 1, np.uint8)
    told = unlike(shared(Pictures(held=large)), shared(Pictures(held=large + 1)))
    assert told is not None
    assert "another content" in told


def test_others_are_not_told_of() -> None:
    assert unlike(shared(Pictures()), shared(Sounds())) is None
    assert unlike(shared(Pictures()), shared(Pictures(48))) is None
    assert unlike(shared(Pictures()), shared(Pictures(), common=True)) is None
