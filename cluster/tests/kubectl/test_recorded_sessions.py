"""The real kubectl prints, sends and exits as it did against a Kubernetes API server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.tests.golden.recordings import fixture
from cluster.tests.kubectl.kubectl import PROGRAM, Kubectl, needs_kubectl
from cluster.tests.kubectl.sessions import (
    FRESH_CACHE,
    INPUT,
    NAMESPACE,
    ORDER,
    Command,
    load,
    play,
    typed,
)
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import api_server

pytestmark = needs_kubectl

#: The recorded server had not published the schema of the new CRD when this ran, so that kubectl
#: looked for it elsewhere; the embedded cluster publishes it at once.
EARLY = ("apply", 0)
#: Lines that say who the recorded administrator was, or which server it was.
OWN = {
    "auth": ("Username", "UID", "Groups", "Extra:"),
    "api-resources": ("Server Version", "Client Version", "Kustomize Version", "WARNING: version"),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Command]]]:
    """Every session, played in the recorded order on one cluster."""
    folder: Path = tmp_path_factory.mktemp("kubectl")
    with api_server(serving=ServeOptions(tls=True)) as cluster:
        cluster.apply(fixture("fixtures/crd-widgets.json"))
        cluster.apply(fixture("fixtures/crd-gadgets.json"))
        cluster.namespace(NAMESPACE)
        kubectl = Kubectl(cluster, folder, NAMESPACE)
        found = {}
        for name in ORDER:
            if name in FRESH_CACHE:
                shutil.rmtree(folder / "cache", ignore_errors=True)
            if name == "describe":
                widget = cluster.get("widgets.golden.dev", "demo", NAMESPACE)
                cluster.create("events", started_event(widget), NAMESPACE)
            found[name] = [play(kubectl, command, INPUT) for command in load(name)]
        yield found


def started_event(widget: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo.1"},
        "reason": "Started",
        "message": "it began",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "golden"},
        "involvedObject": {
            "apiVersion": "golden.dev/v1alpha1",
            "kind": "Widget",
            "name": "demo",
            "namespace": NAMESPACE,
            "uid": widget["metadata"]["uid"],
        },
    }


def without(lines: tuple[str, ...], starts: tuple[str, ...]) -> list[str]:
    return [line for line in lines if not line.startswith(starts)] if starts else list(lines)


@pytest.mark.parametrize("name", ORDER)
def test_session_is_as_recorded(played: dict[str, list[Command]], name: str) -> None:
    assert len(played[name]) == len(load(name)) > 0
    for index, (recorded, got) in enumerate(zip(load(name), played[name], strict=True)):
        own = OWN.get(name, ())
        assert without(got.out, own) == without(recorded.out, own), typed(recorded)
        assert without(got.err, own) == without(recorded.err, own), typed(recorded)
        assert got.code == recorded.code, typed(recorded)
        if (name, index) != EARLY:
            assert list(got.requests) == list(recorded.requests), typed(recorded)


def test_every_recorded_session_is_played() -> None:
    assert len(ORDER) == 16
    assert {path.stem for path in INPUT.parent.glob("*.txt")} == set(ORDER)


def test_kubectl_is_the_real_one() -> None:
    assert PROGRAM is not None
    assert Path(PROGRAM).stat().st_size > 0
