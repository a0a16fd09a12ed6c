from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.cache_hits import cache_for, fetch_rate, lru_hits, minio_hits
from penstock.throughput.limits.capacity import HERE, Placement, binding, bounds
from penstock.throughput.limits.cut import cuts_of, split
from penstock.throughput.limits.fetching import hits_with, with_cache
from penstock.throughput.limits.making import stages_at, step_at
from penstock.throughput.loop.prediction import loop_of
from penstock.throughput.profiles.profile import Profile, Storage
from penstock.throughput.profiles.resources import Resources
from tests.throughput.programs import a_profile, profiles, resources

AXES = {
    "cores": 1.5,
    "workers": 2,
    "data_worker_cores": 1.5,
    "data_worker_speed": 1.5,
    "network_bytes_per_second": 1.5,
}


@given(profiles(), resources(), st.floats(0, 1), st.sampled_from(sorted(AXES)))
def test_more_of_anything_lowers_no_bound(
    profile: Profile, given_: Resources, share: float, axis: str
) -> None:
    for cut in cuts_of(profile.stages):
        placement = Placement(cut, share)
        more = replace(given_, **{axis: getattr(given_, axis) * AXES[axis]})
        before, after = bounds(profile, given_, placement), bounds(profile, more, placement)
        assert all(after[name] >= before[name] * (1 - 1e-9) for name in before)


def test_the_bounds_are_those_of_the_papers_arithmetic() -> None:
    found = bounds(a_profile(), Resources(cores=2, workers=4))
    assert found["accelerator"] == pytest.approx(320.0)  # G: 32 in 0.1 s
    assert found["cores"] == pytest.approx(2 / 0.0157)  # P by cores
    assert found["workers"] == pytest.approx(4 / 0.0167)  # P by processes, blocked time included
    assert binding(found) == "cores"


def test_without_workers_the_training_makes_its_batches_itself() -> None:
    found = bounds(a_profile(), Resources(cores=2, workers=0))
    assert found["accelerator"] == pytest.approx(1 / (0.1 / 32 + 0.0167))


def test_what_the_training_makes_itself_is_handed_over_by_nobody() -> None:
    handed = a_profile(hand_over_seconds=0.02)
    own, there = Resources(cores=2, workers=0), Resources(cores=2, workers=4)
    assert bounds(handed, own) == bounds(a_profile(), own)
    assert bounds(handed, there)["accelerator"] == pytest.approx(32 / 0.12)
    helped = Resources(cores=2, workers=0, data_workers=2)
    away = Placement(cuts_of(handed.stages)[0], 1)
    assert bounds(handed, helped, away)["accelerator"] == pytest.approx(32 / 0.12)


def test_receiving_costs_cores_of_the_training_pod() -> None:
    profile = a_profile(stages=(replace(a_profile().stages[0], cpu_seconds=0.01, bytes_out=1e6),))
    whole = cuts_of(profile.stages)[0]
    all_remote = bounds(profile, Resources(cores=2, workers=2, data_workers=4), Placement(whole, 1))
    assert all_remote["cores"] == pytest.approx(2 / (0.6e-9 * 1e6))
    assert all_remote["data workers"] == pytest.approx(4 / (0.01 + 0.7e-9 * 1e6 + 0.001))
    assert all_remote["network"] == pytest.approx(1.25e9 / 1e6)


def test_fastflows_three_cuts_are_among_ours() -> None:
    stages = a_profile().stages
    names = {cut.name: cut for cut in cuts_of(stages)}
    assert set(names) >= {
        "whole batch",  # p'3
        "from collate on local",  # p'2
        "read local, from collate on local",  # p'1
    }
    read_local = split(stages, names["read local, from collate on local"])
    assert read_local.bytes_out == 110e3
    assert read_local.local_cpu == pytest.approx(0.0007)
    assert read_local.remote_cpu == pytest.approx(0.015)


@given(profiles())
def test_a_cut_loses_no_cost(profile: Profile) -> None:
    for cut in cuts_of(profile.stages):
        parts = split(profile.stages, cut)
        assert parts.local_cpu + parts.remote_cpu == pytest.approx(profile.cpu_seconds)
        assert parts.local_blocked + parts.remote_blocked == pytest.approx(profile.blocked_seconds)
        assert all(stage.movable for stage in profile.stages[cut.first : cut.last])


def lru_by_simulation(files: int, held: int, seed: int) -> float:
    source, cache, hits = random.Random(seed), OrderedDict[int, None](), 0
    for epoch in range(4):
        for name in source.sample(range(files), files):
            if name in cache:
                hits += epoch > 0
                cache.move_to_end(name)
            else:
                cache[name] = None
                if len(cache) > held:
                    cache.popitem(last=False)
    return hits / (3 * files)


@pytest.mark.parametrize("share", [0.25, 0.35, 0.5, 0.65, 0.75, 0.95])
def test_the_hits_of_lru_are_those_of_a_simulation(share: float) -> None:
    assert lru_by_simulation(4000, int(4000 * share), 1) == pytest.approx(lru_hits(share), abs=0.02)


def test_a_cache_that_replaces_nothing_is_better_and_all_of_it_is_all() -> None:
    for share in (0.0, 0.1, 0.5, 0.9):
        assert lru_hits(share) <= minio_hits(share) == share
    assert lru_hits(1.0) == lru_hits(2.0) == minio_hits(1.5) == 1.0
    with pytest.raises(ProfileError, match="0 or more"):
        minio_hits(-0.1)


@given(st.floats(0, 0.999), st.floats(2e8, 1e10), st.floats(1e6, 1e8))
def test_the_cache_that_is_enough_is_enough(hits: float, memory: float, storage: float) -> None:
    rate = fetch_rate(hits, memory, storage)
    least = cache_for(rate, memory, storage)
    assert least == pytest.approx(hits, abs=1e-6)
    assert cache_for(memory * 1.01, memory, storage) is None
    assert cache_for(storage * 0.99, memory, storage) == 0.0


STORAGE = Storage(100e3, total_bytes=10e9, hits=0.5, cold_seconds=0.004, cold_bytes_per_second=50e6)


def test_reading_blocks_by_what_is_not_in_memory() -> None:
    profile = a_profile(storage=STORAGE)
    plain = profile.stages[0].blocked_seconds

    def blocked(**changes: float) -> float:
        return with_cache(profile, replace(profile.resources, **changes))[0].blocked_seconds

    assert blocked() == plain
    assert blocked(cache_bytes=10e9) == pytest.approx(max(0.0, plain - 0.002))
    assert blocked(cache_bytes=2.5e9) == pytest.approx(plain + 0.001)
    # A lower limit makes no single read longer; of 4 ms for a miss 2 are the bytes, half miss.
    assert blocked(storage_bytes_per_second=25e6) == plain
    assert blocked(storage_bytes_per_second=100e6) == pytest.approx(max(0.0, plain - 0.0005))
    assert hits_with(STORAGE, replace(profile.resources, cache_bytes=5e9)) == 0.5


def test_a_miss_takes_a_core_too() -> None:
    storage = replace(STORAGE, cold_cpu_seconds=0.0004)
    profile = a_profile(storage=storage)
    plain = profile.stages[0].cpu_seconds

    def cost(**changes: float) -> float:
        return with_cache(profile, replace(profile.resources, **changes))[0].cpu_seconds

    assert cost() == plain
    assert cost(cache_bytes=10e9) == pytest.approx(plain - 0.0002)
    assert cost(cache_bytes=0.0) == pytest.approx(plain + 0.0002)
    dear = replace(profile, storage=replace(storage, cold_cpu_seconds=1.0))
    stages = with_cache(dear, replace(profile.resources, cache_bytes=10e9))
    assert stages[0].cpu_seconds == 0.0


def test_storage_binds_where_it_is_slower_than_everything() -> None:
    profile = a_profile(storage=STORAGE)
    found = bounds(profile, replace(profile.resources, cache_bytes=0.0, workers=400, cores=100))
    assert found["storage"] == pytest.approx(500.0)
    assert "storage" not in bounds(profile, replace(profile.resources, cache_bytes=10e9), HERE)


def test_who_makes_his_own_batches_gives_no_shared_memory_back() -> None:
    profile = a_profile(release_seconds=0.002)
    in_line = replace(profile.resources, workers=0)
    assert step_at(profile, profile.resources) == profile.step.value
    assert step_at(profile, in_line) == pytest.approx(profile.step.value - 0.002)
    cheaper = replace(profile, release_seconds=0.0)
    assert loop_of(profile, in_line).step == pytest.approx(loop_of(cheaper, in_line).step - 0.002)
    gain = 1 / bounds(cheaper, in_line)["accelerator"] - 1 / bounds(profile, in_line)["accelerator"]
    assert gain == pytest.approx(0.002 / profile.batch_size)
    alone = replace(profile, resources=in_line)
    assert step_at(alone, in_line) == profile.step.value
    assert step_at(alone, profile.resources) == pytest.approx(profile.step.value + 0.002)
    assert 0 < step_at(replace(profile, release_seconds=9.0), in_line) < profile.step.value


def test_who_makes_his_own_batches_fills_no_shared_memory() -> None:
    profile = a_profile(sharing_cpu_seconds=0.0004)
    by_workers = sum(stage.cpu_seconds for stage in profile.stages)
    in_line = replace(profile.resources, workers=0)

    def cost(profile: Profile, resources: Resources) -> float:
        return sum(stage.cpu_seconds for stage in stages_at(profile, resources))

    assert cost(profile, profile.resources) == by_workers
    assert cost(profile, in_line) == pytest.approx(by_workers - 0.0004)
    alone = replace(profile, resources=in_line)
    assert cost(alone, in_line) == by_workers
    assert cost(alone, profile.resources) == pytest.approx(by_workers + 0.0004)
    much = replace(profile, sharing_cpu_seconds=1.0)
    assert cost(much, in_line) == 0.0
