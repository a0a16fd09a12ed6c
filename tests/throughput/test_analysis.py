"""Profiles of programs whose costs are known, from what would be seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.throughput.errors import ProfileError
from penstock.throughput.loop.stalls import HAND_OVER, TOO_FEW_CORES
from penstock.throughput.observations.analysis import Seen, profile_of
from penstock.throughput.observations.misses import ColdReads
from penstock.throughput.observations.records import IN_LINE, Delivery, Loader, Made, SampleReads
from penstock.throughput.observations.session import Phase
from penstock.throughput.profiles.profile import MOST_STAGES

LOADER = Loader(1, "Images", workers=0, prefetch=2, batch_size=10, samples=1000)


def in_line(batches: int = 40, *, step: float = 0.1, cpu: float = 0.2) -> Seen:
    """A program without workers: it makes a batch, 0.05 s of which it is blocked, and trains."""
    deliveries, made, now = [], [], 0.0
    for index in range(batches):
        called = now
        begin, end = called, called + cpu + 0.05
        made.append(
            Made(
                IN_LINE,
                begin,
                end,
                cpu,
                samples=10,
                collate_cpu=0.02,
                stages={"Crop": 0.005},
                read=100_000,
                missed=25_000,
            )
        )
        returned = end + 0.001
        deliveries.append(
            Delivery(
                IN_LINE,
                called,
                returned,
                index * 0.3,
                index * 0.3 + 0.2,
                Phase.NORMAL,
                first=index == 0,
                nbytes=4000,
            )
        )
        now = returned + step
    return Seen("train.py", LOADER, 2.0, deliveries, made)


def test_more_transforms_than_a_profile_has_room_for_are_the_dataset() -> None:
    seen = in_line()
    many = {f"transform {number}": 1e-6 for number in range(200)}
    found = profile_of(replace(seen, made=[replace(one, stages=many) for one in seen.made]))
    assert len(found.stages) <= MOST_STAGES
    assert found.cpu_seconds == pytest.approx(0.02)


def test_the_costs_come_out_as_they_were_put_in() -> None:
    found = profile_of(in_line())
    assert found.rate.value == pytest.approx(10 / 0.351)
    assert found.stalled == pytest.approx(0.251 / 0.351)
    assert found.step.value == pytest.approx(0.1)
    assert found.step_cores == pytest.approx(1.0)
    costs = {stage.name: stage for stage in found.stages}
    assert costs["dataset"].cpu_seconds == pytest.approx((0.2 - 0.02) / 10 - 0.005)
    assert costs["dataset"].blocked_seconds == pytest.approx(0.005)
    assert costs["Crop"].cpu_seconds == pytest.approx(0.005)
    assert costs["collate"].cpu_seconds == pytest.approx(0.002)
    assert costs["collate"].bytes_out == 400
    assert found.causes == pytest.approx(
        {
            "dataset": 0.13 / 0.351,
            "Crop": 0.05 / 0.351,
            "collate": 0.02 / 0.351,
            "fetch": 0.05 / 0.351,
            HAND_OVER: 0.001 / 0.351,
        },
        rel=1e-6,
    )
    assert sum(found.causes.values()) == pytest.approx(found.stalled)
    assert found.model_error == pytest.approx(0.0, abs=0.02)
    assert any("G is that of steps beside" in note for note in found.notes)


def test_what_is_read_cold_is_known_where_it_was_measured() -> None:
    found = profile_of(replace(in_line(), reading=ColdReads(1e-6, 5e6)))
    assert found.storage is not None
    assert found.storage.bytes_per_sample == 10_000
    assert found.storage.hits == pytest.approx(0.75)
    assert found.storage.cold_seconds == pytest.approx(0.01)
    assert found.storage.total_bytes == pytest.approx(10e6)
    assert found.storage.cold_cpu_seconds == 0.0


def test_a_miss_costs_a_core_as_much_as_it_costs_of_a_file() -> None:
    found = profile_of(replace(in_line(), reading=ColdReads(1e-6, 5e6, 60e-6, 20_000.0)))
    assert found.storage is not None
    assert found.storage.cold_cpu_seconds == pytest.approx(30e-6)


@pytest.mark.parametrize(
    ("as_it_runs", "cooled", "expected"),
    [
        (SampleReads(8, 0.008, 2, 0.0026, 20_000), None, 300e-6),
        (SampleReads(8, 0.008, 2, 0.0026, 40_000), None, 150e-6),  # of larger samples than others
        (SampleReads(8, 0.008, 2, 0.0020, 20_000), None, 30e-6),  # the read itself costs as much
        (SampleReads(hits=10, hit_cpu=0.01), SampleReads(5, 0.005, 5, 0.007, 50_000), 400e-6),
        (SampleReads(hits=10, hit_cpu=0.01), None, 30e-6),
        (SampleReads(misses=10, miss_cpu=0.01, missed=100_000), None, 30e-6),
    ],
)
def test_a_miss_costs_a_core_what_samples_say_that_were_made_beside_each_other(
    as_it_runs: SampleReads, cooled: SampleReads | None, expected: float
) -> None:
    seen = replace(in_line(), reading=ColdReads(1e-6, 5e6, 60e-6, 20_000.0))
    made = [replace(one, reads=as_it_runs) for one in seen.made]
    if cooled is not None:
        made += [replace(one, cooled=True, cpu=9.0, reads=cooled) for one in seen.made[:10]]
    found = profile_of(replace(seen, made=made))
    assert found.storage is not None
    assert found.storage.cold_cpu_seconds == pytest.approx(expected)
    assert found.cpu_seconds == pytest.approx(0.02), "what was made meanwhile is none of its costs"


def test_waiting_for_a_core_is_told_from_working_and_from_reading() -> None:
    seen = in_line()
    crowded = [replace(one, cpu=0.1, queued=0.1) for one in seen.made]
    found = profile_of(replace(seen, made=crowded))
    assert found.causes[TOO_FEW_CORES] == pytest.approx(0.1 / 0.351)
    assert found.causes["fetch"] == pytest.approx(0.05 / 0.351)


def of_a_worker(**of: float) -> Seen:
    """A worker needs 0.09 s for samples, 0.1 s to collate them; a step takes 0.15 s."""
    made, deliveries, now = [], [], 0.0
    fields = {"cpu": 0.19, "collate_cpu": 0.1, "collate_seconds": 0.1, **of}
    for index in range(30):
        begin = 0.2 * index
        made.append(Made(0, begin, begin + 0.19, samples=10, **fields))
        called, returned = now, max(now, begin + 0.2)
        deliveries.append(
            Delivery(0, called, returned, 0.0, 0.0, Phase.NORMAL, first=index == 0, nbytes=4000)
        )
        now = returned + 0.15
    return Seen("train.py", replace(LOADER, workers=1), 2.0, deliveries, made)


def test_a_wait_at_the_end_of_a_batch_is_for_its_collating_and_not_for_the_next_one() -> None:
    # The training is back 0.04 s before the next batch is done, which comes 0.01 s after that.
    found = profile_of(of_a_worker())
    assert found.causes["collate"] == pytest.approx(0.04 / 0.2, rel=1e-6)
    assert found.causes[HAND_OVER] == pytest.approx(0.01 / 0.2, rel=1e-6)
    assert found.causes.keys() == {"collate", HAND_OVER}


def test_what_is_made_and_comes_late_beside_crowded_makers_had_no_core() -> None:
    found = profile_of(of_a_worker(cpu=0.11, collate_cpu=0.07, queued=0.08))
    assert HAND_OVER not in found.causes
    assert found.causes[TOO_FEW_CORES] == pytest.approx((0.3 * 0.04 + 0.01) / 0.2, rel=1e-6)


def test_batches_that_were_left_in_an_epoch_are_not_taken_for_those_of_the_next() -> None:
    seen = of_a_worker()
    left = [Made(0, -0.5 + 0.01 * n, -0.49 + 0.01 * n, 0.01, samples=10) for n in range(3)]
    before = Delivery(0, -0.4, -0.3, 0.0, 0.0, Phase.WARM_UP, first=True)
    again = replace(seen, made=[*left, *seen.made], deliveries=[before, *seen.deliveries])
    assert profile_of(again).causes == pytest.approx(profile_of(seen).causes)


def test_other_programs_on_the_machine_are_told_of() -> None:
    found = profile_of(replace(in_line(), busy=1.9))
    assert found.others > 0.5
    assert any("other programs had 1.0 of 2 cores" in note for note in found.notes)
    assert profile_of(in_line()).others == 0.0


def test_what_a_worker_makes_while_it_warms_up_is_no_cost_of_a_batch() -> None:
    seen = of_a_worker()
    warm = [replace(one, phase=Phase.WARM_UP) for one in seen.deliveries[:3]]
    cold = [replace(one, cpu=0.9, end=one.begin + 0.9, missed=10**9) for one in seen.made[:3]]
    plain = replace(seen, deliveries=[*warm, *seen.deliveries[3:]])
    found = profile_of(replace(plain, made=[*cold, *seen.made[3:]]))
    assert found.cpu_seconds == pytest.approx(0.019)
    assert found.stages == profile_of(plain).stages
    assert found.spread == (1.0,) * len(found.spread)


def test_where_all_was_made_in_warm_up_it_is_better_than_nothing() -> None:
    seen = in_line()
    early = [replace(one, begin=-1.0 + 0.01 * n) for n, one in enumerate(seen.made)]
    warm = replace(seen.deliveries[0], phase=Phase.WARM_UP)
    found = profile_of(replace(seen, deliveries=[warm, *seen.deliveries[1:]], made=early))
    assert found.cpu_seconds == pytest.approx(0.02)


def drained(steps: Sequence[float]) -> Seen:
    """Likewise, and then with every batch ready: steps of so many seconds, and one more batch."""
    seen = in_line()
    now, more = seen.deliveries[-1].returned + 5.0, []
    for index, step in enumerate((*steps, 0.0)):
        more.append(Delivery(0, now, now + 0.002, 20.0, 20.0, Phase.DRAIN, held=5.0 * (index == 0)))
        now += 0.002 + step
    return replace(seen, deliveries=[*seen.deliveries, *more])


def test_that_a_step_is_hardly_known_is_said_with_what_to_do() -> None:
    sure, unsure = (profile_of(drained(one)) for one in ([0.05] * 4, [0.01, 0.02, 0.05, 0.05]))
    assert not any("a step of the training" in note for note in sure.notes)
    (said,) = (note for note in unsure.notes if "a step of the training" in note)
    assert "% only, from 4 of them" in said
    assert "profile again" in said


def test_a_drain_says_what_the_training_takes() -> None:
    found = profile_of(drained([0.05] * 7))
    assert found.step.value == pytest.approx(0.05)
    assert found.hand_over_seconds == pytest.approx(0.002)
    assert not any("G is that" in note for note in found.notes)


def test_what_it_takes_to_look_is_no_part_of_a_step() -> None:
    seen = in_line()
    looked = [replace(one, looked=0.004) for one in seen.deliveries]
    assert profile_of(replace(seen, deliveries=looked)).step.value == pytest.approx(0.096)


def test_a_program_that_ended_too_early_has_no_profile() -> None:
    with pytest.raises(
        ProfileError, match="3 batches of Images were measured, and 5 are the least"
    ):
        profile_of(in_line(4))
    with pytest.raises(ProfileError, match="no batch of Images was seen being made"):
        profile_of(replace(in_line(), made=[]))
