"""A Brain is found where the chart is, is shown nothing of the API server's, and knows the caller.

The API server enforces roles, those of the chart; the Brain is a real process that asks it. Only
``kubectl port-forward`` is played, since nobody here leads to the pods of a Service: it tells which
namespace it was asked for.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.client import (
    BrainAddressError,
    BrainRefusedError,
    BrainUnavailableError,
    NotAllowedError,
    Penstock,
    RetryPolicy,
)
from penstock.client.brain.brain_address import BrainAddress
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.scale import SCALE
from penstock.crds.schema import crd
from penstock.wire import JobRegistration
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.api.service import REGISTRATION
from tests.api.test_command import running
from tests.charts.rendering import SYSTEM, named, render
from tests.cli.terminal import Terminal
from tests.client.listener import Listener, listening

TENANT = "aaa-tenant"  # before penstock-system, in the order in which namespaces are listed
ANNA = {"kind": "User", "name": "anna"}
APPLIED = {"penstock-user", "penstock-viewer", "penstock-editor", "penstock-brain-ca"}
RBAC = "rbac.authorization.k8s.io"


@dataclass
class Place:
    """A cluster with the chart's accounts and Service, and a tenant who wants to be the Brain."""

    cluster: RunningCluster
    tenant: Listener
    folder: Path
    url: str = ""

    def kubeconfig(self, person: str) -> Path:
        """The kubeconfig of somebody whom the API server knows as that."""
        document = yaml.safe_load(self.cluster.kubeconfig_path.read_text())
        document["users"][0]["user"]["as"] = person
        path = self.folder / f"kubeconfig-{person}"
        path.write_text(yaml.safe_dump(document))
        return path

    def forwarded(self) -> list[str]:
        """The namespaces to which a port was led."""
        path = self.folder / "forwarded"
        return path.read_text().split() if path.exists() else []


@pytest.fixture(scope="module")
def running_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, str]]:
    folder = tmp_path_factory.mktemp("found")
    with api_server(EngineOptions(rbac=True)) as cluster:
        for resource in (ELASTICJOB, SCALE):
            cluster.apply(crd(resource))
        for name in (SYSTEM, TENANT, "team"):
            cluster.namespace(name)
        objects = render({"roles": {"brainUsers": [ANNA]}})
        for one in objects:
            if one["metadata"]["name"] in APPLIED:
                cluster.apply(one)
        certificate = named(objects, "Secret", "penstock-brain-tls")["data"]
        for name, value in certificate.items():
            (folder / name).write_bytes(base64.b64decode(value))
        options = (
            f"--kubeconfig={cluster.kubeconfig_path}",
            "--require-audience",
            f"--tls-certificate={folder / 'tls.crt'}",
            f"--tls-key={folder / 'tls.key'}",
        )
        service = named(objects, "Service", "penstock-brain")
        cluster.apply(service)
        cluster.create("services", {**service, "metadata": _labels_of(service)}, TENANT)
        with (
            listening() as tenant,
            running(folder, *options) as (url, _),
        ):
            yield Place(cluster, tenant, folder), url


@pytest.fixture
def place(
    running_place: tuple[Place, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Place]:
    """The same, with a kubectl that leads to the Brain, or to the tenant."""
    found, url = running_place
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        f'echo "${{1#--namespace=}}" >> {tmp_path}/forwarded\n'
        f'case "$1" in --namespace={SYSTEM}) port={url.rpartition(":")[2]};;'
        f" *) port={found.tenant.port};; esac\n"
        'echo "Forwarding from 127.0.0.1:$port -> 8443"\nexec sleep 60\n'
    )
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in ("URL", "TOKEN", "TOKEN_FILE", "ACCOUNT", "CA_FILE"):
        monkeypatch.delenv(f"PENSTOCK_BRAIN_{name}", raising=False)
    monkeypatch.delenv("PENSTOCK_SYSTEM_NAMESPACE", raising=False)
    yield Place(found.cluster, found.tenant, tmp_path, url)
    assert found.tenant.callers == 0, "somebody went to the tenant"


def _labels_of(service: Any) -> Any:
    return {"name": "penstock-brain", "labels": service["metadata"]["labels"]}


def shown(address: BrainAddress | None) -> str:
    """The token that the Brain is shown."""
    assert address is not None
    assert callable(address.token)
    return address.token()


def test_an_administrator_goes_to_the_charts_and_not_to_a_tenants(place: Place) -> None:
    with Penstock(kubeconfig=place.cluster.kubeconfig_path) as penstock:
        assert list(penstock.brain.jobs()) == []
        token = shown(penstock.brain_address)
        assert penstock.brain_address is not None
        assert penstock.brain_address.url.startswith("https://127.0.0.1:")
    assert place.forwarded() == [SYSTEM]
    assert token != place.cluster.token
    refused = place.cluster.request("GET", "/api/v1/namespaces", token=token)
    assert refused.status == 401, "it is good for a Brain alone"


def test_a_person_whom_the_chart_lists_reads_and_no_more(place: Place) -> None:
    with Penstock(kubeconfig=place.kubeconfig("anna")) as penstock:
        assert list(penstock.brain.jobs()) == []
        with pytest.raises(NotAllowedError, match="penstock-user"):
            penstock.brain.register("uid", JobRegistration.model_validate(REGISTRATION))
        token = shown(penstock.brain_address)
    assert place.cluster.request("GET", "/api", token=token).status == 401


def test_one_whom_it_does_not_list_is_told_what_to_do(place: Place) -> None:
    with (
        Penstock(kubeconfig=place.kubeconfig("ben")) as penstock,
        pytest.raises(BrainAddressError, match=r"services is forbidden.*give its address"),
    ):
        penstock.brain  # noqa: B018  the attribute's access is what raises
    place.cluster.apply(_may_list_services("ben"))
    with (
        Penstock(kubeconfig=place.kubeconfig("ben")) as penstock,
        pytest.raises(BrainAddressError, match=r"roles\.brainUsers.*--brain-account"),
    ):
        penstock.brain  # noqa: B018  the attribute's access is what raises
    assert place.forwarded() == []


def test_an_address_of_ones_own_is_shown_a_token_for_a_brain_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = place.cluster.get("configmaps", "penstock-brain-ca", SYSTEM)["data"]["ca.crt"]
    authority = place.folder / "authority.pem"
    authority.write_text(published)
    monkeypatch.setenv("PENSTOCK_BRAIN_CA_FILE", str(authority))
    with Penstock(kubeconfig=place.cluster.kubeconfig_path, brain_url=place.url) as penstock:
        assert list(penstock.brain.jobs()) == []
        token = shown(penstock.brain_address)
    assert place.cluster.request("GET", "/api", token=token).status == 401


def test_the_clusters_own_token_is_refused_and_what_to_do_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BRAIN_TOKEN", place.cluster.token)
    with (
        Penstock(kubeconfig=place.cluster.kubeconfig_path) as penstock,
        pytest.raises(BrainRefusedError, match=r"create token ACCOUNT --audience=penstock-brain"),
    ):
        list(penstock.brain.jobs())


def test_one_with_another_certificate_hears_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = named(render({}), "ConfigMap", "penstock-brain-ca")["data"]["ca.crt"]
    authority = place.folder / "another.pem"
    authority.write_text(other)
    monkeypatch.setenv("PENSTOCK_BRAIN_CA_FILE", str(authority))
    patience = RetryPolicy(total_seconds=0.5, attempt_seconds=5)
    with (
        Penstock(kubeconfig=place.cluster.kubeconfig_path, retry=patience) as penstock,
        pytest.raises(BrainUnavailableError, match="certificate verify failed"),
    ):
        list(penstock.brain.jobs())


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAA=="])
def test_a_file_without_certificates_is_an_error_that_names_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    authority = place.folder / "broken.pem"
    authority.write_text(text)
    monkeypatch.setenv("PENSTOCK_BRAIN_CA_FILE", str(authority))
    with (
        Penstock(kubeconfig=place.cluster.kubeconfig_path) as penstock,
        pytest.raises(BrainAddressError, match=r"broken\.pem: no certificate in PEM"),
    ):
        penstock.brain  # noqa: B018  the attribute's access is what raises


def test_another_account_can_be_named(place: Place) -> None:
    place.cluster.create("serviceaccounts", {"metadata": {"name": "planner"}}, "team")
    ran = Terminal(place.cluster.kubeconfig_path)(
        "doctor", "-o", "json", "--brain-account=team/planner", "--namespace=team"
    )
    brain = [each["said"] for each in ran.json if each["check"] == "Brain"]
    assert any("refuses you" in each and "team:planner" in each for each in brain), ran.json


def test_of_two_in_the_namespace_none_is_chosen(place: Place) -> None:
    service = place.cluster.get("services", "penstock-brain", SYSTEM)
    second = {"metadata": {**_labels_of(service), "name": "a-second"}, "spec": service["spec"]}
    second["spec"] = {"ports": [{"port": 8477}]}
    place.cluster.create("services", second, SYSTEM)
    try:
        ran = Terminal(place.cluster.kubeconfig_path)("fragmentation")
    finally:
        place.cluster.delete("services", "a-second", SYSTEM)
    assert ran.code == 5
    assert "a-second, penstock-brain" in ran.err
    assert place.forwarded() == []


def test_none_in_the_namespace_is_not_looked_for_elsewhere(place: Place) -> None:
    ran = Terminal(place.cluster.kubeconfig_path)("fragmentation", "--system-namespace=team")
    assert ran.code == 5
    assert "no Service of a Brain in namespace team; name that of the release" in ran.err
    assert place.forwarded() == []


def _may_list_services(person: str) -> Any:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{person}-views"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": person}],
    }
