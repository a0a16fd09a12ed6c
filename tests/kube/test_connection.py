"""Which cluster a process speaks to, and as whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration

from penstock.kube import connection
from penstock.kube.connection import (
    account_token,
    bearer_token,
    connect,
    make_identity,
    own_namespace,
)
from penstock.kube.errors import ConfigurationError
from tests.kube.account import mounted


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The account of a pod, as the kubelet mounts it."""
    account = mounted(tmp_path / "account", monkeypatch)
    account.write("t")
    return account.folder


def kubeconfig(folder: Path, server: str = "https://cluster.example:6443") -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


def configuration(path: Path) -> Configuration:
    async def main() -> Configuration:
        client = await connect(path, "tests")
        try:
            assert client.user_agent == "tests"
            return client.configuration
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    return asyncio.run(main())


@pytest.mark.parametrize("variable", [None, ""])
def test_a_pod_without_a_kubeconfig_uses_its_account(
    account: Path, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", variable)
    assert account_token(None) == account / "token"
    assert own_namespace() == "ours"


def test_a_kubeconfig_that_is_named_wins(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert account_token(Path("given")) is None
    monkeypatch.setenv("KUBECONFIG", "given")
    assert account_token(None) is None


def test_outside_a_cluster_there_is_no_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ACCOUNT", tmp_path / "none")
    assert account_token(None) is None
    assert own_namespace() == "penstock-system"


@pytest.mark.parametrize("write", [None, lambda path: path.write_text("not: a kubeconfig")])
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, write: Callable[[Path], object] | None
) -> None:
    path = tmp_path / "kubeconfig"
    if write is not None:
        write(path)
    with pytest.raises(ConfigurationError, match=f"{path}: .*name another with --kubeconfig"):
        configuration(path)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "cluster.example"}, None),
        ({}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path,
    variables: dict[str, str],
    proxy: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert configuration(kubeconfig(tmp_path)).proxy == proxy


def tokens(path: Path | None, later: Callable[[], object]) -> list[str]:
    """What is sent at first, and after something happened."""

    async def main() -> list[str]:
        client = await connect(path, "tests")
        try:
            first = await bearer_token(client.configuration)
            later()
            return [first, await bearer_token(client.configuration)]
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    return asyncio.run(main())


def test_the_token_of_a_pod_is_bare_and_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = mounted(tmp_path / "account", monkeypatch)
    account.write("first")

    def renewed() -> None:
        account.write("second")
        account.wait(61)

    assert tokens(None, renewed) == ["first", "second"]


def test_the_token_of_a_kubeconfig_is_bare(tmp_path: Path) -> None:
    assert tokens(kubeconfig(tmp_path), lambda: None) == ["t", "t"]


def test_a_client_certificate_is_no_token() -> None:
    assert asyncio.run(bearer_token(Configuration())) == ""


def test_no_two_replicas_have_one_name() -> None:
    assert make_identity() != make_identity()
