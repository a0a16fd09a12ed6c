"""Algorithms are loaded whole or not at all, and every refusal says what to correct."""

from __future__ import annotations

import pickle
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from penstock.base.enums import Strategy
from penstock.brain.planning import Limits
from penstock.brain.registry import (
    ENTRY_POINT_GROUP,
    AlgorithmParametersError,
    AlgorithmSettings,
    BrokenAlgorithmError,
    UnknownAlgorithmError,
    load,
)
from penstock.brain.stages import DEFAULT_POLICIES
from tests.brain.jobs import history, job

COLD = EntryPoint(
    "cold_create", "penstock.brain.algorithms.cold_create:ALGORITHM", ENTRY_POINT_GROUP
)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


def test_the_installed_algorithms_load_with_their_defaults() -> None:
    registry = load()
    assert "cold_create" in registry
    for name in registry:
        entry_ = registry[name]
        assert entry_.algorithm.name == name
        assert entry_.params == entry_.algorithm.params()
        assert entry_.algorithm.params.model_json_schema()["additionalProperties"] is False
        assert entry_.algorithm.stages
        assert entry_.algorithm.strategies


def test_the_default_policies_name_installed_algorithms() -> None:
    registry = load()
    for strategy in Strategy:
        registry.require(DEFAULT_POLICIES[strategy].names())


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownAlgorithmError, match=r"'colt_create': the known ones are cold_cr"):
        load({"colt_create": AlgorithmSettings()}, [COLD])
    with pytest.raises(UnknownAlgorithmError, match="cold_create"):
        load(plugins=[COLD])["nothing"]


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AlgorithmParametersError, match=r"sevrers = 3: .*servers"):
        load({"cold_create": AlgorithmSettings(params={"sevrers": 3})}, [COLD])


def test_what_one_measures_by_another_has_as_it_is_configured() -> None:
    registry = load({"scale_allreduce": AlgorithmSettings(params={"growth": 3.0})})
    params: Any = registry["to_objective"].params
    assert params.scale_allreduce.growth == 3.0
    changed = registry.with_settings(
        "scale_allreduce", AlgorithmSettings(params={"growth": 1.25})
    ).with_settings("to_objective", AlgorithmSettings(params={"saving": 0.2}))
    params = changed["to_objective"].params
    assert (params.scale_allreduce.growth, params.saving) == (1.25, 0.2)
    off = registry.with_settings("scale_allreduce", AlgorithmSettings(enabled=False))
    params = off["to_objective"].params
    assert params.scale_allreduce.growth == 2.0
    assert params.model_dump(mode="json") == {"saving": 0.05}, "what is shown is its own"
    assert set(type(params).model_json_schema()["properties"]) == {"saving"}
    assert pickle.loads(pickle.dumps(changed["to_objective"])) == changed["to_objective"]


def test_what_is_anothers_is_set_there() -> None:
    twice = AlgorithmSettings(params={"fitted_ps": {}, "savings": 1})
    with pytest.raises(AlgorithmParametersError, match=r"set algorithms\.fitted_ps\.params"):
        load({"to_objective": twice})
    wrong = AlgorithmSettings(params={"savings": 1})
    with pytest.raises(AlgorithmParametersError, match=r"\(it has saving\)"):
        load({"to_objective": wrong})


def test_a_parameter_out_of_range_is_refused_with_its_rule() -> None:
    with pytest.raises(
        AlgorithmParametersError, match=r"servers = 0: .*greater than or equal to 1"
    ):
        load({"cold_create": AlgorithmSettings(params={"servers": 0})}, [COLD])


def test_a_plugin_that_fails_to_import_is_named() -> None:
    broken = entry("broken", "penstock.no.such.module:ALGORITHM")
    with pytest.raises(BrokenAlgorithmError, match=r"'broken' .*ModuleNotFoundError"):
        load(plugins=[COLD, broken])


def test_a_plugin_that_raises_anything_on_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wild_plugin.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BrokenAlgorithmError, match=r"'wild' .*RuntimeError: no licence"):
        load(plugins=[entry("wild", "wild_plugin:ALGORITHM")])


def test_a_switched_off_plugin_is_not_imported() -> None:
    broken = entry("broken", "penstock.no.such.module:ALGORITHM")
    registry = load({"broken": AlgorithmSettings(enabled=False)}, [COLD, broken])
    assert list(registry) == ["cold_create"]


def test_a_plugin_must_be_an_algorithm_of_its_own_name() -> None:
    with pytest.raises(BrokenAlgorithmError, match="not a penstock"):
        load(plugins=[entry("cold_create", "math:pi")])
    with pytest.raises(BrokenAlgorithmError, match="calls itself 'cold_create'"):
        load(plugins=[entry("other", COLD.value)])


def test_two_plugins_of_one_name_are_refused() -> None:
    with pytest.raises(BrokenAlgorithmError, match="same name"):
        load(plugins=[COLD, entry("cold_create", "math:pi")])


def test_a_live_change_gives_a_new_registry_and_leaves_the_old() -> None:
    old = load(plugins=[COLD])
    new = old.with_settings("cold_create", AlgorithmSettings(params={"servers": 5}, shadow=True))
    assert new["cold_create"].shadow
    assert not old["cold_create"].shadow
    assert new["cold_create"].params != old["cold_create"].params
    with pytest.raises(AlgorithmParametersError):
        old.with_settings("cold_create", AlgorithmSettings(params={"x": 1}))
    assert "cold_create" not in old.with_settings("cold_create", AlgorithmSettings(enabled=False))


def test_everything_travels_to_another_process() -> None:
    registered = pickle.loads(pickle.dumps(load(plugins=[COLD])["cold_create"]))
    here = load(plugins=[COLD])["cold_create"].plan(history(), job(), Limits())
    assert registered.plan(history(), job(), Limits()) == here
    assert pickle.loads(pickle.dumps(here)) == here
