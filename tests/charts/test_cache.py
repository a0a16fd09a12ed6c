"""The file cache of each node in the chart: off by default, with no more rights than it needs."""

from __future__ import annotations

import base64
import warnings

import pytest
import typer
from typer.core import TyperGroup

from penstock.base import ports, quantity
from penstock.base.listener import split_address
from penstock.controller.reconcile.desired.cache import memory_of
from penstock.data.cache.commands import cache
from penstock.data.cache.locations import parse_memory
from penstock.data.cache.node.process import checked_peers
from tests.charts.rendering import VALUE_SETS, Json, named, of_kind, render
from tests.charts.test_rendering import deployments, pod_of

CACHED = {name: values for name, values in VALUE_SETS.items() if "cache" in values}
OF_A_NODE = VALUE_SETS["cached"]
OVER_NODES = VALUE_SETS["cached-over-nodes"]
SOCKET = "/run/penstock/cache.sock"

each_cached = pytest.mark.parametrize("values", CACHED.values(), ids=CACHED.keys())


def cache_pod(values: Json) -> Json:
    return pod_of(named(render(values), "DaemonSet", "penstock-cache"))


def command(pod: Json) -> list[str]:
    [container] = pod["containers"]
    found: list[str] = container["command"]
    return found


def told(values: Json) -> list[str]:
    """What the controller is told of the cache."""
    pod = pod_of(deployments(render(values))["penstock-controller"])
    return [one for one in command(pod) if one.startswith("--cache")]


@pytest.mark.parametrize("values", [{}, {"cache": None}, {"cache": {"enabled": False}}])
def test_it_is_off_by_default_and_for_values_of_earlier_releases(values: Json) -> None:
    names = {one["metadata"]["name"] for one in render(values)}
    assert not [name for name in names if "cache" in name]
    assert told(values) == []


@each_cached
def test_the_controller_is_told_where_the_daemon_listens(values: Json) -> None:
    assert told(values) == [f"--cache-socket={SOCKET}"]
    pod = cache_pod(values)
    assert f"--socket={SOCKET}" in command(pod)
    [volume] = [one for one in pod["volumes"] if one["name"] == "socket"]
    # The same path on the node and in the pod, as the controller mounts it in those of jobs.
    assert volume["hostPath"] == {"path": "/run/penstock", "type": "DirectoryOrCreate"}
    mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert mounts["socket"] == {"name": "socket", "mountPath": "/run/penstock"}


@each_cached
def test_it_has_no_right_that_it_does_not_need(values: Json) -> None:
    objects, pod = render(values), cache_pod(values)
    assert pod["automountServiceAccountToken"] is False
    assert (
        named(objects, "ServiceAccount", "penstock-cache")["automountServiceAccountToken"] is False
    )
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert "penstock-cache" not in of_kind(objects, kind)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    for one in (container, *pod["initContainers"]):
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "runAsUser" not in container["securityContext"]
    for mount in container["volumeMounts"]:
        assert mount.get("readOnly", False) is (mount["name"] != "socket")
    [folder] = pod["initContainers"]
    assert folder["securityContext"]["capabilities"]["add"] == ["CHOWN"]
    assert [one["name"] for one in folder["volumeMounts"]] == ["socket"]


def test_a_cache_of_one_node_sees_no_data_and_calls_nobody() -> None:
    objects, pod = render(OF_A_NODE), cache_pod(OF_A_NODE)
    assert [one["name"] for one in pod["volumes"]] == ["socket"], "it reads what programs open"
    assert "penstock-cache-token" not in of_kind(objects, "Secret")
    policy = named(objects, "NetworkPolicy", "penstock-cache")["spec"]
    assert policy["egress"] == []
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "http"}]]
    assert not [one for one in command(pod) if one.startswith(("--listen", "--peers", "--token"))]


def test_caches_of_all_nodes_reach_each_other_and_nobody_else() -> None:
    objects, pod = render(OVER_NODES), cache_pod(OVER_NODES)
    found = command(pod)
    assert f"--listen=[::]:{ports.CACHE_PEERS}" in found
    assert f"--name=[$(POD_IP)]:{ports.CACHE_PEERS}" in found
    assert f"--peers=penstock-cache.penstock-system.svc:{ports.CACHE_PEERS}" in found
    service = named(objects, "Service", "penstock-cache")["spec"]
    assert service["clusterIP"] == "None", "the name stands for all of them"
    assert {one["port"] for one in service["ports"]} == {ports.CACHE_PEERS, ports.CACHE_METRICS}
    policy = named(objects, "NetworkPolicy", "penstock-cache")["spec"]
    own = {"podSelector": {"matchLabels": policy["podSelector"]["matchLabels"]}}
    [inward] = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "peers"}]]
    assert inward["from"] == [own]
    names, outward = policy["egress"]
    assert {one["port"] for one in names["ports"]} == {53}
    assert outward == {"to": [own], "ports": [{"port": ports.CACHE_PEERS, "protocol": "TCP"}]}


def test_it_reads_each_path_from_where_the_values_say() -> None:
    pod = cache_pod(OVER_NODES)
    assert [one for one in command(pod) if one.startswith("--paths")] == [
        "--paths=/data/a",
        "--paths=/data/b",
    ]
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    from_node, from_claim = volumes[mounts["/data/a"]["name"]], volumes[mounts["/data/b"]["name"]]
    assert from_node["hostPath"] == {"path": "/mnt/a", "type": "Directory"}
    assert from_claim["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}


def test_the_token_is_long_and_in_a_secret_alone() -> None:
    objects = render(OVER_NODES)
    secret = named(objects, "Secret", "penstock-cache-token")
    token = base64.b64decode(secret["data"]["token"])
    assert len(token) == 64
    assert not [one for one in objects if one is not secret and token.decode() in str(one)]
    own = render(VALUE_SETS["cached-with-a-token-of-ones-own"])
    assert "penstock-cache-token" not in of_kind(own, "Secret")
    pod = cache_pod(VALUE_SETS["cached-with-a-token-of-ones-own"])
    [volume] = [one for one in pod["volumes"] if one["name"] == "token"]
    assert volume["secret"]["secretName"] == "mine"


def test_what_it_holds_is_asked_for() -> None:
    assert "--memory=40Gi" in command(cache_pod(OF_A_NODE))
    request = f"{40 * 1024 * 51 // 50 + 64}Mi"
    assert quantity.parse_bytes(request) == memory_of(40 << 30), "as of a data worker's own"
    assert cache_pod(OF_A_NODE)["containers"][0]["resources"] == {"requests": {"memory": request}}
    assert cache_pod(OVER_NODES)["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "18Gi"},
        "limits": {"memory": "20Gi"},
    }


def test_it_goes_where_the_values_say() -> None:
    pod = cache_pod(OVER_NODES)
    assert pod["nodeSelector"] == {"accelerated": "yes"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["imagePullSecrets"] == [{"name": "credentials"}]


def test_its_metrics_are_found() -> None:
    objects = render(OVER_NODES)
    monitor = named(objects, "ServiceMonitor", "penstock-cache")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    [endpoint] = monitor["spec"]["endpoints"]
    service = named(objects, "Service", "penstock-cache")
    assert endpoint["port"] in {one["name"] for one in service["spec"]["ports"]}
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    [container] = cache_pod(OVER_NODES)["containers"]
    opened = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert opened == {"http": ports.CACHE_METRICS, "peers": ports.CACHE_PEERS}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}


@each_cached
def test_the_command_takes_its_arguments(values: Json) -> None:
    program, name, *arguments = command(cache_pod(values))
    assert (program, name, arguments[0]) == ("penstock", "cache", "run")
    group = typer.main.get_command(cache)
    assert isinstance(group, TyperGroup)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = group.commands["run"].make_context("run", arguments[1:])
    found = context.params
    assert (found["host"], found["metrics_port"]) == (
        values.get("listenAddress", "0.0.0.0"),
        ports.CACHE_METRICS,
    )
    assert found["paths"] == [one["path"] for one in values["cache"]["paths"]]
    assert parse_memory(found["memory"]) == parse_memory(values["cache"].get("memory", "16Gi"))
    if values["cache"].get("nodes"):
        for one in (found["listen"], *checked_peers(found["peers"])):
            assert split_address(one)[1] == ports.CACHE_PEERS
    else:
        assert (found["listen"], found["token_file"]) == (None, None)
