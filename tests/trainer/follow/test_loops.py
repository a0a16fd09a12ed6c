"""Loops of unmodified programs, over worlds of other sizes: nothing lost, nothing repeated."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from penstock.trainer.follow.follower import KEY
from tests.trainer.follow.worlds import Loop, Numbers, Rank, live

SAMPLES = 96


def plain(rank: Rank, number: int, world: int, **options: Any) -> Iterator[list[int]]:
    """One epoch, the third, of DDP as people write it."""
    numbers = Numbers(SAMPLES)
    sampler: DistributedSampler[int] = DistributedSampler(numbers, world, number)
    loader = rank.loader(numbers, batch_size=4, sampler=sampler, **options)
    sampler.set_epoch(3)
    for batch in loader:
        rank.trains()
        yield batch.tolist()


def with_workers(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
    """Batches are made ahead."""
    return plain(rank, number, world, num_workers=1, prefetch_factor=3)


def with_random_sampler(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
    """An order that is drawn from the process's own generator."""
    torch.manual_seed(number)
    if world > 1:
        yield from plain(rank, number, world)
    else:
        for batch in rank.loader(Numbers(SAMPLES), batch_size=4, shuffle=True):
            rank.trains()
            yield batch.tolist()


def counting(before: list[int]) -> Loop:
    """A loop that passes over the batches which it had before, by itself."""

    def loop(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
        numbers = Numbers(SAMPLES)
        sampler: DistributedSampler[int] = DistributedSampler(numbers, world, number)
        loader = rank.loader(numbers, batch_size=4, sampler=sampler)
        for at, batch in enumerate(loader):
            if at < before[-1]:
                continue
            rank.trains()
            yield batch.tolist()

    return loop


def run(loop: Loop, lives: list[tuple[int, int | None]]) -> list[int]:
    """All samples that the surviving model has seen, in order."""
    seen: list[int] = []
    checkpoint = None
    for world, steps in lives:
        taken, checkpoint = live(loop, world, steps, checkpoint)
        seen += [sample for step in taken for sample in step]
    return seen


LIVES = [(1, 3), (2, 2), (3, 2), (1, None)]  # 12, 16, 24 and 44 samples


@pytest.mark.parametrize("loop", [plain, with_workers, with_random_sampler])
def test_every_sample_once_over_changing_worlds(loop: Loop) -> None:
    if loop is with_random_sampler:  # its order is the first world's, until the end
        torch.manual_seed(0)
        order = [each for batch in DataLoader(Numbers(SAMPLES), 4, shuffle=True) for each in batch]
        assert sorted(run(loop, LIVES)) == list(range(SAMPLES))
        assert [int(each) for each in order[:12]] == run(loop, LIVES)[:12]
        return
    assert Counter(run(loop, LIVES)) == Counter(range(SAMPLES))


def test_without_a_follower_the_same_loop_loses_and_repeats() -> None:
    class Unfollowed(Rank):
        def __init__(self, _: bytes | None) -> None:
            super().__init__(None)

    seen: list[int] = []
    for world, steps in LIVES:
        for number in range(world):
            for at, batch in enumerate(plain(Unfollowed(None), number, world)):
                seen += batch
                if at + 1 == steps:
                    break
    assert max(Counter(seen).values()) > 1


def test_a_program_that_passes_over_batches_by_itself_has_none_passed_over_twice() -> None:
    for lives in ([(1, 3), (2, 4), (3, 3), (1, None)], [(2, 9), (1, None)], [(1, 20), (3, None)]):
        before, seen, checkpoint = [0], [], None
        loop = counting(before)
        for world, steps in lives:
            taken, checkpoint = live(loop, world, steps, checkpoint)
            before.append(before[-1] + (steps or 0))
            seen += [sample for step in taken for sample in step]
        assert Counter(seen) >= Counter(range(SAMPLES))
        assert len(seen) <= SAMPLES + 3, "more than evens out the last step"


def test_what_is_left_when_nothing_is_left() -> None:
    taken, checkpoint = live(plain, 2, 12, None)
    assert sorted(each for step in taken for each in step) == list(range(SAMPLES))
    assert live(plain, 3, None, checkpoint)[0] == []


def test_undisturbed_nothing_differs() -> None:
    for options in ({"shuffle": True}, {"shuffle": False}, {"shuffle": True, "num_workers": 1}):
        torch.manual_seed(5)
        usual = [batch.tolist() for batch in DataLoader(Numbers(30), 4, **options)]
        after = torch.rand(1)
        torch.manual_seed(5)
        followed = [
            batch.tolist() for batch in Rank(None).loader(Numbers(30), batch_size=4, **options)
        ]
        assert followed == usual
        assert torch.equal(torch.rand(1), after)


def test_a_checkpoint_is_as_without_where_no_epoch_is_under_way() -> None:
    rank = Rank(None)
    assert KEY not in rank.optimizer.state_dict()
    loader = rank.loader(Numbers(8), batch_size=4)
    list(loader)
    assert KEY not in rank.optimizer.state_dict()
    next(iter(loader))
    state = rank.optimizer.state_dict()
    assert KEY in state
    unfollowed = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    unfollowed.load_state_dict(state)
    assert unfollowed.param_groups[0]["lr"] == 0.1
    assert KEY not in unfollowed.state_dict()


def test_an_epoch_that_is_not_asked_for_is_named(caplog: pytest.LogCaptureFixture) -> None:
    _, checkpoint = live(plain, 1, 3, None)
    rank = Rank(checkpoint)
    numbers = Numbers(SAMPLES)
    sampler: DistributedSampler[int] = DistributedSampler(numbers, 1, 0)
    sampler.set_epoch(4)
    assert len(list(rank.loader(numbers, batch_size=4, sampler=sampler))) == SAMPLES // 4
    assert "with epoch 4: the rest of epoch 3 is left out" in caplog.text


def test_a_damaged_entry_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    rank = Rank(None)
    state = {**rank.optimizer.state_dict(), KEY: {"version": 1, "loaders": [{"todo": [[5, 2]]}]}}
    rank.optimizer.load_state_dict(state)
    assert "is not understood" in caplog.text
    assert len(list(rank.loader(Numbers(8), batch_size=4))) == 2


def test_a_loader_that_cannot_be_followed_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(6))

    rank = Rank(None)
    for _ in range(2):
        loader = rank.loader(Stream(), batch_size=4)
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]
    assert caplog.text.count("is not followed, since its dataset is iterable") == 1


def test_a_checkpoint_can_be_written_before_the_epoch_goes_on() -> None:
    _, checkpoint = live(plain, 2, 3, None)
    again = Rank(checkpoint).save()
    load = torch.load(io.BytesIO(again), weights_only=True)
    assert load[KEY]["loaders"][0]["todo"] == [[24, SAMPLES]]


def test_a_program_that_turns_back_in_memory_goes_on_with_whole_epochs() -> None:
    rank = Rank(None)
    loader = rank.loader(Numbers(16), batch_size=4, shuffle=True)
    for at, _ in enumerate(loader):
        rank.trains()
        if at == 1:
            before = rank.optimizer.state_dict()
    rank.optimizer.load_state_dict(before)
    assert sorted(each for batch in loader for each in batch.tolist()) == list(range(16))


def test_an_evaluation_takes_nothing_of_what_is_left() -> None:
    _, checkpoint = live(plain, 1, 3, None)
    rank = Rank(checkpoint)
    with torch.no_grad():
        assert len(list(plain(rank, 0, 1))) == SAMPLES // 4
    assert len(list(plain(rank, 0, 1))) == SAMPLES // 4 - 3
