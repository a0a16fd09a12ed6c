"""Patterns of schemas and of CEL mean what they mean to Go, and none takes for ever."""

from __future__ import annotations

import pytest

from cluster.tests.registry.running import CRDS, run, settle
from cluster.tests.registry.samples import WIDGETS, widget
from penstock_cluster.registry import Api, ApiError, Engine, thaw
from penstock_cluster.registry.admission.cel import CelError, compiled
from penstock_cluster.registry.model.patterns import PatternError, go_pattern

ENDLESS = "^(a+)+$"
ALMOST = "a" * 10_000 + "!"


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        ("[$]", "$", True),
        (r"^\z", "", True),
        (r"^\d$", "٣", False),
        ("^é+$", "éé", True),
        (ENDLESS, ALMOST, False),
    ],
)
def test_patterns_are_those_of_go(pattern: str, text: str, matches: bool) -> None:
    assert (go_pattern(pattern).search(text) is not None) == matches


@pytest.mark.parametrize("pattern", ["(a", r"(a)\1", "(?=a)", "a{2000}", r"\Z", "\\"])
def test_what_go_has_not_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="error parsing regexp: "):
        go_pattern(pattern)


def test_a_schema_whose_pattern_backtracks_does_not_hang() -> None:
    definition = thaw(WIDGETS)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["code"] = {"type": "string", "pattern": ENDLESS}

    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(CRDS, definition)
        await settle()
        with pytest.raises(ApiError, match=r"spec\.code: .*should match") as refusal:
            await api.create("widgets.test.dev", widget(code=ALMOST), "default")
        assert refusal.value.code == 422

    run(scenario)


def test_a_crd_whose_pattern_is_none_is_refused() -> None:
    definition = thaw(WIDGETS)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["code"] = {"type": "string", "pattern": "(?=a)"}

    async def scenario(engine: Engine, api: Api) -> None:
        with pytest.raises(ApiError, match="must be a valid regular expression, but isn't") as no:
            await api.create(CRDS, definition)
        assert no.value.code == 422

    run(scenario)


def test_finding_in_cel_does_not_hang_either() -> None:
    assert compiled(f"self.find('{ENDLESS}')").run({"self": ALMOST}) == ""
    assert compiled("self.findAll('[0-9]+')").run({"self": "a1b22"}) == ["1", "22"]
    with pytest.raises(CelError, match="error parsing regexp"):
        compiled("self.find('(?=a)')").run({"self": "a"})
