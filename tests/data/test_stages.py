"""Stages of one sample draw for themselves: a cut between them changes no bit."""

from __future__ import annotations

import copy
import pickle
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import data as torch_data

from penstock.data.pipeline import Pipeline, Stage
from penstock.data.stages import SeededStages, seed_stages


class Compose:
    """As that of torchvision: a list of transforms, one after the other."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Noise:
    """Draws as often as it is told, and appends what it drew last."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def __call__(self, sample: list[float]) -> list[float]:
        drawn = [random.random() + float(torch.rand(())) for _ in range(self.times)]
        return [*sample, drawn[-1]]


class Numbers(torch_data.Dataset[Any]):
    def __init__(self, transforms: list[Any], size: int = 20) -> None:
        self.size = size
        self.transform = Compose(transforms)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.transform([float(index)])


def make(dataset: Any, indices: Any = range(12), seed: int = 3) -> Any:
    return Pipeline(dataset, list).make(seed, list(indices))


def test_what_a_stage_draws_does_not_depend_on_those_before_it() -> None:
    few = make(Numbers([Noise(), Noise(), Noise()]))
    many = make(Numbers([Noise(5), Noise(), Noise()]))
    assert [sample[2:] for sample in few] == [sample[2:] for sample in many]
    assert all(left[1] != right[1] for left, right in zip(few, many, strict=True))
    assert len({number for sample in few for number in sample}) == 4 * 12


def test_samples_and_epochs_draw_for_themselves() -> None:
    whole = make(Numbers([Noise(), Noise()]))
    assert make(Numbers([Noise(), Noise()]), [7, 3]) == [whole[7], whole[3]]
    assert make(Numbers([Noise(), Noise()]), seed=4) != whole


class Views(Numbers):
    """Two views of a sample, as contrastive learning wants them, and one of another sample."""

    def __getitem__(self, index: int) -> Any:
        other = random.randrange(self.size)
        return [self.transform([float(one)]) for one in (index, index, other)]


def test_each_view_of_a_sample_draws_its_own_numbers() -> None:
    samples = make(Views([Noise(), Noise()]))
    drawn = [number for views in samples for view in views for number in view[1:]]
    assert len(set(drawn)) == 12 * 3 * 2
    assert make(Views([Noise(), Noise()]), [7, 3]) == [samples[7], samples[3]]
    one_view = make(Numbers([Noise(), Noise()]))
    assert [views[0] for views in samples] == one_view


def test_an_explicit_stage_is_seeded_likewise() -> None:
    def made(first: int) -> Any:
        stages = [Stage(Noise(first)), Stage(Noise())]
        return Pipeline([[]] * 12, list, stages).make(3, list(range(12)))

    assert [sample[1] for sample in made(1)] == [sample[1] for sample in made(4)]


def test_datasets_that_hold_others_are_looked_into() -> None:
    parts: list[Any] = [Numbers([Noise()]), Numbers([Noise()])]
    outer = torch_data.Subset(torch_data.ConcatDataset(parts), [0, 25])
    assert seed_stages(outer) == 2
    assert all(type(part.transform.transforms) is SeededStages for part in parts)
    left, right = make(outer, [0, 1])
    assert left[1] != right[1]


def test_to_everybody_else_it_is_the_list_that_it_was() -> None:
    dataset = Numbers([Noise(), Noise()])
    before = repr(dataset.transform.transforms)
    make(dataset)
    transforms = dataset.transform.transforms
    assert isinstance(transforms, list)
    assert repr(transforms) == before
    assert type(pickle.loads(pickle.dumps(dataset)).transform.transforms) is list
    assert type(copy.deepcopy(dataset).transform.transforms) is list
    random.seed(1)
    torch.manual_seed(1)
    first = dataset[0]
    random.seed(1)
    torch.manual_seed(1)
    assert Numbers([Noise(), Noise()])[0] == first  # no sample of a loader is being made
    transforms.append(Noise())
    assert len(make(dataset)[0]) == 4


def test_twice_is_once() -> None:
    dataset = Numbers([Noise(), Noise()])
    assert make(dataset) == make(dataset) == make(copy.deepcopy(dataset))


def test_what_is_composed_in_another_way_is_one_stage() -> None:
    dataset = Numbers([Noise()])
    dataset.transform = torch.nn.Sequential()  # type: ignore[assignment] # any callable will do
    assert seed_stages(dataset) == 0
    assert seed_stages([1, 2, 3]) == 0
    assert seed_stages(torch_data.TensorDataset(torch.zeros(3))) == 0


@dataclass(frozen=True)
class Frozen:
    transforms: list[Any]

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


def test_a_list_that_cannot_be_replaced_is_one_stage() -> None:
    dataset = Numbers([])
    dataset.transform = Frozen([Noise(), Noise()])  # type: ignore[assignment] # any callable will do
    assert seed_stages(dataset) == 0
    assert make(dataset) == make(copy.deepcopy(dataset))
