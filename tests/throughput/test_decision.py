from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.throughput.decision.cost import Prices, cost_of
from penstock.throughput.decision.fastflow import (
    Metrics,
    best_cut,
    code_ratio,
    paper_ratio,
    stalled,
)
from penstock.throughput.decision.offload import LEAST_GAIN, best_share, decide
from penstock.throughput.decision.sizing import Seen, correct, fastflow_number
from penstock.throughput.decision.what_if import helps, is_held_up, knee, what_if
from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import Placement, bounds, remote_cores_rate
from penstock.throughput.limits.cut import carried_out, cuts_of, split
from penstock.throughput.profiles.profile import Profile, Storage
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.throughput.programs import a_profile, profiles, resources

SLOW = Resources(cores=2, workers=4, data_workers=8, data_worker_cores=1.0)


@settings(max_examples=60)
@given(profiles(), resources())
def test_a_decision_never_promises_less_than_to_move_nothing(
    profile: Profile, limits: Resources
) -> None:
    found = decide(profile, limits)
    alone = min(bounds(profile, replace(limits, data_workers=0)).values())
    assert found.without == pytest.approx(alone)
    assert found.chosen.rate >= alone * (1 - 1e-9)
    assert found.moves == (found.chosen.placement.share > 0)
    if found.moves:
        assert found.gain >= LEAST_GAIN * 0.9
        assert 1 <= found.chosen.data_workers <= limits.data_workers
    assert found.why


@settings(max_examples=30)
@given(profiles(), resources(), st.floats(0, 1))
def test_no_share_is_better_than_the_best(
    profile: Profile, limits: Resources, share: float
) -> None:
    assume(limits.data_workers)
    assume(limits.workers or share > 0)  # without local workers it is all or nothing
    for cut in cuts_of(profile.stages)[:2]:
        found = min(bounds(profile, limits, Placement(cut, share)).values())
        best = Placement(cut, best_share(profile, limits, cut))
        assert found <= min(bounds(profile, limits, best).values()) * (1 + 1e-3)


@settings(max_examples=30)
@given(profiles(), resources())
def test_only_what_is_carried_out_is_moved_where_nobody_offers_another_cut(
    profile: Profile, limits: Resources
) -> None:
    found, free = decide(profile, limits), decide(profile, limits, cuts=cuts_of(profile.stages))
    assert not found.moves or found.chosen.placement.cut in carried_out(profile.stages)
    assert free.chosen.rate >= found.chosen.rate * 0.99


def test_what_is_carried_out_ends_with_a_batch_or_in_front_of_what_makes_one() -> None:
    opaque = replace(a_profile().stages[1], name="late", bytes_out=600e3)
    names = [cut.name for cut in carried_out((*a_profile().stages, opaque))]
    assert names == [
        "whole batch",
        "from collate on local",
        "from ToTensor on local",
        "from decode on local",
    ]
    assert [cut.name for cut in carried_out(a_profile().stages[:3])] == ["whole batch"]
    unknown = [replace(stage, bytes_out=0.0) for stage in a_profile().stages[:3]]
    assert len(carried_out((*unknown, a_profile().stages[3]))) == 1


def test_where_bytes_bind_the_program_makes_what_is_four_times_as_large() -> None:
    """50 MB/s bring 83 samples/s as floats, and 333 as bytes; the program makes 1 ms of each."""
    stages = [*a_profile().stages]
    stages[2] = replace(stages[2], cpu_seconds=0.001)
    profile = a_profile(stages=tuple(stages), resources=replace(SLOW, workers=0, data_workers=0))
    thin = replace(SLOW, workers=0, network_bytes_per_second=50e6)
    found = decide(profile, thin)
    assert found.chosen.placement.cut.name == "from ToTensor on local"
    assert found.chosen.rate == pytest.approx(1 / (0.1 / 32 + 0.0012))
    whole = decide(profile, thin, cuts=carried_out(stages)[:1])
    assert whole.chosen.rate == pytest.approx(50e6 / 600e3)
    wide = decide(profile, replace(thin, network_bytes_per_second=1e9))
    assert wide.chosen.placement.cut.name == "whole batch"


def test_no_more_is_moved_than_brings_something() -> None:
    found = decide(a_profile(), SLOW)
    assert found.moves
    assert found.binding == "accelerator"
    assert found.chosen.rate == pytest.approx(320.0, rel=0.01)
    assert found.chosen.data_workers < 8
    assert found.runner_up is not None
    assert "bound by cores at 127.4 samples/s" in found.why


def test_what_waits_for_its_storage_is_not_moved() -> None:
    storage = Storage(
        100e3, total_bytes=1e12, hits=0.0, cold_seconds=0.001, cold_bytes_per_second=12e6
    )
    found = decide(a_profile(storage=storage), SLOW)
    assert not found.moves
    assert found.binding == "storage"
    assert "bound by storage" in found.why


def test_a_thin_network_moves_nothing() -> None:
    found = decide(a_profile(), replace(SLOW, network_bytes_per_second=1e5))
    assert not found.moves


def test_below_ten_per_cent_nothing_moves() -> None:
    nearly = a_profile(step=replace(a_profile().step, value=0.24, low=0.23, high=0.25))
    found = decide(nearly, SLOW)
    assert not found.moves
    assert "not worth it" in found.why
    assert decide(nearly, SLOW, least_gain=0.01).moves


def test_a_correction_makes_the_model_say_what_was_seen() -> None:
    profile, placement = a_profile(), Placement(cuts_of(a_profile().stages)[0], 0.5)
    truth = replace(
        profile,
        stages=tuple(replace(one, cpu_seconds=one.cpu_seconds * 1.3) for one in profile.stages),
    )
    there = replace(SLOW, data_workers=2, data_worker_speed=0.5)
    found = bounds(truth, there, placement)
    rate = min(found.values())
    of_all = remote_cores_rate(truth, there, split(truth.stages, placement.cut)) / placement.share
    seen = Seen(rate, 2 * rate / found["cores"], 2 * rate / of_all, True)
    fixed, limits = correct(profile, replace(there, data_worker_speed=1.0), placement, seen)
    again = bounds(fixed, limits, placement)
    assert min(again.values()) == pytest.approx(rate, rel=0.01)
    assert again["cores"] == pytest.approx(found["cores"], rel=0.01)
    assert again["data workers"] == pytest.approx(found["data workers"], rel=0.01)


def test_nothing_is_learnt_of_a_window_without_a_batch() -> None:
    placement = Placement(cuts_of(a_profile().stages)[0], 0.5)
    with pytest.raises(ProfileError, match="rate: 0 samples"):
        correct(a_profile(), SLOW, placement, Seen(0, 1.0, 1.0, True))


def test_a_network_that_nobody_knew_of_is_found() -> None:
    profile, placement = a_profile(), Placement(cuts_of(a_profile().stages)[0], 1.0)
    there = replace(SLOW, data_workers=8, network_bytes_per_second=30e6)
    found = bounds(profile, there, placement)
    rate = min(found.values())
    assert rate == found["network"]
    seen = Seen(rate, 2 * rate / found["cores"], 8 * rate / found["data workers"], True)
    _, limits = correct(profile, replace(there, network_bytes_per_second=1e9), placement, seen)
    assert limits.network_bytes_per_second == pytest.approx(30e6)


def test_fastflows_rule_gives_its_own_examples() -> None:
    enough = Metrics(accelerator=100, local=50, remote=80, overhead=0.2)
    assert stalled(enough)
    assert not stalled(replace(enough, local=95.0))
    assert paper_ratio(enough) == pytest.approx(0.8)  # Upper / Gthp
    few = replace(enough, remote=30.0)
    assert paper_ratio(few) == pytest.approx(30 / 80)  # Rthp / (Lthp + Rthp)
    assert code_ratio(few) == pytest.approx(30 / 80)
    assert code_ratio(enough) == pytest.approx(0.8)  # the larger of Rthp and Lower
    assert fastflow_number(100, 50, 20, 0.2) == 3
    assert fastflow_number(100, 120, 20, 0.2) == 0
    assert best_cut(50, {"a": 30, "b": 40}, {"a": 0.1, "b": 0.5}) == "a"


def test_the_papers_dollars() -> None:
    prices = Prices(client=4.5, worker=0.08)
    alone = cost_of(112_320, 1.75, prices, clients=1, workers=0)
    served = cost_of(112_320, 4.5, prices, clients=1, workers=17)
    assert alone.total == pytest.approx(80.2, abs=0.06)
    assert served.total == pytest.approx(40.6, abs=0.06)
    with pytest.raises(ProfileError, match="more than 0"):
        cost_of(1, 0, prices, clients=1, workers=0)
    with pytest.raises(ProfileError, match="less than 0"):
        Prices(client=-1, worker=0)


def test_data_workers_help_where_others_hold_up_the_loaders_workers() -> None:
    """No bound has the others on the cores of the training: by the bounds it is what it can be."""
    quick = (StageCost("dataset", "opaque", 0.0005, 0.0, bytes_out=4000),)
    crowded = a_profile(others=14.0, stages=quick, resources=Resources(cores=2, workers=1))
    assert is_held_up(crowded, crowded.resources)
    assert not is_held_up(replace(crowded, others=0.0), crowded.resources)
    asked = [replace(crowded.resources, data_workers=number) for number in (0, 1, 2, 8)]
    alone, *helped = (point.prediction.rate for point in what_if(crowded, asked))
    assert alone < 0.9 * min(bounds(crowded, crowded.resources).values())
    assert helped[0] > 1.1 * alone
    assert helped == sorted(helped), "those of no use have nothing to do"


def test_a_sweep_has_a_knee() -> None:
    profile = a_profile()
    points = what_if(profile, [Resources(cores=cores, workers=2 * cores) for cores in range(1, 13)])
    rates = [point.prediction.rate for point in points]
    assert rates[0] < rates[2] < rates[4]
    found = knee(points)
    assert found is not None
    assert 5 <= found.resources.cores <= 7
    assert knee([]) is None


def test_what_helps_is_told_each_by_itself() -> None:
    found = dict(helps(a_profile()))
    assert found["4 more cores (8 workers)"].prediction.rate > 300
    assert "num_workers=8" in found
    assert found["2 data workers"].placement.share > 0
