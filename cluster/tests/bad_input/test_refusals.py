"""Refusals in the words of the real server, where no recorded scenario shows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server

STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Clock:
    """The time of the server, which a test may move on."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        yield running


def test_a_token_is_good_until_it_expires() -> None:
    clock = Clock()
    with api_server(EngineOptions(clock=clock)) as cluster:
        path = cluster.path("serviceaccounts", "default", "default", "token")
        asked = {"spec": {"expirationSeconds": 600}}
        token = cluster.ok("POST", path, asked)["status"]["token"]
        assert cluster.request("GET", "/api/v1/namespaces", token=token).status == 200
        clock.ahead = timedelta(seconds=590)
        assert cluster.request("GET", "/api/v1/namespaces", token=token).status == 200
        clock.ahead = timedelta(seconds=660)
        answer = cluster.request("GET", "/api/v1/namespaces", token=token)
        assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
        review = {"spec": {"token": token}}
        status = cluster.create("tokenreviews.authentication.k8s.io", review)["status"]
        assert status.get("authenticated", False) is False


@pytest.mark.parametrize("token", ["x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "\u00ff"])
def test_a_token_that_is_none_is_unauthorized(cluster: RunningCluster, token: str) -> None:
    header = {"Authorization": f"Bearer {token}"}
    answer = cluster.request("GET", "/api/v1/namespaces", token="", headers=header)
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("header", ["Bearer ", "Basic dTpw", "Bearer"])
def test_a_request_without_a_bearer_token_is_anonymous(header: str) -> None:
    with api_server(EngineOptions(rbac=True)) as cluster:
        headers = {"Authorization": header}
        answer = cluster.request("GET", "/api/v1/namespaces", token="", headers=headers)
        assert answer.status == 403
        assert 'User "system:anonymous" cannot list' in answer.json["message"]


def test_a_token_signed_by_another_cluster_is_unauthorized(cluster: RunningCluster) -> None:
    with api_server() as other:
        token = other.account_token("default", "default")
    assert cluster.request("GET", "/api/v1/namespaces", token=token).status == 401


def test_the_token_of_an_account_that_is_gone_is_unauthorized(cluster: RunningCluster) -> None:
    cluster.create("serviceaccounts", {"metadata": {"name": "brief"}}, "default")
    token = cluster.account_token("default", "brief")
    assert cluster.request("GET", "/api/v1/namespaces", token=token).status == 200
    cluster.delete("serviceaccounts", "brief", "default")
    assert cluster.request("GET", "/api/v1/namespaces", token=token).status == 401


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ('{"data": {"$retainKeys": 1}}', "invalid patch format of retainKeys"),
        (
            '{"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}',
            "invalid patch format of primitive list",
        ),
        (
            '{"metadata": {"$setElementOrder/finalizers": "a"}}',
            "invalid patch format of setElementOrder list",
        ),
    ],
)
def test_directives_of_a_strategic_patch_must_be_lists(
    cluster: RunningCluster, patch: str, message: str
) -> None:
    if cluster.find("configmaps", "patched", "default") is None:
        cluster.create("configmaps", {"metadata": {"name": "patched"}}, "default")
    path = cluster.path("configmaps", "default", "patched")
    answer = cluster.request("PATCH", path, patch, content_type=STRATEGIC)
    assert (answer.status, answer.json["message"]) == (400, message)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("[" * 500 + "]" * 500, "application/json"),
        ('{"metadata":' * 500 + "1" + "}" * 500, "application/json"),
        ("- " * 20_000 + "x", "application/yaml"),
        ("{a: " * 500 + "1" + "}" * 500, "application/yaml"),
    ],
)
def test_nesting_has_a_bound(cluster: RunningCluster, body: str, kind: str) -> None:
    path = cluster.path("configmaps", "default")
    answer = cluster.request("POST", path, body, content_type=kind)
    assert answer.status == 400
    assert "exceeded max depth" in answer.json["message"]


@pytest.mark.parametrize(
    "line", ["data: {a: !!binary AAE=}", "data: {a: .nan}", "? [a]\n: b", "data: {a: !!set {b}}"]
)
def test_yaml_that_json_cannot_say_is_refused(cluster: RunningCluster, line: str) -> None:
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\n"
    answer = cluster.request(
        "PATCH",
        cluster.path("configmaps", "default", "odd"),
        head + line + "\n",
        content_type=APPLY,
        query={"fieldManager": "m"},
    )
    assert answer.status == 400
    assert answer.json["message"].startswith("error decoding YAML: ")


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_numbers_that_json_does_not_have_are_refused(cluster: RunningCluster, text: str) -> None:
    answer = cluster.request("POST", cluster.path("configmaps", "default"), text)
    assert answer.status == 400
    assert "looking for beginning of value" in answer.json["message"]


def test_a_watch_from_the_future_is_silent_and_ends_on_time(cluster: RunningCluster) -> None:
    query = {"watch": "1", "resourceVersion": "999999999", "timeoutSeconds": "1"}
    answer = cluster.request("GET", cluster.path("pods", "default"), query=query)
    assert (answer.status, answer.text) == (200, "")
