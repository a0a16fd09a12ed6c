"""Parameters, options and text that cannot be are the client's fault, never the server's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.tests.registry.samples import config_map
from penstock_cluster.apiserver.content.logs import log_query
from penstock_cluster.testing import RunningCluster, api_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        containers = [{"name": "c", "image": "i"}]
        running.create(
            "pods", {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default"
        )
        running.create("configmaps", config_map("kept"), "default")
        yield running


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("tailLines", "-1", 422),
        ("tailLines", "9" * 30, 400),
        ("limitBytes", "-1", 422),
        ("sinceSeconds", "-1", 422),
        ("sinceSeconds", "9" * 30, 400),
        ("sinceTime", "yesterday", 400),
    ],
)
def test_a_log_that_cannot_be(cluster: RunningCluster, name: str, value: str, status: int) -> None:
    path = cluster.path("pods", "default", "p", "log")
    answer = cluster.request("GET", path, query={name: value})
    assert answer.status == status, answer.text


def test_very_long_ago_is_the_beginning() -> None:
    assert log_query({"sinceSeconds": str(2**62)}).since_seconds == 100 * 365 * 86_400


@pytest.mark.parametrize("wanted", [5, "x", [1]])
def test_preconditions_that_are_none(cluster: RunningCluster, wanted: object) -> None:
    path = cluster.path("configmaps", "default", "kept")
    answer = cluster.request("DELETE", path, {"preconditions": wanted})
    assert answer.status == 400, answer.text
    assert cluster.find("configmaps", "kept", "default")


@pytest.mark.parametrize("text", [r"\ud800", r"a\udfffb", r"\ud83d\ude00\ud83d"])
def test_half_a_surrogate_pair_is_replaced_as_go_does(cluster: RunningCluster, text: str) -> None:
    path = cluster.path("configmaps", "default", "kept")
    for body in (
        f'{{"data":{{"a":"{text}"}}}}',
        f'{{"data":{{"a":"1","{text}":"1","{text}":"2"}}}}',
    ):
        kind = "application/merge-patch+json"
        for query in ({}, {"fieldValidation": "Strict"}):
            answer = cluster.request("PATCH", path, body, content_type=kind, query=query)
            assert answer.status in (200, 400, 422), answer.text
    answer = cluster.request(
        "PATCH", path, f'{{"data":{{"a":"{text}"}}}}', content_type="application/merge-patch+json"
    )
    assert "\N{REPLACEMENT CHARACTER}" in answer.json["data"]["a"]
