"""The account of a pod, as the kubelet mounts it and as the Kubernetes client finds it there."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes.aio.config import incluster_config

from penstock.kube import connection
from penstock_cluster.apiserver.certificates import Authority


class Account:
    """A token, the authority to trust and a namespace, and the time that the client believes in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority()
        authority.write_serving(folder, "127.0.0.1")
        self.authority = authority.pem
        self._later = datetime.timedelta()

    def write(self, token: str) -> None:
        """What the kubelet does when the token is due."""
        (self.folder / "token").write_text(token)
        (self.folder / "ca.crt").write_bytes(self.authority)
        (self.folder / "namespace").write_text("ours\n")

    def wait(self, seconds: float) -> None:
        """Let time pass for the client, which reads the token anew once a minute."""
        self._later += datetime.timedelta(seconds=seconds)

    def now(self) -> datetime.datetime:
        return datetime.datetime.now() + self._later  # noqa: DTZ005  as the client reads it


def mounted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, int] = ("10.0.0.1", 443)
) -> Account:
    """The account of the pod that this process now is in, at an API server."""
    folder.mkdir()
    account = Account(folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server[1]))
    monkeypatch.setattr(connection, "_ACCOUNT", folder)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    clock = SimpleNamespace(datetime=account, timedelta=datetime.timedelta)
    monkeypatch.setattr(incluster_config, "datetime", clock)
    return account
