"""Samples that are made in two places: the same bits as in one, for every cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from penstock.data.cuts.head_and_tail import Begun, HeadPipeline, Tail, head_of, opened
from penstock.data.cuts.points import points_of
from penstock.data.errors import NotCutError
from penstock.data.pipeline import Pipeline, Stage
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.layout import Layout
from tests.data.cuts.pictures import (
    TRANSFORMS,
    Decoded,
    Pictures,
    collate,
    crop,
    decode,
    to_array,
)
from tests.data.planes import freeze
from tests.data.test_stages import Compose

SEED = 5
INDICES = [3, 1, 4, 1, 5, 9, 2, 6, 8]


def pipelines() -> list[Callable[[], Pipeline]]:
    return [
        lambda: Pipeline(Pictures(), collate),
        lambda: Pipeline(Decoded(), collate, [Stage(one) for one in TRANSFORMS]),
    ]


def travelled(batch: Any) -> Any:
    packed = pack(batch)
    body = bytearray(b"".join(bytes(memoryview(part)) for part in packed.parts))
    root = np.frombuffer(body, np.uint8)
    return Layout(packed.structure).batch(root, packed.size)


@pytest.mark.parametrize("make", pipelines(), ids=["transforms of a dataset", "stages"])
def test_a_batch_is_the_same_for_each_cut(make: Callable[[], Pipeline]) -> None:
    whole = make().make(SEED, INDICES)
    points = points_of(make())
    assert [point.name for point in points] == [
        "crop",
        "to_array",
        "to_tensor",
        "Jitter",
        "collate",
    ]
    for point in points:
        head, tail = head_of(make(), point), Tail(make(), point)
        for _ in range(2):  # the first time nothing is known of what is drawn from
            random.seed(0)
            torch.manual_seed(0)
            begun, why = opened(travelled(head.make(SEED, INDICES)))
            assert (type(begun), why) == (Begun, ""), point
            batch, made = tail.finish(SEED, INDICES, begun)
            assert not made or freeze(batch) == freeze(whole), point
        for _ in range(3):
            begun, _ = opened(travelled(head.make(SEED, INDICES)))
            batch, made = tail.finish(SEED, INDICES, begun)
        assert made, "what is drawn from is known in the end"
        assert freeze(batch) == freeze(whole), point


class Looks(Pictures):
    def __getitem__(self, index: int) -> Any:
        picture = self.transform(decode(index))
        return picture, len(picture)


class Catches(Pictures):
    def __getitem__(self, index: int) -> Any:
        picture = self.transform(decode(index))
        try:
            return picture, tuple(picture.shape)
        except Exception:  # noqa: BLE001 - as careless programs do
            return picture, ()


class Views(Pictures):
    def __getitem__(self, index: int) -> Any:
        return [self.transform(decode(index)) for _ in range(2)]


class Changes(Pictures):
    def __getitem__(self, index: int) -> Any:
        return [self.transform(decode(index)) * 2]


class Hides(Pictures):
    def __getitem__(self, index: int) -> Any:
        return (lambda picture: {"set": {1, 2}, "picture": picture})(self.transform(decode(index)))


class TwoLists(Pictures):
    def __init__(self) -> None:
        super().__init__([crop])
        self.target_transform = Compose([abs])


class AtOnce(Pictures):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Looks, "looks at what its transforms return"),
        (Catches, "looks at what its transforms return"),
        (Views, "2 times through its transforms"),
        (Changes, "its transforms return"),
        (Hides, "cannot be sent"),
    ],
)
def test_what_cannot_be_made_in_two_places_is_made_whole(
    dataset: type[Pictures], said: str
) -> None:
    point = points_of(Pipeline(dataset(), list))[2]
    head = head_of(Pipeline(dataset(), list), point)
    whole = Pipeline(dataset(), list).make(SEED, INDICES)
    for _ in range(2):
        batch, why = opened(head.make(SEED, INDICES))
        assert said in why
        assert repr(batch) == repr(whole)


class OwnGenerator:
    def __init__(self) -> None:
        self.inner = [{"source": np.random.default_rng(1)}]

    def __call__(self, picture: Any) -> Any:
        return picture


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (Pipeline(TwoLists(), list), "2 lists of transforms"),
        (Pipeline(Decoded(), list), "0 lists of transforms"),
        (Pipeline(AtOnce([crop]), list), "all samples of a batch at once"),
        (Pipeline(Pictures([crop]), list, batched=False), "one by one"),
        (Pipeline(Decoded(), list, [Stage(len, batched=True)]), "whole batches"),
    ],
)
def test_a_pipeline_that_cannot_be_cut_says_why(pipeline: Pipeline, said: str) -> None:
    with pytest.raises(NotCutError, match=said):
        points_of(pipeline)


def test_what_draws_from_a_generator_of_its_own_stays_where_it_is() -> None:
    points = points_of(Pipeline(Pictures([crop, OwnGenerator(), to_array]), list))
    assert [point.name for point in points] == ["to_array", "collate"]


def test_a_batch_that_differs_is_found_and_later_ones_are_not_made_twice() -> None:
    pipeline = Pipeline(Pictures(), collate)
    tail, calls = Tail(pipeline, points_of(pipeline)[3]), []

    def make() -> Any:
        calls.append(1)
        return pipeline.make(SEED, INDICES)

    whole = pipeline.make(SEED, INDICES)
    assert tail.differs(whole, make) == ""
    assert "is another" in tail.differs(pipeline.make(SEED + 1, INDICES), make)
    assert tail.differs(None, make) == ""
    assert len(calls) == 2


def test_a_beginning_is_a_pipeline_that_can_be_sent() -> None:
    head = head_of(Pipeline(Pictures([crop]), list), points_of(Pipeline(Pictures([crop]), list))[0])
    assert isinstance(head, HeadPipeline)
    assert not head.weights
    assert head == head_of(Pipeline(head.dataset, list), head.point)
