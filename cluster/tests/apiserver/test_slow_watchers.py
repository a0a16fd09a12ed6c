"""A watcher that takes nothing while events pile up is closed, and goes on from where it was."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from cluster.tests.registry.samples import config_map
from penstock_cluster.apiserver import watching
from penstock_cluster.testing import RunningCluster, api_server

Json = dict[str, Any]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LARGE = {"text": "x" * 20_000}
SLOW_SECONDS = 0.2
SLOW_EVENTS = 10
MOST_MAPS = 2_000  # more than any buffer of a connection holds


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    monkeypatch.setattr(watching, "SLOW_SECONDS", SLOW_SECONDS)
    monkeypatch.setattr(watching, "SLOW_EVENTS", SLOW_EVENTS)
    with api_server() as running:
        yield running


class Watcher:
    """A client that reads when it is told to."""

    def __init__(self, cluster: RunningCluster, version: str) -> None:
        place = urlsplit(cluster.url)
        self._connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
        self._connection.sock = socket.socket()
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._connection.sock.settimeout(20)
        self._connection.sock.connect((place.hostname, place.port))
        self._connection.request(
            "GET",
            f"{CONFIG_MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=30",
            headers={"Authorization": f"Bearer {cluster.token}"},
        )
        self._answer = self._connection.getresponse()

    def read_one(self) -> Json:
        found: Json = json.loads(self._answer.readline())
        return found

    def read_to_the_end(self) -> list[Json]:
        """All events until the server ends the stream in good order."""
        return [json.loads(line) for line in self._answer.read().splitlines()]

    def close(self) -> None:
        self._connection.close()


def present_version(cluster: RunningCluster) -> str:
    found: str = cluster.ok("GET", CONFIG_MAPS)["metadata"]["resourceVersion"]
    return found


def is_watched(cluster: RunningCluster) -> bool:
    async def look() -> bool:
        return any(watch.facts.path == CONFIG_MAPS for watch in cluster.engine.open_watches)

    return cluster.run(look())


def create(cluster: RunningCluster, name: str) -> None:
    cluster.create("configmaps", {**config_map(name), "data": LARGE}, "default")


def test_a_watcher_that_reads_nothing_is_closed_and_misses_nothing(cluster: RunningCluster) -> None:
    watcher = Watcher(cluster, present_version(cluster))
    names = []
    while is_watched(cluster):
        names.append(f"c{len(names)}")
        create(cluster, names[-1])
        assert len(names) < MOST_MAPS, "the watch is still open"
    create(cluster, "last")
    events = watcher.read_to_the_end()
    watcher.close()
    assert {event["type"] for event in events} == {"ADDED"}, "no error: it is to go on"
    assert len(events) < len(names)
    again = Watcher(cluster, events[-1]["object"]["metadata"]["resourceVersion"])
    while events[-1]["object"]["metadata"]["name"] != "last":
        events.append(again.read_one())
    again.close()
    assert [event["object"]["metadata"]["name"] for event in events] == [*names, "last"]


def test_a_watcher_that_has_nothing_to_read_stays(cluster: RunningCluster) -> None:
    watcher = Watcher(cluster, present_version(cluster))
    time.sleep(3 * SLOW_SECONDS)  # what is tested is that nothing happens
    for number in range(2 * SLOW_EVENTS):
        create(cluster, f"c{number}")
    time.sleep(3 * SLOW_SECONDS)  # what waits is in the connection's buffers, none of it here
    assert is_watched(cluster)
    for number in range(2 * SLOW_EVENTS):
        assert watcher.read_one()["object"]["metadata"]["name"] == f"c{number}"
    watcher.close()
