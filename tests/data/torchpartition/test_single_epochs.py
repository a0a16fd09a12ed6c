"""Loaders that are made anew for each epoch, and those of which nobody makes batches elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

from penstock.crds import environment as names
from penstock.data.hooked import NO_DATA_WORKERS
from penstock.data.torch_loading import loader_work
from penstock.data.torch_loading.loader_work import work_of_loader
from penstock.data.torch_loading.single_epochs import MAX_KINDS, SingleEpochs, kind_of
from tests.data.torchpartition.training import Training, everything_is_worth_it, program


def test_after_two_loaders_of_one_epoch_each_no_other_like_them_is_looked_at() -> None:
    seen = SingleEpochs()
    assert [seen.begin("evaluation") for _ in range(4)] == [True, True, False, False]
    assert seen.begin("training")
    seen.begin_again("evaluation")
    assert seen.begin("evaluation"), "one of them was iterated again"


def test_more_kinds_than_are_counted_are_all_looked_at() -> None:
    seen = SingleEpochs()
    assert all(seen.begin(number) for number in range(MAX_KINDS))
    assert all(seen.begin("another") for _ in range(5))


def loader(rows: int = 8, **options: Any) -> DataLoader[Any]:
    return DataLoader(list(range(rows)), **options)  # type: ignore[arg-type]  # a list is one


def test_loaders_that_a_program_makes_for_the_same_thing_are_of_one_kind() -> None:
    assert kind_of(loader(batch_size=2)) == kind_of(loader(batch_size=2))
    kinds = [
        loader(batch_size=2),
        loader(batch_size=4),
        loader(16, batch_size=2),
        loader(batch_size=2, shuffle=True),
        loader(batch_size=2, num_workers=1),
        loader(batch_size=2, collate_fn=list),
        loader(batch_size=None),
    ]
    assert len({kind_of(one) for one in kinds}) == len(kinds)


@pytest.fixture(autouse=True)
def _auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.PARTITION, "auto")
    monkeypatch.setattr(loader_work, "_single_epochs", SingleEpochs())
    monkeypatch.setattr(loader_work, "_complaints", loader_work.Complaints())


def test_a_loader_like_others_of_one_epoch_is_looked_at_once_it_has_a_second_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = [work_of_loader(loader()) for _ in range(3)]
    assert [one is not None for one in made] == [True, True, False]
    assert "is not looked at any more: the program makes others like it" in caplog.text
    third = loader()
    assert work_of_loader(third) is None
    assert work_of_loader(third, again=True) is not None
    assert work_of_loader(loader()) is not None


def test_of_loaders_of_one_epoch_each_the_first_alone_says_what_is_to_move() -> None:
    made = [work_of_loader(loader()) for _ in range(2)]
    assert [vars(one)["announces"] for one in made] == [True, False]
    first = loader(batch_size=2)
    work = work_of_loader(first)
    work_of_loader(first, before=work, again=True)
    assert vars(work_of_loader(loader(batch_size=2)))["announces"], "it will have more of them"
    third = loader()
    assert work_of_loader(third) is None
    assert vars(work_of_loader(third, again=True))["announces"]


@pytest.mark.parametrize("announces", [True, False])
def test_what_moves_is_said_before_it_does_where_that_may_be(
    announces: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with everything_is_worth_it():
        run = Training(program(lambda batch, own, head: head(own(batch[0].float())).sum()))
        run.loader.announces = announces
        run.run(epochs=2, steps=20)
    said = [one.partition("the loader: ")[2].partition(": ")[0] for one in caplog.messages]
    assert said == [*(["Verifying from its next epoch on"] if announces else []), "On"]


def test_a_loader_that_is_iterated_again_has_others_like_it_looked_at() -> None:
    first = loader()
    work = work_of_loader(first)
    assert work_of_loader(first, before=work, again=True) is work
    assert all(work_of_loader(loader()) is not None for _ in range(3))


def test_where_only_the_program_makes_batches_its_steps_are_not_looked_at(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_DATA_WORKERS, "1")
    assert work_of_loader(loader()) is None
    assert work_of_loader(loader(batch_size=2)) is None
    assert caplog.text.count("nothing moves: nobody but the program itself makes its batches") == 1
    assert work_of_loader(loader(num_workers=1)) is not None
    monkeypatch.setenv(NO_DATA_WORKERS, "")
    assert work_of_loader(loader()) is not None, "data workers may come"
