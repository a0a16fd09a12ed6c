"""A cluster of one's own to replay against: ``PENSTOCK_TEST_KUBECONFIG`` names its kubeconfig.

It must be a throw-away cluster: the scenarios create and delete namespaces ``g-*``, CRDs of the
groups ``golden.dev`` and ``life.golden.dev``, and nodes ``golden-*``.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.tests.golden.player import Target
from cluster.tests.golden.recordings import Scenario

VARIABLE = "PENSTOCK_TEST_KUBECONFIG"
_GONE_SECONDS = 60.0
_MERGE = "application/merge-patch+json"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRD_NAMES = ("widgets.golden.dev", "gadgets.golden.dev", "gizmos.life.golden.dev")
_LEFT_OVER = (
    "/apis/scheduling.k8s.io/v1/priorityclasses/golden-high",
    "/api/v1/nodes/golden-n1",
)


class NoStoreAccessError(Exception):
    """A scenario needs the store compacted, which only whoever runs the cluster can do."""


def kubeconfig() -> Path | None:
    """The kubeconfig of the cluster to replay against; None: the embedded one."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


def target(path: Path) -> Target:
    """The cluster of the current context; its user must have a bearer token."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    context = _named(content["contexts"], content["current-context"])["context"]
    cluster = _named(content["clusters"], context["cluster"])["cluster"]
    user = _named(content["users"], context["user"])["user"]
    if "token" not in user:
        raise ValueError(f"{path}: user {context['user']} has no token, which the replay needs")
    return Target(cluster["server"], user["token"], _refuse_to_compact, _tls(cluster))


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _tls(cluster: dict[str, Any]) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https:"):
        return None
    if "certificate-authority-data" in cluster:
        pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=pem)
    return ssl.create_default_context(cafile=cluster.get("certificate-authority"))


def _refuse_to_compact() -> None:
    raise NoStoreAccessError("the store of a cluster of one's own cannot be compacted from here")


@contextlib.contextmanager
def cleared(server: Target, scenario: Scenario) -> Iterator[None]:
    """Nothing of an earlier run is there before, nothing of this one after."""
    _clear(server, scenario)
    try:
        yield
    finally:
        _clear(server, scenario)


def _clear(server: Target, scenario: Scenario) -> None:
    spaces = [f"/api/v1/namespaces/{name}" for name in scenario.setup.get("namespaces", ())]
    for path in spaces:
        _let_go(server, path)
        # Nobody ends the pods of a cluster without kubelets.
        _send(server, "DELETE", f"{path}/pods?gracePeriodSeconds=0")
    for path in (*_LEFT_OVER, *spaces, *(f"{_CRDS}/{name}" for name in _CRD_NAMES)):
        end = time.monotonic() + _GONE_SECONDS
        while _send(server, "DELETE", path)[0] != 404:
            if time.monotonic() > end:
                raise AssertionError(f"{path} is still there after {_GONE_SECONDS} s")
            time.sleep(0.05)


def _let_go(server: Target, path: str) -> None:
    """Remove the finalizers that a scenario left on its objects."""
    custom = path.replace("/api/v1", "/apis/golden.dev/v1alpha1")
    for collection in (f"{path}/configmaps", f"{path}/pods", f"{custom}/widgets"):
        status, text = _send(server, "GET", collection)
        for item in json.loads(text)["items"] if status == 200 else ():
            if item["metadata"].get("finalizers"):
                body = json.dumps({"metadata": {"finalizers": None}})
                _send(server, "PATCH", f"{collection}/{item['metadata']['name']}", body)


def _send(server: Target, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {server.token}"}
    if body is not None:
        headers["Content-Type"] = _MERGE
    with contextlib.closing(server.connect()) as connection:
        connection.request(method, path, body, headers)
        response: http.client.HTTPResponse = connection.getresponse()
        return response.status, response.read()
