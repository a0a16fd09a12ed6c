"""The configuration: typed, with defaults, and an unknown key is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.enums import Stage, Strategy
from penstock.brain.configuration import BrainSettings, ConfigurationError, load
from penstock.brain.stages import DEFAULT_POLICIES


def test_nothing_is_needed() -> None:
    assert load(None) == BrainSettings()
    settings = BrainSettings()
    assert settings.administrator.interval_seconds == 60
    assert settings.administrator.servers_interval_seconds == 300
    assert settings.administrator.lost_after_seconds == 900
    assert settings.retention.raw_seconds == 7200
    assert settings.limits.pod_milli_cpu == 32_000


def test_json_is_read_like_yaml_and_options_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "brain.json"
    file.write_text('{"administrator": {"interval_seconds": 5, "enough_steps": 7}}')
    settings = load(file, {"administrator.interval_seconds": 3, "limits.pod_cpu": 4})
    assert settings.administrator.interval_seconds == 3
    assert settings.administrator.enough_steps == 7
    assert settings.limits.pod_milli_cpu == 4000
    file.write_text("")
    assert load(file) == BrainSettings()


def test_a_policy_replaces_one_stage_and_leaves_the_others() -> None:
    settings = BrainSettings(
        policies={Strategy.PARAMETER_SERVER: {Stage.OPTIMIZE: ("optimize_ps",)}}
    )
    policy = settings.policy(Strategy.PARAMETER_SERVER)
    assert policy.stages[Stage.OPTIMIZE] == ("optimize_ps",)
    usual = DEFAULT_POLICIES[Strategy.PARAMETER_SERVER].stages
    assert policy.stages[Stage.CREATE] == usual[Stage.CREATE]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"administrater.x": 1}, "administrater"),
        ({"administrator": 3}, "administrator = 3"),
        ({"prices.core_hour": 0.03}, "prices.gib_hour is missing"),
        ({"prices.core_hour": -1}, "prices.core_hour = -1: Input should be greater"),
        ({"prices.core_hour": True}, "prices.core_hour = True: should be a number"),
        ({"administrator.interval_seconds": float("inf")}, "interval_seconds"),
        ({"retention.raw_seconds": 60}, "greater than or equal to 1800"),
        ({"limits.pod_cpu": "none"}, "pod_cpu"),
        ({"tokens": [{"name": "x", "sha256": "short"}]}, "tokens.0.sha256"),
    ],
)
def test_what_is_wrong_is_named(overrides: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(None, overrides)
