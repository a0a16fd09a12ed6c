"""Users who show a client certificate, as the kubeconfigs of kubeadm, kind and k3s have them."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.apiserver.certificates import Authority
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True), ServeOptions(tls=True)) as running:
        yield running


def kubectl(text: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder / "kubeconfig"
    path.write_text(text)
    program = shutil.which("kubectl")
    assert program
    command = [program, "--kubeconfig", path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def whoami(
    cluster: RunningCluster, certificate: tuple[bytes, bytes], folder: Path, **headers: str
) -> tuple[str, list[str]]:
    """Name and groups that the server sees behind a certificate."""
    file = folder / "client.pem"
    file.write_bytes(b"".join(certificate))
    assert cluster.server.ca_pem is not None
    context = ssl.create_default_context(cadata=cluster.server.ca_pem.decode())
    context.load_cert_chain(file)
    line = http.client.HTTPSConnection(cluster.url.partition("//")[2], context=context, timeout=20)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    try:
        line.request("POST", path, "{}", {"Content-Type": "application/json", **headers})
        user = json.loads(line.getresponse().read())["status"]["userInfo"]
    finally:
        line.close()
    return user["username"], user["groups"]


def test_kubectl_is_the_user_of_its_certificate(cluster: RunningCluster, tmp_path: Path) -> None:
    text = cluster.server.certified_kubeconfig("ann", "dev", "night")
    assert "token" not in text
    said = kubectl(text, tmp_path, "auth", "whoami", "-o", "json")
    assert said.returncode == 0, said.stderr
    user = json.loads(said.stdout)["status"]["userInfo"]
    assert user["username"] == "ann"
    assert user["groups"] == ["dev", "night", "system:authenticated"]


def test_roles_hold_for_the_user_and_for_the_groups(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    text = cluster.server.certified_kubeconfig("bert", "readers")
    refused = kubectl(text, tmp_path, "get", "pods")
    assert 'User "bert" cannot list resource "pods"' in refused.stderr
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "Group", "name": "readers"}],
    }
    cluster.create(f"clusterrolebindings.{RBAC}", binding)
    assert kubectl(text, tmp_path, "get", "pods").returncode == 0
    assert kubectl(text, tmp_path, "delete", "namespace", "default").returncode == 1


def test_a_certificate_counts_before_a_token(cluster: RunningCluster, tmp_path: Path) -> None:
    authority = cluster.server.authority
    assert authority is not None
    admin = {"Authorization": f"Bearer {cluster.token}"}
    name, groups = whoami(cluster, authority.client("carl"), tmp_path, **admin)
    assert (name, groups) == ("carl", ["system:authenticated"])


def test_one_of_another_authority_or_that_has_ended_is_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    authority = cluster.server.authority
    assert authority is not None
    for certificate in (
        Authority().client("kubernetes-admin", ["system:masters"]),
        authority.client("late", (), -timedelta(seconds=5)),
    ):
        # TLS 1.3 says so when the client first reads, an answer on its way may meet a reset.
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            whoami(cluster, certificate, tmp_path)
    assert cluster.list("namespaces")


def test_without_any_there_is_a_token_or_nobody(cluster: RunningCluster) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = cluster.request("POST", path, {}).json
    assert "system:masters" in answer["status"]["userInfo"]["groups"]
    assert cluster.request("GET", "/api/v1/pods", token="").status == 403


def test_the_administrators_kubeconfig_has_one_where_that_is_asked_for(tmp_path: Path) -> None:
    with api_server(serving=ServeOptions(tls=True, client_certificate=True)) as cluster:
        text = cluster.kubeconfig_path.read_text()
        [user] = yaml.safe_load(text)["users"]
        assert sorted(user["user"]) == ["client-certificate-data", "client-key-data"]
        assert b"PRIVATE KEY" in base64.b64decode(user["user"]["client-key-data"])
        assert kubectl(text, tmp_path, "create", "namespace", "made").returncode == 0


def test_there_is_none_without_tls() -> None:
    with (
        api_server() as cluster,
        pytest.raises(LookupError, match=r"need TLS: ServeOptions\(tls=True\)"),
    ):
        cluster.server.certified_kubeconfig("ann")


def test_a_kept_authority_signs_as_before(tmp_path: Path) -> None:
    first = Authority()
    again = Authority(first.secret)
    assert again.pem == first.pem != Authority().pem
    again.write_serving(tmp_path, "127.0.0.1")
    context = ssl.create_default_context(cadata=first.pem.decode())
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")


@pytest.mark.parametrize("part", ["", "CERTIFICATE", "PRIVATE KEY"])
def test_a_damaged_authority_is_an_error(part: str) -> None:
    whole = Authority().secret
    at = whole.index(f"-----END {part}") if part else 0
    with pytest.raises(ValueError, match=r"PEM|key|MalformedFraming|deserialize"):
        Authority(whole[:at])


def test_clients_know_the_server_of_a_cluster_that_was_started_again(tmp_path: Path) -> None:
    engine = EngineOptions(rbac=True, database=tmp_path / "cluster.db")
    seen = []
    for _ in range(2):
        with api_server(engine, ServeOptions(tls=True)) as running:
            seen.append((running.server.ca_pem, running.server.token))
    assert seen[0] == seen[1]
