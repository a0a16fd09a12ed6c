"""The names of pods, without a cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock_cluster.kubelet.network.addresses import AddressBlock
from penstock_cluster.kubelet.network.hosts import Blackhole, HostsFile, host_name, records


def pod(name: str, ip: str, *, ready: bool = True, phase: str = "Running", **spec) -> dict:
    status = {"podIP": ip, "phase": phase}
    status["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": name, "namespace": "ns", "labels": {"app": "job"}}
    return {"metadata": metadata, "spec": spec, "status": status}


def service(**spec) -> dict:
    metadata = {"name": "job", "namespace": "ns"}
    return {"metadata": metadata, "spec": {"selector": {"app": "job"}, **spec}}


DOMAIN = "job.ns.svc.cluster.local"


def test_a_service_names_its_pods_and_pods_with_its_subdomain_have_own_names() -> None:
    pods = [pod("a", "127.1.0.1", hostname="w-0", subdomain="job"), pod("b", "127.1.0.2")]
    assert records([service()], pods) == {
        DOMAIN: ["127.1.0.1", "127.1.0.2"],
        f"w-0.{DOMAIN}": ["127.1.0.1"],
    }


def test_who_is_not_ready_has_a_name_only_where_it_is_published() -> None:
    pods = [pod("a", "127.1.0.1", ready=False, hostname="w-0", subdomain="job")]
    assert records([service()], pods) == {}
    assert f"w-0.{DOMAIN}" in records([service(publishNotReadyAddresses=True)], pods)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_who_has_ended_has_no_name(phase: str) -> None:
    assert records([service(publishNotReadyAddresses=True)], [pod("a", "1", phase=phase)]) == {}


def test_other_namespaces_and_labels_are_not_selected() -> None:
    stranger, other = pod("a", "127.1.0.1"), pod("b", "127.1.0.2")
    stranger["metadata"]["namespace"] = "elsewhere"
    other["metadata"]["labels"] = {}
    assert records([service()], [stranger, other]) == {}
    assert records([service(selector=None)], [pod("c", "127.1.0.3")]) == {}


def test_the_file_changes_only_when_the_names_do(tmp_path: Path) -> None:
    file = HostsFile(tmp_path / "hosts")
    assert file.write({"a": ["1", "2"]})
    assert not file.write({"a": ["1", "2"]})
    assert file.path.read_text() == "1 a\n2 a\n"


def test_host_names() -> None:
    assert host_name({"metadata": {"name": "p"}, "spec": {"hostname": "h"}}) == "h"
    assert len(host_name({"metadata": {"name": "p" * 80}, "spec": {}})) == 63


def test_two_clusters_never_hold_the_same_block() -> None:
    first, second = AddressBlock(), AddressBlock()
    try:
        assert first.number != second.number
        assert first.assign("a") == first.assign("a")
        assert first.assign("a") != first.assign("b")
    finally:
        first.close()
        second.close()


def test_a_blackhole_neither_accepts_nor_refuses() -> None:
    blackhole = Blackhole("127.0.0.1")
    try:
        with pytest.raises(TimeoutError):
            socket.create_connection(blackhole.address, timeout=0.3)
    finally:
        blackhole.close()
