"""Writers that race: no update is lost, and every watcher sees one and the same order."""

from __future__ import annotations

import threading
from typing import Any

from cluster.tests.history.connection import Connection, Watcher
from penstock_cluster.testing import RunningCluster, api_server

WRITERS = 4
INCREMENTS = 25


def increment(cluster: RunningCluster, conflicts: list[int]) -> None:
    """Count up by reading and replacing, again and again until it succeeds."""
    client = Connection(cluster, "default")
    for _ in range(INCREMENTS):
        while True:
            _, counter = client.send("GET", "counter")
            counter["data"]["value"] = str(int(counter["data"]["value"]) + 1)
            status, answer = client.send("PUT", "counter", counter)
            if status == 200:
                break
            assert (status, answer["reason"]) == (409, "Conflict")
            conflicts.append(1)
    client.close()


def test_racing_replacements_lose_nothing_and_are_seen_in_one_order() -> None:
    with api_server() as cluster:
        body = {"metadata": {"name": "counter", "labels": {"a": "b"}}, "data": {"value": "0"}}
        created = cluster.create("configmaps", body, "default")
        version = created["metadata"]["resourceVersion"]
        watchers = [Watcher(cluster, "default", version, ("a", "b")) for _ in range(3)]
        conflicts: list[int] = []
        threads = [
            threading.Thread(target=increment, args=(cluster, conflicts)) for _ in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            watchers[-1].reconnect()  # in the middle of it all, over and over
            threads[0].join(0.02)
        total = WRITERS * INCREMENTS
        for watcher in watchers:
            watcher.wait_for(total)
            watcher.close()
            assert [value(event) for event in watcher.events] == list(range(1, total + 1))
        assert int(cluster.get("configmaps", "counter", "default")["data"]["value"]) == total
        assert watchers[0].events == watchers[1].events == watchers[2].events
        assert conflicts, "the writers never met"


def value(event: dict[str, Any]) -> int:
    assert event["type"] == "MODIFIED"
    return int(event["object"]["data"]["value"])
