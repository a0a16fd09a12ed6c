from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.measured import Measured, student
from penstock.throughput.profiles.profile import LARGEST_BYTES, Profile, from_json, loads
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.throughput.programs import a_profile, profiles


@given(profiles())
def test_a_profile_is_read_as_it_was_written(profile: Profile) -> None:
    assert loads(profile.dumps()) == profile


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def is_profile_or_error(content: object) -> bool:
    try:
        return isinstance(from_json(content), Profile)
    except ProfileError as error:
        return bool(str(error))


FIELDS = st.sampled_from(sorted(a_profile().to_json()))
STAGE_FIELDS = st.sampled_from(("cpu_seconds", "kind", "name", "bytes_out"))


@given(FIELDS, json_values)
def test_whatever_stands_in_a_field_it_is_a_profile_or_an_error(name: str, value: object) -> None:
    assert is_profile_or_error(a_profile().to_json() | {name: value})


@given(st.integers(0, 3), STAGE_FIELDS, json_values)
def test_a_stage_that_is_none_is_an_error(at: int, name: str, value: object) -> None:
    content = json.loads(a_profile().dumps())
    content["stages"][at][name] = value
    assert is_profile_or_error(content)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is no profile, or a part of one"),
        ("[" * 100_000, "it is no profile, or a part of one"),
        ("[]", "a JSON object"),
        ("{}", "version: None; this release reads 1: profile again"),
        (" " * (LARGEST_BYTES + 1), "is no profile"),
        ('{"version": 1}', "no field 'stages'"),
        (f'{{"version": {"9" * 5000}}}', "it is no profile, or a part of one"),
    ],
)
def test_what_is_no_profile_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        loads(text)


def test_fields_of_a_later_release_are_passed_over() -> None:
    content = json.loads(a_profile().dumps())
    content["moon"] = 1
    content["stages"][0]["phase"] = "full"
    assert from_json(content) == a_profile()


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("spread.0", NAN, "spread: nan must be"),
        ("spread", [], "number of spread: 0 must be 1 or more"),
        ("spread", [1.0] * 1025, "number of spread: 1025 must be at most 1024"),
        ("spread.0", INFINITY, "spread: inf must be at most"),
        ("contention", 1e308, r"contention: 1e\+308 must be at most 100"),
        ("step_cores", 1e308, "step_cores"),
        ("batch_size", 10**400, "batch_size: a number of more than 80 digits must be at most"),
        ("batch_size", True, "batch_size: True must be a whole number"),
        ("batch_size", 1.5, "batch_size: 1.5 must be a whole number"),
        ("processes", 10**9, "processes: 1000000000 must be at most"),
        ("rate.value", 0, "rate.value: 0 is outside its interval 195.0 to 205.0"),
        ("rate", {"value": 0, "low": 0, "high": 0}, "rate.value: 0 must be more than 0"),
        ("rate", {"value": -5, "low": -6, "high": 0}, "rate.value: -5 must be more than 0"),
        ("rate.high", INFINITY, "rate.high: inf must be at most"),
        ("step.value", "1", "step.value: '1' must be a number"),
        ("step", {"low": 1, "high": 1}, "step: there is no field 'value'"),
        ("transport.send_cpu_seconds", NAN, "transport.send_cpu_seconds: nan"),
        ("transport.send_cpu_seconds", "x", "transport.send_cpu_seconds: 'x' must be a number"),
        ("transport.receive_cpu_seconds", -1, "transport.receive_cpu_seconds: -1 must be 0"),
        ("resources.cores", INFINITY, "resources.cores: inf must be at most"),
        ("resources.workers", 1.5, "resources.workers: 1.5 must be a whole number"),
        ("resources.workers", 5000, "resources.workers: 5000 must be at most 4096"),
        ("resources.cache_bytes", NAN, "resources.cache_bytes: nan"),
        ("resources.cache_policy", "best", "resources.cache_policy: 'best' must be one of"),
        ("causes", {"a": -1}, "causes.a: -1 must be 0 or more"),
        ("causes", {str(n): 0.0 for n in range(300)}, "number of causes: 300 must be at most 256"),
        ("causes", {"\ud800": 0.1}, "a name in causes: .* must be of printable characters"),
        ("keys", {"machine": [1]}, r"keys.machine: \[1\] must be a text"),
        ("program", 5, "program: 5 must be a text"),
        ("program", "a\x1b[2J", "program: .* must be of printable characters"),
        ("program", "a" * 2000, "program: a text of 2000 characters; at most 1024"),
        ("notes", "abc", "notes: 'abc' must be a list"),
        ("in_turn", "no", "in_turn: 'no' must be true or false"),
        ("stages.0.kind", "soup", "stages.0..kind: 'soup' must be one of fetch, transform"),
        ("stages.0.name", 5, "stages.0..name: 5 must be a text"),
        ("stages.0.movable", "no", "stages.0..movable: 'no' must be true or false"),
        ("stages.0.cpu_seconds", "1", "stage fetch: cpu_seconds: '1' must be a number"),
    ],
)
def test_a_figure_that_no_program_has_is_refused_with_field_value_and_rule(
    place: str, value: object, said: str
) -> None:
    content = json.loads(a_profile().dumps())
    *way, last = [int(one) if one.isdigit() else one for one in place.split(".")]
    inner = content
    for step in way:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(ProfileError, match=said):
        from_json(content)


def test_more_stages_than_a_pipeline_has_are_refused() -> None:
    content = json.loads(a_profile().dumps())
    content["stages"] *= 20
    with pytest.raises(ProfileError, match="number of stages: 80 must be at most 64"):
        from_json(content)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cores", 0, "cores: 0 must be more than 0"),
        ("cores", float("nan"), "cores: nan"),
        ("workers", -1, "workers: -1 must be 0 or more"),
        ("prefetch", 0, "prefetch: 0 must be 1 or more"),
        ("cache_bytes", -1, "cache_bytes"),
        ("storage_bytes_per_second", 0, "storage_bytes_per_second"),
        ("network_bytes_per_second", 0, "network_bytes_per_second"),
    ],
)
def test_resources_that_nobody_has_are_refused(field: str, value: float, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        Resources(**{"cores": 1, "workers": 1, field: value})


def test_a_cost_is_a_number_that_is_not_negative() -> None:
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ProfileError, match="stage decode: cpu_seconds: "):
            StageCost("decode", "transform", wrong)


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=30))
def test_an_interval_holds_the_mean(values: list[float]) -> None:
    found = Measured.mean_of(values)
    assert found.value == pytest.approx(statistics.fmean(values))
    assert found.holds(found.value)
    assert found.samples == len(values)
    assert found.scaled(2.0).relative_error == pytest.approx(found.relative_error)


def test_students_t_is_that_of_the_tables() -> None:
    known = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 20: 2.086, 60: 2.000, 10_000: 1.960}
    for degrees, value in known.items():
        assert student(degrees) == pytest.approx(value, rel=0.01)


def test_a_time_is_a_rate_the_other_way_round() -> None:
    assert Measured(0.5, 0.4, 0.6, 3).inverse().low == pytest.approx(1 / 0.6)
    with pytest.raises(ProfileError, match="no rate"):
        Measured(0.5, -0.1, 0.6, 3).inverse()
    with pytest.raises(ProfileError, match="nothing was measured"):
        Measured.mean_of([])
    with pytest.raises(ProfileError, match="outside its interval"):
        Measured(2.0, 0.0, 1.0)
