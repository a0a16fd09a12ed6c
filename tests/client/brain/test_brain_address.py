"""The Brain is found where it is, in the order that the documentation gives."""

from __future__ import annotations

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

from penstock.client import AsyncPenstock, BrainAddressError
from penstock.client.brain import brain_address, brain_finder
from penstock.client.brain.brain_address import BrainAddress, find_brain
from penstock.client.brain.brain_token import Account, BrainToken
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import ClusterAccess

SERVICE = {
    "metadata": {"name": "penstock-brain", "namespace": "penstock-system"},
    "spec": {"ports": [{"port": 8477}]},
}


SYSTEM = "/api/v1/namespaces/penstock-system"
AUDIENCE = {"audiences": ["penstock-brain"], "expirationSeconds": 3600}


def client(
    tmp_path: Path,
    services: list[Any] | int = 0,
    *,
    in_pod: bool = False,
    user: str = "anna",
    given: Any = AUDIENCE,
    has_account: bool = True,
) -> ClusterClient:
    """A cluster with these Services in penstock-system, or one that answers with this status.

    `user`: who the caller is; `given`: of which kind its tokens are, None where it gives none;
    `has_account`: that of the chart, as whom people call the Brain.
    """

    def answer(request: httpx.Request) -> httpx.Response:
        if isinstance(services, int) and services:
            return httpx.Response(services, json={"message": "no"})
        path = request.url.path
        if path == f"{SYSTEM}/services" and not isinstance(services, int):
            return httpx.Response(200, json={"items": services, "metadata": {}})
        if path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
            return httpx.Response(201, json={"status": {"userInfo": {"username": user}}})
        if path == f"{SYSTEM}/serviceaccounts/penstock-user" and not has_account:
            return httpx.Response(404, json={"message": "not found"})
        if path.endswith("/token") and given:
            account = path.removesuffix("/token").removeprefix("/api/v1/namespaces/")
            spec = json.loads(request.content)["spec"]
            token = f"of {account}".replace(" ", "-")
            assert spec["audiences"] == ["penstock-brain"]
            return httpx.Response(201, json={"spec": {**spec, **given}, "status": {"token": token}})
        if path.endswith("/token"):
            return httpx.Response(403, json={"message": "token is forbidden"})
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


def test_the_token_is_the_kubeconfigs_where_there_are_no_accounts_for_people(
    tmp_path: Path,
) -> None:
    with client(tmp_path, has_account=False) as cluster:
        own = find_brain(cluster, "http://brain", environ={}).token
        assert callable(own)
        assert own() == "mine"
        other = {"PENSTOCK_BRAIN_TOKEN": "other"}
        assert find_brain(cluster, "http://brain", environ=other).token == "other"
    with client(tmp_path) as cluster:
        own = find_brain(cluster, "http://brain", environ={}).token
        assert callable(own)
        assert own() == "of-penstock-system/serviceaccounts/penstock-user"
    with client(tmp_path, given=None) as cluster, pytest.raises(BrainAddressError, match="token"):
        find_brain(cluster, "http://brain", environ={})  # not another one in its place


def test_the_one_that_penstock_up_started_lies_beside_its_kubeconfig(tmp_path: Path) -> None:
    state = {"components": {"brain": {"url": "http://127.0.0.1:1"}}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with client(tmp_path) as cluster:
        assert find_brain(cluster, environ={}).url == "http://127.0.0.1:1"


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_state_that_others_may_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"components": {"brain": {"url": "http://127.0.0.1:1"}}}))
    path.chmod(mode)
    with client(tmp_path) as cluster, pytest.raises(BrainAddressError, match="chmod go-w"):
        find_brain(cluster, environ={})


def test_a_state_of_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"components": {"brain": {"url": "http://127.0.0.1:1"}}}))
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with client(tmp_path) as cluster, pytest.raises(BrainAddressError, match="your own"):
        find_brain(cluster, environ={})


@pytest.mark.parametrize(
    ("user", "options", "environ", "account"),
    [
        ("anna", {}, {}, "penstock-system/serviceaccounts/penstock-user"),
        ("system:serviceaccount:team:ci", {}, {}, "team/serviceaccounts/ci"),
        ("anna", {}, {"PENSTOCK_BRAIN_ACCOUNT": "team/me"}, "team/serviceaccounts/me"),
        (
            "anna",
            {"account": "team/me"},
            {"PENSTOCK_BRAIN_ACCOUNT": "x/y"},
            "team/serviceaccounts/me",
        ),
    ],
)
def test_one_that_is_found_is_shown_a_token_for_a_brain_and_no_other(
    tmp_path: Path, user: str, options: Any, environ: dict[str, str], account: str
) -> None:
    with client(tmp_path, [SERVICE], in_pod=True, user=user) as cluster:
        token = find_brain(cluster, environ=environ, **options).token
    assert callable(token)
    assert token() == f"of-{account}"


def test_a_token_that_is_given_is_shown_to_one_that_is_found(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("projected")
    with client(tmp_path, [SERVICE], in_pod=True, given=None) as cluster:
        named = find_brain(cluster, environ={"PENSTOCK_BRAIN_TOKEN": "named"})
        mounted = find_brain(cluster, environ={"PENSTOCK_BRAIN_TOKEN_FILE": str(path)})
    assert named.token == "named"
    assert callable(mounted.token)
    assert mounted.token() == "projected"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "token is forbidden; an administrator lists you"),
        ({"audiences": ["https://kubernetes.default.svc"]}, "no token for the audience"),
        ({"audiences": ["penstock-brain", "https://kubernetes.default.svc"]}, "no token for the"),
    ],
)
def test_without_such_a_token_it_says_how_to_get_one(tmp_path: Path, given: Any, said: str) -> None:
    with (
        client(tmp_path, [SERVICE], in_pod=True, given=given) as cluster,
        pytest.raises(BrainAddressError, match=said) as caught,
    ):
        find_brain(cluster, environ={})
    assert "--brain-account NAMESPACE/NAME" in str(caught.value)
    assert "--audience=penstock-brain" in str(caught.value)


def test_an_account_has_a_namespace(tmp_path: Path) -> None:
    with client(tmp_path, [SERVICE], in_pod=True) as cluster:
        with pytest.raises(BrainAddressError, match="the account for the Brain: 'me' is not NAMES"):
            find_brain(cluster, account="me", environ={})
        with pytest.raises(BrainAddressError, match=r"\$PENSTOCK_BRAIN_ACCOUNT: 'a/b/c' is not"):
            find_brain(cluster, environ={"PENSTOCK_BRAIN_ACCOUNT": "a/b/c"})


def test_another_namespace_can_be_named(tmp_path: Path) -> None:
    with client(tmp_path, [SERVICE], in_pod=True) as cluster:
        for options, environ in (
            ({"namespace": "elsewhere"}, {}),
            ({}, {"PENSTOCK_SYSTEM_NAMESPACE": "elsewhere"}),
        ):
            with pytest.raises(BrainAddressError, match="services is forbidden"):
                find_brain(cluster, environ=environ, **options)


def test_of_several_none_is_chosen(tmp_path: Path) -> None:
    other = {**SERVICE, "metadata": {"name": "impostor", "namespace": "penstock-system"}}
    with (
        client(tmp_path, [SERVICE, other], in_pod=True) as cluster,
        pytest.raises(BrainAddressError, match=r"2 Services.* impostor, penstock-brain; give"),
    ):
        find_brain(cluster, environ={})


def test_a_token_is_asked_for_anew_at_half_its_life(tmp_path: Path) -> None:
    asked: list[float] = []
    now = [100.0]

    def connect(access: ClusterAccess) -> ClusterClient:
        asked.append(now[0])
        return client(tmp_path, [SERVICE])

    with client(tmp_path) as cluster:
        access = cluster.access
    token = BrainToken(access, Account("a", "b"), connect=connect, clock=lambda: now[0])
    for moment in (100.0, 1899.0, 1901.0, 3000.0):
        now[0] = moment
        assert token() == "of-a/serviceaccounts/b"
    assert asked == [100.0, 1901.0]


def test_a_token_that_is_still_good_is_kept_where_it_cannot_be_renewed(tmp_path: Path) -> None:
    asked: list[float] = []
    now = [100.0]

    def connect(access: ClusterAccess) -> ClusterClient:
        asked.append(now[0])
        return client(tmp_path, [SERVICE], given=AUDIENCE if now[0] == 100.0 else None)

    with client(tmp_path) as cluster:
        access = cluster.access
    token = BrainToken(access, Account("a", "b"), connect=connect, clock=lambda: now[0])
    for moment in (100.0, 1901.0, 1902.0, 1930.9, 1931.0, 3690.0):
        now[0] = moment
        assert token() == "of-a/serviceaccounts/b"
    assert asked == [100.0, 1901.0, 1931.0, 3690.0]
    now[0] = 3700.0
    with pytest.raises(BrainAddressError, match="no token for the Brain"):
        token()


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

    monkeypatch.setattr(brain_address, "_first_line", interrupted)
    with client(tmp_path, [SERVICE]) as cluster, pytest.raises(KeyboardInterrupt):
        find_brain(cluster, environ={})
    assert started[0].poll() is not None


@pytest.mark.parametrize("cancelled", [True, False])
def test_who_is_cancelled_meanwhile_leaves_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    looking = threading.Event()

    def find(*_: Any, **__: Any) -> BrainAddress:
        looking.set()
        time.sleep(0.2)
        started.append(subprocess.Popen(["sleep", "30"]))
        return BrainAddress("http://127.0.0.1:1", None, "forwarded", started[-1])

    monkeypatch.setattr(brain_finder, "find_brain", find)
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
