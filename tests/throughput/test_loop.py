from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import Placement, bounds
from penstock.throughput.limits.cut import cuts_of
from penstock.throughput.loop.closed_loop import MOST_WORKERS, Loop, simulate
from penstock.throughput.loop.prediction import at_measured, loop_of, predict
from penstock.throughput.loop.stalls import HAND_OVER, Span, Window, attribute
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.throughput.programs import a_profile, profiles, resources

EVEN = Loop(workers=4, cores=8, window=8, cpu=0.04, blocked=0.0, step=0.02)


@pytest.mark.parametrize(
    ("loop", "rate"),
    [
        (EVEN, 50.0),  # the training
        (replace(EVEN, cpu=0.4), 10.0),  # four workers
        (replace(EVEN, cpu=0.4, cores=2), 5.0),  # two cores
        (replace(EVEN, cpu=0.2, blocked=0.2, cores=4), 10.0),  # blocked time needs no core
        (replace(EVEN, workers=0, hand_over=0.1), 1 / 0.06),  # in line
        (replace(EVEN, workers=0, cores=1, others=1), 10.0),  # beside another program
        (replace(EVEN, workers=0, cores=0.5), 10.0),  # a half of a core
        (replace(EVEN, cpu=0.4, in_turn=True), 10.0),
        (
            replace(EVEN, cpu=0.4, cores=3, step_cores=1.0, step=0.1),
            6.0,
        ),  # training and workers share the cores
        (replace(EVEN, workers=0, makers=4, away_cpu=0.4), 10.0),  # only elsewhere
        (replace(EVEN, workers=0, makers=8, away_cpu=0.01, link=0.05), 20.0),  # the network
    ],
)
def test_where_batches_are_alike_the_loop_is_arithmetic(loop: Loop, rate: float) -> None:
    found = simulate(loop, batches=600)
    assert found.rate == pytest.approx(rate, rel=0.02)
    if not loop.step_cores:  # else the step itself takes longer
        assert found.stalled == pytest.approx(1 - rate * loop.step, abs=0.02)


def test_batches_that_vary_cost_more_in_turn_than_for_who_is_free() -> None:
    uneven = replace(EVEN, cpu=0.08, spread=(0.2, 0.4, 0.6, 1.0, 2.8))
    free = simulate(uneven, batches=3000)
    turn = simulate(replace(uneven, in_turn=True, window=8), batches=3000)
    assert turn.rate < free.rate < 50.0


def test_a_share_is_kept() -> None:
    loop = replace(EVEN, makers=4, away_cpu=0.04, cpu=0.16, workers=2, share=0.75, window=16)
    assert simulate(loop, batches=2000).share == pytest.approx(0.75, abs=0.01)


def test_whoever_is_free_takes_the_next() -> None:
    loop = replace(EVEN, makers=3, away_cpu=0.4, cpu=0.4, workers=1, window=16)
    assert simulate(loop, batches=2000).share == pytest.approx(0.75, abs=0.01)


def test_an_event_costs_the_same_however_many_wait() -> None:
    crowd = replace(EVEN, workers=MOST_WORKERS, cores=2000, window=2 * MOST_WORKERS, cpu=4.0)
    took = {}
    for loop in (replace(crowd, workers=64, cores=32, window=128), crowd):
        begun = time.process_time()
        for spread in ((1.0,), (0.5, 1.0, 1.5)):
            simulate(replace(loop, spread=spread), batches=64)
        took[loop.workers] = time.process_time() - begun
    each = {workers: seconds / (workers + 64) for workers, seconds in took.items()}
    assert each[MOST_WORKERS] < 8 * each[64]  # 64 times as many wait


def test_a_loop_that_would_never_end_is_refused() -> None:
    with pytest.raises(ProfileError, match="nobody makes"):
        simulate(replace(EVEN, workers=0, makers=1, away_cpu=1e400))
    with pytest.raises(ProfileError, match="together are simulated: ask for fewer"):
        simulate(replace(EVEN, workers=MOST_WORKERS + 1))
    with pytest.raises(ProfileError, match="more than 0"):
        simulate(replace(EVEN, step=0.0))


@settings(max_examples=60)
@given(profiles(), resources(), st.floats(0, 1))
def test_no_prediction_is_above_a_bound(profile: Profile, given_: Resources, share: float) -> None:
    for cut in cuts_of(profile.stages)[:2]:
        placement = Placement(cut, share)
        found = predict(profile, given_, placement)
        least = min(bounds(profile, given_, placement).values())
        assert 0 < found.rate <= least * (1 + 1e-9)
        assert 0 <= found.low <= found.rate <= found.high
        assert 0 <= found.stalled <= 1


@settings(max_examples=40)
@given(profiles(), resources())
def test_a_prediction_is_the_same_again(profile: Profile, given_: Resources) -> None:
    assert predict(profile, given_) == predict(profile, given_)


def test_what_goes_far_beyond_the_measurement_is_wide_and_says_so() -> None:
    profile = a_profile()
    near = predict(profile, Resources(cores=8, workers=8))
    far = predict(profile, Resources(cores=64, workers=64))
    assert not near.extrapolated
    assert far.extrapolated
    assert (far.rate - far.low) / far.rate > (near.rate - near.low) / near.rate


def test_a_training_of_several_threads_beside_more_workers_is_uncertain() -> None:
    busy = a_profile(step_cores=1.8, resources=Resources(cores=2, workers=0))
    found = predict(busy, Resources(cores=2, workers=2))
    assert found.extrapolated
    assert found.low <= 0.5 * found.rate
    beside = a_profile(step_cores=1.8, resources=Resources(cores=8, workers=1))
    roomy = predict(beside, Resources(cores=8, workers=2))
    assert roomy.low > 0.9 * roomy.rate


def test_with_fewer_cores_threads_that_spin_may_not_be_missed() -> None:
    busy = a_profile(step_cores=1.8, resources=Resources(cores=2, workers=0))
    found = predict(busy, Resources(cores=1, workers=0))
    calm = predict(a_profile(step_cores=1.0), Resources(cores=1, workers=0))
    assert found.extrapolated
    assert found.high >= calm.rate


def test_the_configuration_that_was_measured_is_known_best() -> None:
    profile = a_profile()
    found = at_measured(profile)
    assert found.binding == "workers"
    assert found.rate == pytest.approx(4 / 0.0167, rel=0.03)


def test_only_what_is_exposed_counts() -> None:
    spans = [
        Span(0.0, 1.0, 0, {"fetch": 0.5, "decode": 0.5}),
        Span(1.0, 2.0, 0, {"fetch": 1.0}),
        Span(0.0, 9.0, 1, {"decode": 1.0}),
    ]
    found = attribute([Window(0.5, 0.9, 0), Window(1.8, 2.5, 0), Window(3.0, 3.0, 1)], spans)
    assert found == pytest.approx({"fetch": 0.2 + 0.2, "decode": 0.2, HAND_OVER: 0.5})


moments = st.lists(st.floats(0, 100), min_size=2, max_size=40, unique=True).map(sorted)


@given(moments, moments)
def test_causes_sum_to_the_waiting(waits: list[float], works: list[float]) -> None:
    windows = [Window(a, b, 0) for a, b in zip(waits[::2], waits[1::2], strict=False)]
    spans = [
        Span(a, b, 0, {"fetch": 0.25, "collate": 0.75})
        for a, b in zip(works[::2], works[1::2], strict=False)
    ]
    total = sum(one.end - one.begin for one in windows)
    assert sum(attribute(windows, spans).values()) == pytest.approx(total, abs=1e-6)


def test_whether_the_training_waits_for_a_core_as_it_wakes_is_the_schedulers_matter() -> None:
    stages = (StageCost("decode", "transform", 0.005), StageCost("collate", "collate", 0.0))
    alone, crowded = Resources(cores=2, workers=1), Resources(cores=2, workers=2)
    seen = a_profile(hand_over_seconds=0.02, stages=stages, resources=alone)
    found = predict(seen, crowded)
    prompt = simulate(replace(loop_of(seen, crowded), hand_over=0.02)).rate * seen.batch_size
    assert 1.1 * found.rate < prompt < found.high
    there = predict(replace(seen, resources=crowded), crowded)
    assert there.rate == found.rate
    assert there.high < prompt, "what happened there was seen, and the model compared with it"


def test_where_no_core_is_free_as_the_training_wakes_a_hand_over_takes_longer() -> None:
    alone = a_profile(hand_over_seconds=0.002, resources=Resources(cores=2, workers=1))
    there = loop_of(alone, Resources(cores=2, workers=1)).hand_over
    assert there == 0.002
    crowded = loop_of(alone, Resources(cores=1, workers=1)).hand_over
    assert 0.002 < crowded <= 0.008
    found = predict(alone, Resources(cores=1, workers=1))
    assert found.extrapolated
    assert found.low <= 0.8 * found.rate


@pytest.mark.parametrize(("workers", "cores"), [(2000, 1000), (4096, 4000), (4096, 1)])
def test_thousands_of_workers_are_no_overflow(workers: int, cores: int) -> None:
    profile = a_profile(hand_over_seconds=0.001)
    found = predict(profile, replace(profile.resources, workers=workers, cores=cores))
    assert 0 < found.low <= found.rate <= found.high


def test_from_workers_to_none_and_back_a_prediction_is_wide() -> None:
    for before, after in ((0, 2), (2, 0)):
        profile = a_profile(resources=Resources(cores=8, workers=before))
        found = predict(profile, Resources(cores=8, workers=after))
        assert found.extrapolated
        assert found.low <= 0.86 * found.rate


def test_other_programs_go_where_the_program_is_not() -> None:
    hog = a_profile(others=1.0, resources=Resources(cores=2, workers=2))
    assert loop_of(hog, Resources(cores=2, workers=2)).others == 1.0
    assert loop_of(hog, Resources(cores=1, workers=1)).others == 0.0
    assert loop_of(hog, Resources(cores=1.5, workers=1)).others == 0.5
    one, two = (predict(hog, Resources(cores=cores, workers=2)).rate for cores in (1, 2))
    assert one <= two
