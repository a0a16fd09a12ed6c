"""kopf, unmodified: its finalizers, its annotations, its indices, its events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.tests.clients.notes import NOTES, crd, note
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import RunningCluster, api_server

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
PROGRAM = Path(__file__).parent / "operator_program.py"


@dataclass(frozen=True)
class Operator:
    cluster: RunningCluster
    journal_path: Path

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal_path.read_text().splitlines()]

    def note(self, name: str) -> dict[str, Any] | None:
        return self.cluster.find(NOTES, name, "default")

    def handled(self, name: str, handler: str) -> Any:
        """What a handler returned, once it has."""

        def result() -> Any:
            return ((self.note(name) or {}).get("status") or {}).get(handler)

        return self.cluster.wait(result, f"handler {handler} of {name}", 20)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("kopf")
    journal, log = folder / "journal", folder / "log"
    journal.touch()
    with api_server(serving=ServeOptions(tls=True)) as cluster, log.open("w") as output:
        cluster.apply(crd())
        environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig_path),
            "JOURNAL": str(journal),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "-n", "default", "--verbose", str(PROGRAM)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            yield Operator(cluster, journal)
        finally:
            process.terminate()
            code = process.wait(20)
            print(log.read_text()[-20_000:])
        assert code in (0, -15)


def test_a_new_object_gets_finalizer_annotation_and_result(operator: Operator) -> None:
    operator.cluster.create(NOTES, note("first", colour="red"), "default")
    assert operator.handled("first", "created") == {"alike": ["first"]}
    stored = operator.note("first")
    assert stored is not None
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    handled = json.loads(stored["metadata"]["annotations"][LAST_HANDLED])
    assert handled["spec"] == {"colour": "red"}


def test_an_index_holds_all_objects(operator: Operator) -> None:
    for name in ("blue-1", "blue-2", "blue-3"):
        operator.cluster.create(NOTES, note(name, colour="blue"), "default")
        found = operator.handled(name, "created")
        assert name in found["alike"]
    assert found == {"alike": ["blue-1", "blue-2", "blue-3"]}


def test_a_change_is_seen_once_with_old_and_new_value(operator: Operator) -> None:
    operator.cluster.create(NOTES, note("changing", colour="red"), "default")
    operator.handled("changing", "created")
    operator.cluster.patch(NOTES, "changing", {"spec": {"colour": "green"}}, "default")
    assert operator.handled("changing", "recoloured/spec.colour") == {"old": "red", "new": "green"}
    stored = operator.cluster.wait(
        lambda: _last_colour(operator.note("changing")) == "green" and operator.note("changing"),
        "the annotation to follow",
    )
    assert stored["metadata"]["generation"] == 2


def _last_colour(stored: dict[str, Any] | None) -> str:
    annotations = (stored or {}).get("metadata", {}).get("annotations", {})
    colour: str = json.loads(annotations.get(LAST_HANDLED, "{}")).get("spec", {}).get("colour", "")
    return colour


def test_a_deleted_object_stays_until_its_handler_has_succeeded(operator: Operator) -> None:
    operator.cluster.create(NOTES, note("leaving"), "default")
    operator.handled("leaving", "created")
    answer = operator.cluster.delete(NOTES, "leaving", "default")
    assert answer["metadata"]["deletionTimestamp"]
    operator.cluster.wait(lambda: operator.note("leaving") is None, "the object to go", 20)
    attempts = [entry["retry"] for entry in operator.journal() if entry.get("deleted") == "leaving"]
    assert attempts == [0, 1]


def test_events_of_pods_are_seen_by_label(operator: Operator) -> None:
    container = {"name": "main", "image": "example.org/app:1"}
    for name, watched in (("seen", "yes"), ("unseen", "no")):
        pod = {
            "metadata": {"name": name, "labels": {"watched": watched}},
            "spec": {"containers": [container]},
        }
        operator.cluster.create("pods", pod, "default")
    operator.cluster.delete("pods", "seen", "default", gracePeriodSeconds="0")
    operator.cluster.wait(
        lambda: {"pod": "seen", "type": "DELETED"} in operator.journal(), "the event of the pod"
    )
    seen = [entry for entry in operator.journal() if "pod" in entry]
    assert {entry["pod"] for entry in seen} == {"seen"}
    assert seen[0]["type"] in (None, "ADDED")


def test_kopf_posts_events_about_objects(operator: Operator) -> None:
    operator.cluster.create(NOTES, note("spoken-of"), "default")
    operator.handled("spoken-of", "created")

    def said() -> list[str]:
        selector = "involvedObject.name=spoken-of"
        found = operator.cluster.list("events", "default", fieldSelector=selector)
        return [event["reason"] for event in found]

    operator.cluster.wait(lambda: "Welcomed" in said(), "an event about the object")
