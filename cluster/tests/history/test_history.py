"""Whatever several clients do, the server answers as the model, and every watcher sees it all.

A state machine drives the real server over HTTP. Watchers join from any version, with and without
a selector, and are cut off and reconnected at any point; in the end each must have seen exactly the
events of the model's history from where it began, in order, none twice and none lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from cluster.tests.history.connection import Connection, Watcher
from cluster.tests.history.model import Expected, Held, Model
from penstock_cluster.registry import RequestFacts, WatchEvent
from penstock_cluster.testing import RunningCluster, api_server

FINALIZER = "tests.penstock.dev/hold"
RED = ("colour", "red")
SETTLE_SECONDS = 0.02
namespaces = itertools.count(1)

names = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["0", "1", "2"])
colours = st.sampled_from(["red", "blue", None])
clients = st.integers(0, 2)
labels = st.sampled_from([None, RED])


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        yield running


class History(RuleBasedStateMachine):
    cluster: RunningCluster

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"history-{next(namespaces)}"
        self.cluster.create("namespaces", {"metadata": {"name": self.namespace}})
        self.cluster.wait(
            lambda: self.cluster.find("configmaps", "kube-root-ca.crt", self.namespace),
            "the namespace's own config map",
        )
        self.cluster.delete("configmaps", "kube-root-ca.crt", self.namespace)
        self.clients = [Connection(self.cluster, self.namespace) for _ in range(3)]
        #: What each client read last, per name: the basis of its next replacement.
        self.read: list[dict[str, dict[str, Any]]] = [{}, {}, {}]
        # The namespace controller puts the map back, which is the first event of all.
        restored = self.cluster.wait(
            lambda: self.cluster.find("configmaps", "kube-root-ca.crt", self.namespace),
            "the map to be put back",
        )
        self.model = Model()
        self.model.store(restored)
        _, listed = self.clients[0].send("GET")
        self.versions = [(listed["metadata"]["resourceVersion"], self.model.position)]
        self.watchers: list[tuple[Watcher, int, tuple[str, str] | None]] = []

    # Writes

    @rule(client=clients, name=names, value=values, colour=colours, held=st.booleans())
    def create(self, client: int, name: str, value: str, colour: str | None, held: bool) -> None:
        metadata: dict[str, Any] = {"name": name}
        if colour:
            metadata["labels"] = {"colour": colour}
        if held:
            metadata["finalizers"] = [FINALIZER]
        body = {"metadata": metadata, "data": {"value": value}}
        status, answer = self.clients[client].send("POST", body=body)
        assert status == (409 if name in self.model.objects else 201), answer
        if status == 201:
            self._stored(client, answer)
        else:
            assert answer["reason"] == "AlreadyExists"

    @rule(client=clients, name=names)
    def get(self, client: int, name: str) -> None:
        status, answer = self.clients[client].send("GET", name)
        held = self.model.objects.get(name)
        assert status == (200 if held else 404)
        if held:
            assert Held.of(answer) == held
            self.read[client][name] = answer

    @rule(client=clients, name=names, value=values)
    def replace_what_was_read(self, client: int, name: str, value: str) -> None:
        read = self.read[client].get(name)
        if read is None:
            return
        body = {**read, "data": {"value": value}}
        status, answer = self.clients[client].send("PUT", name, body)
        held = self.model.objects.get(name)
        if held is None:
            # A kind that may not be created by PUT answers 404, a conflict of uid or version 409.
            assert status in (404, 409), answer
        elif held.version != int(read["metadata"]["resourceVersion"]):
            assert (status, answer["reason"]) == (409, "Conflict")
        else:
            assert status == 200, answer
            self._stored(client, answer)

    @rule(client=clients, name=names, value=values, colour=colours)
    def patch(self, client: int, name: str, value: str, colour: str | None) -> None:
        body = {"metadata": {"labels": {"colour": colour}}, "data": {"value": value}}
        status, answer = self.clients[client].send("PATCH", name, body)
        assert status == (200 if name in self.model.objects else 404), answer
        if status == 200:
            assert answer["data"]["value"] == value
            self._stored(client, answer)

    @rule(client=clients, name=names)
    def release(self, client: int, name: str) -> None:
        """Remove the finalizers; a marked object goes with the last one."""
        held = self.model.objects.get(name)
        body = {"metadata": {"finalizers": None}}
        status, answer = self.clients[client].send("PATCH", name, body)
        assert status == (200 if held else 404), answer
        if held is None:
            return
        if held.marked:
            self.model.remove(name)
        else:
            self._stored(client, answer)

    @rule(client=clients, name=names)
    def delete(self, client: int, name: str) -> None:
        held = self.model.objects.get(name)
        status, answer = self.clients[client].send("DELETE", name)
        assert status == (200 if held else 404), answer
        if held is None:
            return
        if held.finalizers:
            self.model.store(answer)
            assert self.model.objects[name].marked
        else:
            assert answer["kind"] == "Status"
            self.model.remove(name)

    @rule(client=clients)
    def delete_the_red_ones(self, client: int) -> None:
        red = self.model.listed(RED)
        query = {"labelSelector": "=".join(RED)}
        status, answer = self.clients[client].send("DELETE", query=query)
        assert status == 200
        assert [Held.of(item) for item in answer["items"]] == red
        for held in red:
            if not held.finalizers:
                self.model.remove(held.name)
            elif not held.marked:
                _, now = self.clients[client].send("GET", held.name)
                self.model.store(now)

    def _stored(self, client: int, answer: dict[str, Any]) -> None:
        self.model.store(answer)
        self.read[client][answer["metadata"]["name"]] = answer

    # Reads

    @rule(client=clients, label=labels)
    def list_all(self, client: int, label: tuple[str, str] | None) -> None:
        query = {"labelSelector": "=".join(label)} if label else {}
        status, answer = self.clients[client].send("GET", query=query)
        assert status == 200
        assert [Held.of(item) for item in answer["items"]] == self.model.listed(label)
        self.versions.append((answer["metadata"]["resourceVersion"], self.model.position))

    @rule(client=clients, limit=st.integers(1, 3))
    def list_in_pages(self, client: int, limit: int) -> None:
        found: list[Held] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            status, answer = self.clients[client].send("GET", query=query)
            assert status == 200
            found += [Held.of(item) for item in answer["items"]]
            token = answer["metadata"].get("continue")
            if not token:
                break
            query = {"limit": limit, "continue": token}
        assert found == self.model.listed(None)

    # Watchers

    @precondition(lambda self: len(self.watchers) < 6)
    @rule(choice=st.integers(0, 1000), label=labels)
    def join(self, choice: int, label: tuple[str, str] | None) -> None:
        version, position = self.versions[choice % len(self.versions)]
        watcher = Watcher(self.cluster, self.namespace, version, label)
        self.watchers.append((watcher, position, label))

    @precondition(lambda self: self.watchers)
    @rule(choice=st.integers(0, 1000))
    def reconnect(self, choice: int) -> None:
        self.watchers[choice % len(self.watchers)][0].reconnect()

    def teardown(self) -> None:
        try:
            for watcher, position, label in self.watchers:
                expected = self.model.events(position, label)
                watcher.wait_for(len(expected))
            if self.watchers:
                time.sleep(SETTLE_SECONDS)  # a moment in which events too many would come
            for watcher, position, label in self.watchers:
                check(watcher.events, self.model.events(position, label))
        finally:
            for watcher, _, _ in self.watchers:
                watcher.close()
            for client in self.clients:
                client.close()


def check(events: list[dict[str, Any]], expected: list[Expected]) -> None:
    """Every event once, in order, with its object; versions strictly growing."""
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert seen == [(event.type, event.held.name) for event in expected]
    newest = 0
    for event, wanted in zip(events, expected, strict=True):
        held = Held.of(event["object"])
        assert held.version > newest
        newest = held.version
        assert held.same_but_version(wanted.held)
        if wanted.exact:
            assert held.version == wanted.held.version
        else:
            assert held.version > wanted.held.version


def run(cluster: RunningCluster, examples: int = 40, **changes: Any) -> None:
    machine = type("HistoryOf", (History,), {"cluster": cluster})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **changes,
    )
    # Hypothesis leaves it untyped.
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[no-untyped-call]


def test_any_history_is_seen_by_every_watcher(cluster: RunningCluster) -> None:
    run(cluster)


class Forgetful:
    """Loses what one object's deletion tells: the same events however often a history is run."""

    async def on_request(self, request: RequestFacts) -> None:
        return None

    def on_watch_event(self, request: RequestFacts, event: WatchEvent) -> bool:
        return event.type != "DELETED" or event.object["metadata"]["name"] != "b"


@pytest.mark.timeout(150)  # each try waits for an event that never comes
def test_a_lost_event_would_be_noticed() -> None:
    with api_server() as cluster:
        cluster.engine.interceptor = Forgetful()
        with pytest.raises(AssertionError):  # ends with the first; few histories delete that object
            run(cluster, 400, phases=[Phase.generate], database=None, report_multiple_bugs=False)
