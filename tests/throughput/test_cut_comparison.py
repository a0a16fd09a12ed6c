"""Which kind of cut pays, which is next, and why; all are named, judged or not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from penstock.throughput.decision.cut_comparison import compare_cuts
from penstock.throughput.decision.in_job import decide_in_job
from penstock.throughput.decision.offload import LEAST_GAIN, decide
from penstock.throughput.limits.cut import CutKind
from penstock.throughput.limits.fetching import reading_apart
from penstock.throughput.profiles.profile import Profile, Storage
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.throughput.programs import STARVING, a_profile, profiles, resources

PICTURES = a_profile(
    stages=(
        StageCost("dataset", "opaque", 0.010, 0.001, 150e3),
        StageCost("crop", "transform", 0.001, 0.0, 150e3),
        StageCost("ToTensor", "transform", 0.0005, 0.0, 600e3),
        StageCost("collate", "collate", 0.0002, 0.0, 600e3),
    ),
    storage=Storage(110e3, 110e6, hits=1.0, cold_seconds=0.005, cold_bytes_per_second=50e6),
)
THIN = Resources(cores=1, workers=0, data_workers=4, network_bytes_per_second=60e6)


def test_behind_a_thin_link_the_tail_stays_and_the_whole_batch_is_next() -> None:
    found = compare_cuts(PICTURES, THIN)
    assert found.chosen is not None
    assert (found.chosen.kind, found.chosen.cut) == (CutKind.TAIL_LOCAL, "from ToTensor on local")
    assert found.runner_up is not None
    assert found.why.startswith("tail local (from ToTensor on local) pays: ")
    assert "bound by network" in found.why


def test_where_nothing_lies_between_whole_batches_pay() -> None:
    found = compare_cuts(PICTURES, replace(THIN, network_bytes_per_second=1e12, data_workers=8))
    assert found.chosen is not None
    assert found.chosen.kind is CutKind.WHOLE_BATCH


def test_what_was_not_measured_is_said_and_not_guessed() -> None:
    opaque = replace(STARVING, stages=(StageCost("dataset", "opaque", 0.11, bytes_out=1e6),))
    found = {one.kind: one for one in compare_cuts(opaque, replace(THIN, workers=2)).options}
    assert found[CutKind.WHOLE_BATCH].cut == "whole batch"
    assert (found[CutKind.TAIL_LOCAL].cut, found[CutKind.TAIL_LOCAL].rate) == ("", 0)
    assert "between two transforms" in found[CutKind.TAIL_LOCAL].why
    assert "no reading" in found[CutKind.READ_LOCAL].why


def test_where_data_workers_read_slowly_the_training_pod_reads_for_them() -> None:
    enough = replace(THIN, network_bytes_per_second=1e12, data_worker_reading_seconds=0.2)
    found = compare_cuts(PICTURES, enough)
    assert found.chosen is not None
    assert (found.chosen.kind, found.chosen.cut) == (CutKind.READ_LOCAL, "read local")
    whole = next(one for one in found.options if one.kind is CutKind.WHOLE_BATCH)
    assert whole.rate < found.chosen.rate / 2
    same = compare_cuts(PICTURES, replace(enough, data_worker_reading_seconds=None))
    assert same.chosen is not None
    assert same.chosen.kind is CutKind.WHOLE_BATCH, "they are taken to read as fast"


def test_without_data_workers_no_cut_is_named() -> None:
    found = compare_cuts(PICTURES, replace(THIN, data_workers=0))
    assert (found.chosen, found.runner_up) == (None, None)
    assert found.why == "no cut pays: no data worker may be had"


def test_a_job_decision_has_the_cuts_it_was_chosen_among() -> None:
    decision = decide_in_job(STARVING, 8)
    assert decision.cuts is not None
    assert decision.cuts.chosen is not None
    assert decision.cuts.chosen.cut == decision.cut == "whole batch"
    assert decision.cuts.chosen.data_workers == decision.data_workers


@settings(deadline=None, max_examples=40)
@given(profiles(), resources())
def test_all_kinds_are_named_and_the_one_that_pays_is_the_decision(
    profile: Profile, limits: Resources
) -> None:
    found = compare_cuts(profile, limits)
    assert [one.kind for one in found.options] == list(CutKind)
    assert all(one.why for one in found.options)
    decided = decide(reading_apart(profile), limits)
    assert (found.chosen is not None) == decided.moves
    if found.chosen is not None:
        assert found.chosen.cut == decided.chosen.placement.cut.name
        assert found.chosen.rate >= (1 + LEAST_GAIN) * found.without * (1 - 0.006)
        assert found.runner_up is None or found.runner_up.kind is not found.chosen.kind
