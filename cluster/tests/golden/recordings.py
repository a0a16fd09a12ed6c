"""The recorded scenarios; README.md beside this file says what is in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Step:
    """One recorded exchange; ``number`` counts from 1."""

    number: int
    facts: dict[str, Any]

    @property
    def about(self) -> str:
        return str(self.facts["about"])

    @property
    def request(self) -> dict[str, Any]:
        return dict(self.facts["request"])

    @property
    def response(self) -> dict[str, Any]:
        return dict(self.facts["response"])

    @property
    def watch(self) -> str | None:
        """The id of the watch that the step opens and that gave a stream."""
        return self.facts.get("watch") if "stream" in self.facts else None


@dataclass(frozen=True)
class Scenario:
    name: str
    about: str
    setup: dict[str, Any]
    with_managed_fields: bool
    steps: tuple[Step, ...]


def load(name: str) -> Scenario:
    facts = json.loads((DATA / "scenarios" / f"{name}.json").read_text(encoding="utf-8"))
    steps = tuple(Step(number, step) for number, step in enumerate(facts["steps"], 1))
    kept = facts["managedFields"] == "kept"
    return Scenario(facts["scenario"], facts["about"], facts["setup"], kept, steps)


def names() -> list[str]:
    """Every scenario, by name."""
    return sorted(path.stem for path in (DATA / "scenarios").glob("*.json"))


def fixture(path: str) -> dict[str, Any]:
    """An object that ``setup`` names by its path, e.g. ``fixtures/crd-widgets.json``."""
    found: dict[str, Any] = json.loads((DATA / path).read_text(encoding="utf-8"))
    return found
