"""Modules and folders import one way only, and no class is a room of its own."""

from __future__ import annotations

from typing import Final

import pytest

from tests.house.measure import arrows
from tests.house.structure import Structure, cycles

MOST_METHODS: Final = 20

MOST_ARROWS: Final = 1.5
"""Imports between the modules of a folder, for each of its modules."""

FACADES: Final = {
    "penstock.client.brain.async_brain_client.AsyncBrainClient": "one method for each of the "
    "Brain's calls",
    "penstock.client.brain.brain_client.BrainClient": "the same without an event loop",
    "penstock.client.async_sdk.AsyncPenstock": "the SDK: a method for each thing done to a job",
    "penstock.client.sdk.Penstock": "the same without an event loop",
    "penstock.trainer.elastic.Session": "what a training script holds: attributes and verbs",
    "penstock.parameter_server.control.coordinator.ServerCoordinator": "one method for each event "
    "and question of the state machine below it, none longer than a few lines",
    "penstock_cluster.faults.catalogue.Faults": "one method for each fault that a test can ask for",
}
"""Public faces of a room, and why they are broad."""


@pytest.fixture(scope="module")
def structure() -> Structure:
    return Structure()


def test_a_circle_is_found_with_all_its_members() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert cycles(graph) == [["b", "c"], ["d", "e"]]


def test_modules_import_one_way_only(structure: Structure) -> None:
    assert cycles(structure.imports) == []


def test_folders_import_one_way_only(structure: Structure) -> None:
    assert cycles(structure.folders()) == []


def test_no_class_is_a_room_of_its_own(structure: Structure) -> None:
    broad = {
        f"{module.name}.{name}"
        for module in structure.modules.values()
        for name, methods in module.methods()
        if methods > MOST_METHODS
    }
    assert broad - FACADES.keys() == set(), "divide it: what does it have, that could be its own?"


def test_the_modules_of_a_folder_are_few_steps_apart(structure: Structure) -> None:
    dense = {
        folder: f"{count} arrows among {size} modules"
        for folder, (size, count) in arrows(structure).items()
        if count > MOST_ARROWS * size
    }
    assert dense == {}, "divide the folder, or import less"
