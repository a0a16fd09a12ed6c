"""In front of which stage data workers end, where their link binds; and what is taken back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.decision.cut_choice import CutChoice, Phase, Window, choose, watch
from penstock.throughput.profiles.stage import StageCost

BATCH = 20e6
STAGES = (
    StageCost("dataset", "opaque", 0.060, bytes_out=BATCH),
    StageCost("crop", "transform", 0.005, bytes_out=BATCH / 4),
    StageCost("to_floats", "transform", 0.010, bytes_out=BATCH),
    StageCost("normalise", "transform", 0.010, bytes_out=BATCH),
    StageCost("collate", "collate", 0.002, bytes_out=BATCH),
)
THIN = Window(
    seconds=10.0,
    taken=60,
    waited_seconds=9.0,
    received_bytes=60 * BATCH,
    remote_batches=60,
    remote_seconds=60 * 0.087,
    data_workers=1,
    cores=2.0,
    workers=0,
)
"""Six batches a second come over a link of 120 MB/s, and eleven could be made."""


def chosen() -> CutChoice:
    asking = watch(CutChoice(), THIN)
    assert asking.phase is Phase.ASKING
    return choose(asking, THIN, STAGES)


def test_where_bytes_bind_data_workers_end_before_they_grow() -> None:
    choice = chosen()
    assert (choice.phase, choice.cut) == (Phase.CHANGING, "to_floats")
    assert choice.before == 6.0
    assert choice.promised > 1.5 * choice.before
    assert "to_floats and what follows run here" in choice.why


def test_a_promise_that_holds_is_kept_and_one_that_fails_is_taken_back() -> None:
    trying = watch(chosen(), THIN)
    assert (trying.phase, trying.why) == (Phase.TRYING, "")
    kept = watch(trying, replace(THIN, taken=100))
    assert (kept.phase, kept.cut) == (Phase.DONE, "to_floats")
    back = watch(trying, replace(THIN, taken=65))
    assert (back.phase, back.cut) == (Phase.DONE, "")
    assert "whole batches again: 6.5 batches/s" in back.why
    assert watch(back, THIN).phase is Phase.DONE


def test_whole_batches_stay_where_the_link_does_not_bind() -> None:
    for window in (
        replace(THIN, waited_seconds=1.0),  # the training binds
        replace(THIN, remote_seconds=8.0),  # its data workers do
        replace(THIN, remote_batches=20, remote_seconds=2.0),  # it makes most by itself
        replace(THIN, data_workers=0),  # they are on the same machine
        replace(THIN, seconds=1.0, waited_seconds=0.9, taken=6),  # too little was seen
    ):
        assert watch(CutChoice(), window).phase is Phase.WATCHING


def test_whole_batches_stay_where_no_cut_has_fewer_bytes_or_the_program_is_too_slow() -> None:
    asking = CutChoice(Phase.ASKING, before=6.0)
    for stages in (
        [replace(one, bytes_out=BATCH) for one in STAGES],
        [replace(one, bytes_out=0.0) for one in STAGES],
        [*STAGES[:2], replace(STAGES[2], cpu_seconds=0.4), *STAGES[3:]],
    ):
        assert choose(asking, THIN, stages) == CutChoice(Phase.DONE, before=6.0)
    # A batch that is coded has few bytes already.
    coded = replace(THIN, received_bytes=60 * BATCH / 4)
    assert choose(asking, coded, STAGES).phase is Phase.DONE


@given(
    st.floats(4, 60),
    st.integers(12, 10_000),
    st.floats(0, 1),
    st.floats(0, 1e10),
    st.integers(0, 10_000),
    st.floats(0, 1e4),
    st.integers(0, 50),
    st.integers(0, 16),
    st.floats(0.1, 64),
)
def test_every_window_has_an_answer(
    seconds: float,
    taken: int,
    waits: float,
    received: float,
    remote: int,
    busy: float,
    data_workers: int,
    workers: int,
    cores: float,
) -> None:
    window = Window(
        seconds, taken, waits * seconds, received, remote, busy, data_workers, cores, workers
    )
    choice = watch(CutChoice(), window)
    if choice.phase is Phase.ASKING:
        choice = choose(choice, window, STAGES)
        assert choice.phase in (Phase.CHANGING, Phase.DONE)
        assert not choice.cut or choice.promised >= 1.1 * choice.before
        assert watch(watch(choice, window), window).phase is Phase.DONE
