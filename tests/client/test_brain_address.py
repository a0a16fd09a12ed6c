"""The Brain is found where it is, in the order that the documentation gives."""

import asyncio
import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import AsyncPenstock, BrainAddressError, asyncsdk, brainaddress
from penstock.client.brainaddress import BrainAddress, find_brain
from penstock.client.cluster import ClusterClient
from penstock.client.kubeconfig import ClusterAccess

SERVICE = {
    "metadata": {"name": "penstock-brain", "namespace": "penstock-system"},
    "spec": {"ports": [{"port": 8477}]},
}


def client(tmp_path: Path, services: list[Any] | int = 0, *, in_pod: bool = False) -> ClusterClient:
    """A cluster that has these Services, or answers with this status."""

    def answer(request: httpx.Request) -> httpx.Response:
        if isinstance(services, int) and services:
            return httpx.Response(services, json={"message": "no"})
        if request.url.path == "/api/v1/services" and not isinstance(services, int):
            return httpx.Response(200, json={"items": services, "metadata": {}})
        return httpx.Response(403, json={"message": "services is forbidden"})

    access = ClusterAccess(
        server="http://api",
        namespace="default",
        context="here",
        kubeconfig=None if in_pod else str(tmp_path / "kubeconfig"),
        token=lambda: "mine",
    )
    return ClusterClient(access, transport=httpx.MockTransport(answer))


def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_what_is_given_comes_first(tmp_path: Path) -> None:
    environ = {"PENSTOCK_BRAIN_URL": "http://variable"}
    with client(tmp_path) as cluster:
        assert find_brain(cluster, "http://given/", environ=environ).url == "http://given"
        assert find_brain(cluster, environ=environ).url == "http://variable"


def test_the_token_is_the_kubeconfigs_unless_another_is_named(tmp_path: Path) -> None:
    with client(tmp_path) as cluster:
        own = find_brain(cluster, "http://brain", environ={}).token
        assert callable(own)
        assert own() == "mine"
        other = {"PENSTOCK_BRAIN_TOKEN": "other"}
        assert find_brain(cluster, "http://brain", environ=other).token == "other"


def test_the_one_that_penstock_up_started_lies_beside_its_kubeconfig(tmp_path: Path) -> None:
    state = {"components": {"brain": {"url": "http://127.0.0.1:1"}}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with client(tmp_path) as cluster:
        assert find_brain(cluster, environ={}).url == "http://127.0.0.1:1"


def test_in_a_pod_it_is_the_service(tmp_path: Path) -> None:
    with client(tmp_path, [SERVICE], in_pod=True) as cluster:
        found = find_brain(cluster, environ={})
    assert found.url == "http://penstock-brain.penstock-system.svc:8477"


def test_else_a_port_is_forwarded_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        f'echo "$@" > {tmp_path}/arguments; echo $KUBECONFIG >> {tmp_path}/arguments\n'
        'echo "Forwarding from 127.0.0.1:4321 -> 8477"\nexec sleep 30'
    )
    fake_kubectl(tmp_path, monkeypatch, script)
    with client(tmp_path, [SERVICE]) as cluster:
        found = find_brain(cluster, environ={})
    assert found.url == "http://127.0.0.1:4321"
    process = found._forward
    assert process is not None
    assert process.poll() is None
    found.close()
    assert process.poll() is not None
    assert (tmp_path / "arguments").read_text().splitlines() == [
        "--namespace=penstock-system --context=here port-forward service/penstock-brain :8477",
        str(tmp_path / "kubeconfig"),
    ]


def test_ctrl_c_meanwhile_leaves_no_forwarded_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "Forwarding from 127.0.0.1:4321 -> 8477"\nexec sleep 30'
    fake_kubectl(tmp_path, monkeypatch, script)
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(process: subprocess.Popen[bytes]) -> bytes:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(brainaddress, "_first_line", interrupted)
    with client(tmp_path, [SERVICE]) as cluster, pytest.raises(KeyboardInterrupt):
        find_brain(cluster, environ={})
    assert started[0].poll() is not None


@pytest.mark.parametrize("cancelled", [True, False])
def test_who_is_cancelled_meanwhile_leaves_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    looking = threading.Event()

    def find(*_: Any) -> BrainAddress:
        looking.set()
        time.sleep(0.2)
        started.append(subprocess.Popen(["sleep", "30"]))
        return BrainAddress("http://127.0.0.1:1", None, "forwarded", started[-1])

    monkeypatch.setattr(asyncsdk, "find_brain", find)
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: http://api}}]}"
    )

    async def main() -> None:
        async with AsyncPenstock(kubeconfig=config) as penstock:
            first, second = (asyncio.create_task(penstock.brain()) for _ in range(2))
            await asyncio.to_thread(looking.wait, 10)
            if cancelled:
                first.cancel()
            found = await asyncio.gather(first, second, return_exceptions=True)
            assert isinstance(found[0], asyncio.CancelledError) is cancelled
            assert found[1] is await penstock.brain()

    asyncio.run(main())
    assert len(started) == 1, "it is looked for once"
    assert started[0].poll() is not None


@pytest.mark.parametrize("url", ["nonsense", "ftp://brain", "http://", "http://host:port"])
def test_what_is_no_address_is_refused_at_once(tmp_path: Path, url: str) -> None:
    with client(tmp_path) as cluster:
        with pytest.raises(BrainAddressError, match=r"the address of the Brain: an address http"):
            find_brain(cluster, url, environ={})
        with pytest.raises(BrainAddressError, match=r"in \$PENSTOCK_BRAIN_URL: an address http"):
            find_brain(cluster, environ={"PENSTOCK_BRAIN_URL": url})


def test_a_forwarding_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_kubectl(tmp_path, monkeypatch, "echo 'error: no pods' >&2; exit 1")
    with (
        client(tmp_path, [SERVICE]) as cluster,
        pytest.raises(BrainAddressError, match=r"error: no pods.*--brain"),
    ):
        find_brain(cluster, environ={})


@pytest.mark.parametrize(
    ("services", "said"),
    [([], "no Service of a Brain"), (403, "not found: no"), (0, "services is forbidden")],
)
def test_one_that_is_not_found_says_what_to_do(tmp_path: Path, services: Any, said: str) -> None:
    with (
        client(tmp_path, services) as cluster,
        pytest.raises(BrainAddressError, match=said) as caught,
    ):
        find_brain(cluster, environ={})
    assert "--brain or $PENSTOCK_BRAIN_URL" in str(caught.value)


def test_without_kubectl_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        client(tmp_path, [SERVICE]) as cluster,
        pytest.raises(BrainAddressError, match="kubectl, which would lead there"),
    ):
        find_brain(cluster, environ={})
