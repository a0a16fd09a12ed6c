"""What copies to a device cost, from what would be seen of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.throughput.decision.what_if import COPIES_BESIDE, helps, what_if
from penstock.throughput.errors import ProfileError
from penstock.throughput.loop.prediction import predict
from penstock.throughput.loop.stalls import HAND_OVER, PIN_MEMORY, Span, Window, attribute
from penstock.throughput.observations.analysis import Seen, profile_of
from penstock.throughput.observations.copies import (
    HOST_TO_DEVICE,
    Copies,
    held_up,
    notes_on,
    seconds_of_byte,
)
from penstock.throughput.observations.records import IN_LINE, Delivery, Loader, Made
from penstock.throughput.observations.session import Phase
from penstock.throughput.profiles.profile import Profile, loads
from tests.throughput.programs import a_profile, profiles

MEGABYTE = 1 << 20


def copies(seconds: float, **of: object) -> Copies:
    plain = {"blocking": True, "pinned": False, "idle": True, "number": 1, "nbytes": MEGABYTE}
    return Copies(seconds=seconds, **{**plain, **of})  # type: ignore[arg-type]  # fields by name


@st.composite
def any_copies(draw: st.DrawFn) -> Copies:
    return Copies(
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(1, 100)),
        draw(st.floats(0, 0.2)),
        draw(st.integers(0, 1 << 24)),
    )


def seen(per_step: list[list[Copies]], *, step: float = 0.1, wait: float = 0.05) -> Seen:
    """A program without workers; each batch is awaited for a while, and then trained on."""
    deliveries, made, now = [], [], 0.0
    for index, one in enumerate([[], *per_step]):
        called, returned = now, now + wait
        made.append(Made(IN_LINE, called, returned, wait, samples=10))
        deliveries.append(
            Delivery(
                IN_LINE,
                called,
                returned,
                0.0,
                0.0,
                Phase.NORMAL,
                first=index == 0,
                copies=tuple(one),
            )
        )
        now = returned + step
    loader = Loader(1, "Images", workers=0, prefetch=2, batch_size=10, samples=1000)
    return Seen("train.py", loader, 2.0, deliveries, made)


def test_a_blocking_copy_between_two_waits_is_a_cause_of_its_own() -> None:
    found = profile_of(seen([[copies(0.03)]] * 20))
    assert found.causes[HOST_TO_DEVICE] == pytest.approx(0.03 / 0.15)
    assert found.stalled == pytest.approx(0.08 / 0.15)
    assert sum(found.causes.values()) == pytest.approx(found.stalled)
    assert found.copy_seconds == pytest.approx(0.03)
    assert found.step.value == pytest.approx(0.1), "G is with its copies, as the program is"


def test_what_is_copied_beside_the_training_costs_nothing() -> None:
    launched = copies(0.001, blocking=False, pinned=True)
    found = profile_of(seen([[launched]] * 20))
    assert HOST_TO_DEVICE not in found.causes
    assert found.copy_seconds == 0.0
    assert found == profile_of(seen([[]] * 20))


def test_an_unpinned_copy_on_a_busy_device_costs_what_its_bytes_do() -> None:
    busy = copies(0.08, blocking=False, idle=False)
    known = profile_of(seen([[busy, copies(0.004)]] * 20))
    assert known.copy_seconds == pytest.approx(0.008)
    assert any("pin_memory=True" in note for note in known.notes)
    unknown = profile_of(seen([[busy]] * 20))
    assert unknown.copy_seconds == 0.0
    assert any("how long is not known" in note for note in unknown.notes)


def test_a_program_without_a_device_has_no_such_notes() -> None:
    assert notes_on([]) == []
    assert seconds_of_byte([]) is None


@given(st.lists(any_copies(), max_size=8), st.none() | st.floats(0, 1e-6), st.floats(0, 1))
def test_copies_hold_a_step_up_for_no_longer_than_it_and_they_take(
    some: list[Copies], each_byte: float | None, limit: float
) -> None:
    found = held_up(some, each_byte, limit)
    assert 0 <= found <= limit
    assert found <= sum(one.seconds for one in some if not one.launches) + 1e-9
    launched = [one for one in some if one.launches]
    assert held_up(launched, each_byte, limit) == 0.0
    blocked = sum(one.seconds for one in some if one.blocking)
    assert found >= min(limit, blocked) - 1e-9


@given(st.lists(st.lists(any_copies(), max_size=4), min_size=6, max_size=20), st.floats(0.01, 0.3))
def test_causes_sum_to_the_waiting_whatever_was_copied(
    per_step: list[list[Copies]], step: float
) -> None:
    found = profile_of(seen(per_step, step=step))
    assert sum(found.causes.values()) == pytest.approx(found.stalled)
    assert found.stalled <= 1
    assert 0 <= found.copy_seconds < found.step.value
    assert loads(found.dumps()) == found


@settings(max_examples=20)
@given(profiles(), st.floats(0, 0.9))
def test_copies_beside_the_training_make_no_program_slower(profile: Profile, share: float) -> None:
    plain = replace(profile, copy_seconds=share * profile.step.value)
    (found,) = what_if(plain, [plain.resources], overlap_copies=True)
    (as_it_is,) = what_if(plain, [plain.resources])
    assert found.prediction.rate >= as_it_is.prediction.rate
    assert found.prediction.low <= as_it_is.prediction.low
    assert found.prediction.low <= found.prediction.rate <= found.prediction.high


def test_time_in_copies_counts_as_waiting_in_predictions_too() -> None:
    plain = a_profile(resources=replace(a_profile().resources, cores=64, workers=32))
    copying = replace(plain, copy_seconds=0.02)
    more = predict(copying, copying.resources).stalled - predict(plain, plain.resources).stalled
    assert more == pytest.approx(0.2, abs=0.01)
    assert predict(copying, copying.resources).rate == predict(plain, plain.resources).rate


def test_the_report_offers_it_only_where_copies_hold_the_program_up() -> None:
    assert COPIES_BESIDE not in dict(helps(a_profile()))
    found = dict(helps(a_profile(copy_seconds=0.05)))[COPIES_BESIDE]
    assert found.prediction.low <= found.prediction.rate


@pytest.mark.parametrize("seconds", [-0.1, 0.1, float("nan"), float("inf")])
def test_copies_that_cannot_be_are_refused(seconds: float) -> None:
    with pytest.raises(ProfileError, match="copy_seconds"):
        a_profile(copy_seconds=seconds)


def test_a_batch_that_is_awaited_while_batches_are_pinned_waits_for_that() -> None:
    span = Span(0.0, 1.0, 0, {"decode": 1.0})
    window = Window(0.5, 1.6, 0, made=1.0)
    found = attribute([window], [span], 0.05, pinning=[(0.2, 0.7), (0.9, 1.2), (1.3, 1.5)])
    assert found == pytest.approx({"decode": 0.5, PIN_MEMORY: 0.4, HAND_OVER: 0.2})


@given(
    st.lists(st.floats(0, 10), min_size=2, max_size=20).map(sorted),
    st.lists(st.floats(0, 10), min_size=2, max_size=20).map(sorted),
    st.floats(0, 10),
)
def test_pinning_never_adds_to_the_waiting(
    waits: list[float], pins: list[float], made: float
) -> None:
    windows = [Window(a, b, 0, made) for a, b in list(pairwise(waits))[::2]]
    pinning = list(pairwise(pins))[::2]
    spans = [Span(0.0, made, 0, {"decode": 1.0})]
    total = sum(one.end - one.begin for one in windows)
    found = attribute(windows, spans, pinning=pinning)
    assert sum(found.values()) == pytest.approx(total, abs=1e-9)
    assert found.get(PIN_MEMORY, 0.0) <= sum(b - a for a, b in pinning) + 1e-9
    assert found.get("decode", 0.0) == attribute(windows, spans).get("decode", 0.0)
