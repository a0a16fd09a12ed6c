"""What new memory costs workers, and what of it is left where a training makes its own batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.throughput.limits.making import stages_at, step_at
from penstock.throughput.observations.analysis import Seen, profile_of
from penstock.throughput.observations.new_memory import (
    NewMemory,
    is_kept,
    pages_given_back,
    typical,
)
from penstock.throughput.observations.records import Delivery, Loader, Made
from penstock.throughput.observations.session import Phase
from penstock.throughput.profiles.profile import Profile

LOADER = Loader(1, "Arrays", workers=1, prefetch=2, batch_size=10, samples=1000)
MEMORY = NewMemory(shared_byte=1e-6, shared_byte_freed=2e-7, page=1e-5)


def of_a_worker(*, plain: int, kept: int, batches: int = 6) -> Seen:
    """Batches of 10 samples and 10,000 bytes: 0.1 s, of which 0.03 s to collate them.

    Args:
        plain, kept: pages that a batch fills, as it is and where its memory is kept.
        batches: of the latter.
    """
    made, deliveries = [], []
    for index in range(30 + batches):
        retained = max(0, index - 29)
        faults = kept if retained > 1 else 4 * plain if retained else plain
        begin = 0.2 * index
        made.append(
            Made(
                0,
                begin,
                begin + 0.1,
                0.1,
                samples=10,
                collate_cpu=0.03,
                collate_seconds=0.03,
                faults=faults,
                retained=retained,
            )
        )
        phase = Phase.RETAINED if retained else Phase.NORMAL
        first = index == 0
        deliveries.append(
            Delivery(0, begin, begin + 0.1, 0.0, 0.0, phase, first=first, nbytes=10_000)
        )
    return Seen("train.py", LOADER, 2.0, deliveries, made, memory=MEMORY)


def test_pages_are_those_that_a_worker_would_not_fill_if_it_kept_them() -> None:
    assert pages_given_back(of_a_worker(plain=500, kept=20).made) == pytest.approx(48)
    assert pages_given_back(of_a_worker(plain=500, kept=500).made) == 0.0
    assert pages_given_back(of_a_worker(plain=20, kept=500).made) == 0.0, "a matter of chance"


def test_what_grows_the_memory_that_is_kept_is_not_what_it_costs_to_keep_it() -> None:
    made = of_a_worker(plain=500, kept=0, batches=5).made
    assert [is_kept(one) for one in made[29:]] == [False, False, True, True, True, True]
    assert pages_given_back(made) == pytest.approx(50)


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_of_few_batches_nothing_is_said(batches: int) -> None:
    assert pages_given_back(of_a_worker(plain=500, kept=0, batches=batches).made) == 0.0


def test_a_training_that_makes_its_own_batches_pays_for_no_new_memory() -> None:
    profile = profile_of(of_a_worker(plain=500, kept=0))
    here = replace(profile.resources, workers=0)
    cost = sum(stage.cpu_seconds for stage in stages_at(profile, here))
    # 10 ms a sample, less 1 ms to fill its 1,000 shared bytes and 50 pages of 10 us
    assert cost == pytest.approx(0.010 - 0.001 - 0.0005)
    assert step_at(profile, here) == pytest.approx(0.1 - 0.002)
    assert profile.cpu_seconds == pytest.approx(0.010), "beside the training it is as it was"


def test_batches_with_memory_that_was_kept_are_none_of_the_programs_own() -> None:
    seen = of_a_worker(plain=500, kept=0)
    dear = [replace(one, cpu=0.09, samples=1) if one.retained else one for one in seen.made]
    assert profile_of(replace(seen, made=dear)).stages == profile_of(seen).stages


def test_what_was_disturbed_while_somebody_looked_does_not_count() -> None:
    found = [NewMemory(1.0, 2.0, 3.0), NewMemory(1.1, 9.0, 3.1), NewMemory(9.0, 2.1, 9.0)]
    assert typical(found) == NewMemory(1.1, 2.1, 3.1)


def test_no_more_is_taken_off_than_there_is() -> None:
    seen = of_a_worker(plain=500, kept=0)
    much = profile_of(replace(seen, memory=NewMemory(1.0, 1.0, 1.0)))
    assert much.sharing_cpu_seconds == pytest.approx(0.010)
    assert much.release_seconds == pytest.approx(0.05)


def test_what_was_made_in_line_says_what_shared_memory_would_cost() -> None:
    seen = of_a_worker(plain=500, kept=0)
    made = [one for one in seen.made if not one.retained]
    profile = profile_of(replace(seen, loader=replace(LOADER, workers=0), made=made))
    assert profile.sharing_cpu_seconds == pytest.approx(0.001)
    assert profile.release_seconds == pytest.approx(0.002)


def with_faults(seen: Seen, *counts: int) -> Seen:
    """Steps of 0.1 s that fill so many pages of 10 us, in turn."""
    found = [
        replace(one, faults=counts[index % len(counts)])
        for index, one in enumerate(seen.deliveries)
    ]
    return replace(seen, deliveries=found)


def in_line(seen: Seen) -> Seen:
    made = [one for one in seen.made if not one.retained]
    return replace(seen, loader=replace(LOADER, workers=0), made=made)


def said_of_memory(profile: Profile) -> str:
    return next((note for note in profile.notes if "MALLOC_TRIM_THRESHOLD_" in note), "")


def test_a_step_that_fills_its_memory_again_may_be_faster_where_it_makes_no_batches() -> None:
    calm = profile_of(in_line(of_a_worker(plain=0, kept=0)))
    busy = profile_of(with_faults(in_line(of_a_worker(plain=0, kept=0)), 3000))
    assert busy.step.value == pytest.approx(calm.step.value), "what was measured stays"
    assert busy.step.low == pytest.approx(0.1 - 0.03)
    assert said_of_memory(busy).startswith("30%")
    assert not said_of_memory(calm)


def test_beside_workers_a_step_fills_what_it_fills() -> None:
    seen = with_faults(of_a_worker(plain=0, kept=0), 3000)
    assert profile_of(seen).step == profile_of(of_a_worker(plain=0, kept=0)).step
    assert said_of_memory(profile_of(seen))


def test_no_step_is_all_filling_and_one_that_does_it_now_and_then_is_not_called_so() -> None:
    seen = in_line(of_a_worker(plain=0, kept=0))
    assert profile_of(with_faults(seen, 10**9)).step.low == pytest.approx(0.05)
    assert not said_of_memory(profile_of(with_faults(seen, 0, 0, 3000)))
