"""Whatever is wrong, one line says what to do, and the exit code is the documented one."""

from __future__ import annotations

import copy
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.exits import Exit
from penstock.client import Penstock
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.schema import crd
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.cli.terminal import Ran, Terminal
from tests.client.embedded import cluster_with_definitions, job

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with cluster_with_definitions() as running:
        yield running


@pytest.fixture(scope="module")
def bare() -> Iterator[RunningCluster]:
    """A cluster without Penstock that enforces roles."""
    with api_server(EngineOptions(rbac=True)) as running:
        yield running


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """A kubeconfig that leads nowhere."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return kubeconfig(tmp_path, f"http://127.0.0.1:{port}", "token")


def kubeconfig(folder: Path, server: str, token: str, **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def as_caller(cluster: RunningCluster, folder: Path, token: str) -> Path:
    """The cluster's kubeconfig with another token."""
    document = yaml.safe_load(cluster.kubeconfig_path.read_text())
    document["users"][0]["user"] = {"token": token}
    path = folder / "other"
    path.write_text(yaml.safe_dump(document))
    return path


def refused(ran: Ran, code: Exit, *said: str) -> None:
    """One line that says all of this, no traceback, and the code."""
    assert ran.code == code, ran.err + ran.out
    assert "Traceback" not in ran.err
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("penstock: ")
    for each in said:
        assert each in lines[0]
    assert ran.out == ""


EVERY_COMMAND = [
    ("list",),
    ("get", "x"),
    ("describe", "x"),
    ("logs", "x"),
    ("plans", "x"),
    ("propose", "x"),
    ("scale", "x", "--replicas=2"),
    ("pin", "x", "--replicas=2"),
    ("release", "x"),
    ("suspend", "x"),
    ("resume", "x"),
    ("top", "--once"),
    ("doctor",),
    ("uninstall", "--yes"),
    ("submit", "--name=x", "--image=i", "--", "train"),
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: command[0])
def test_no_cluster_at_all(
    command: tuple[str, ...], dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(Terminal(dead)(*command), Exit.UNREACHABLE, "does not answer", "is the cluster up")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    refused(Terminal(None)(*command), Exit.UNREACHABLE, "no kubeconfig", "--kubeconfig")


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: command[0])
def test_credentials_that_nobody_knows(
    command: tuple[str, ...], bare: RunningCluster, tmp_path: Path
) -> None:
    terminal = Terminal(as_caller(bare, tmp_path, "no-such-token"))
    refused(terminal(*command), Exit.NOT_ALLOWED, "does not know these credentials")


@pytest.mark.parametrize(
    "command",
    [each for each in EVERY_COMMAND if each[0] != "doctor"],
    ids=lambda command: command[0],
)
def test_a_caller_without_rights(
    command: tuple[str, ...], bare: RunningCluster, tmp_path: Path
) -> None:
    token = bare.account_token("default", "default")
    ran = Terminal(as_caller(bare, tmp_path, token))(*command)
    refused(ran, Exit.NOT_ALLOWED, "forbidden", "system:serviceaccount:default:default")


@pytest.mark.parametrize("command", [("list",), ("get", "x"), ("scale", "x", "--replicas=2")])
def test_a_cluster_without_definitions(command: tuple[str, ...], bare: RunningCluster) -> None:
    ran = Terminal(bare.kubeconfig_path)(*command)
    refused(ran, Exit.NOT_FOUND, "no ElasticJobs of version penstock.dev/v1alpha1", "doctor")


def test_definitions_of_an_old_version() -> None:
    old = copy.deepcopy(crd(ELASTICJOB))
    old["spec"]["versions"][0]["name"] = "v1alpha0"
    with api_server() as cluster:
        cluster.apply(old)
        ran = Terminal(cluster.kubeconfig_path)("list")
    refused(ran, Exit.NOT_FOUND, "no ElasticJobs of version penstock.dev/v1alpha1")


def test_definitions_that_lack_a_field_of_this_client(tmp_path: Path) -> None:
    old = copy.deepcopy(crd(ELASTICJOB))
    schema = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["signature"]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job("new", signature={"model": "m"})))
    with api_server() as cluster:
        cluster.apply(old)
        ran = Terminal(cluster.kubeconfig_path)("submit", "-f", str(path))
    refused(ran, Exit.USAGE, 'unknown field "spec.signature"')


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("get", "nobody"), Exit.NOT_FOUND, '"nobody" not found'),
        (("logs", "nobody"), Exit.NOT_FOUND, '"nobody" not found'),
        (("get", "there", "-n", "elsewhere"), Exit.NOT_FOUND, '"there" not found'),
        (("logs", "there"), Exit.NOT_FOUND, "no pod of worker"),
        (("logs", "there", "--role", "boss"), Exit.USAGE, "one of worker, ps"),
        (("scale", "there"), Exit.USAGE, "give --replicas, --cpu, --memory or --spare"),
        (("scale", "there", "--cpu=lots"), Exit.USAGE, "spec.roles.worker.resources.cpu"),
        (("scale", "there", "--role=ps", "--spare=1"), Exit.USAGE, "spec.roles.ps"),
        (("list", "--context=no"), Exit.UNREACHABLE, "no context 'no'; there are:"),
        (("submit",), Exit.USAGE, "give a manifest with -f, or also --name, --image"),
        (("submit", "-f", "job.yaml", "--name=x"), Exit.USAGE, "put --name into it"),
        (
            ("submit", "-f", "job.yaml", "--workers=3", "--limit=cpu=4"),
            Exit.USAGE,
            "put --workers, --limit into it, or leave it out",
        ),
        (("submit", "--name=x"), Exit.USAGE, "or also --image, -- COMMAND"),
        (("get", ""), Exit.USAGE, "name: '' is the name of nothing"),
        (("get", "there/status"), Exit.USAGE, "name: 'there/status' is the name of nothing"),
        (("list", "--namespace=../other"), Exit.USAGE, "namespace: '../other'"),
        (("plans", "there", "--brain=nonsense"), Exit.UNREACHABLE, "the address of the Brain"),
        (("submit", "-f", "/nowhere.yaml"), Exit.USAGE, "/nowhere.yaml: No such file"),
        (
            ("submit", "--name=Wrong_", "--image=i", "--", "train"),
            Exit.USAGE,
            "metadata.name",
        ),
        (
            ("submit", "--name=x", "--image=i", "--env=WRONG", "--", "train"),
            Exit.USAGE,
            "--env WRONG: NAME=VALUE expected",
        ),
        (
            ("submit", "--name=x", "--image=i", "--limit=cpu=lots", "--", "train"),
            Exit.USAGE,
            "spec.resourceLimits",
        ),
        (("submit", "--name=there", "--image=i", "--", "t"), Exit.FAILED, "already exists"),
        (("plans", "there", "--brain=http://127.0.0.1:9"), Exit.UNREACHABLE, "did not answer"),
        (("plans", "there"), Exit.UNREACHABLE, "give its address with --brain"),
        (("propose", "there", "--cpu=lots"), Exit.USAGE, "--cpu"),
        (("uninstall", "--jobs"), Exit.USAGE, "say --yes"),
    ],
)
def test_what_is_asked_for_is_wrong(
    cluster: RunningCluster, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    if cluster.find("elasticjobs.penstock.dev", "there", "default") is None:
        cluster.create("elasticjobs.penstock.dev", job("there"), "default")
    if arguments[0] == "uninstall":
        # The table comes first, so that one sees what would go.
        ran = Terminal(cluster.kubeconfig_path)(*arguments)
        assert ran.code == code
        assert said in ran.err
        return
    refused(Terminal(cluster.kubeconfig_path)(*arguments), code, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: [", "not YAML"),
        ("", "one object expected, found 0"),
        ("kind: Job", "Job: apiVersion: is needed"),
        ("apiVersion: v1\nkind: Pod", "Pod of the core group is no job that can be converted"),
        ("apiVersion: penstock.dev/v1alpha1\nkind: Scale", "ElasticJob expected, got 'Scale'"),
        ("apiVersion: v1\nkind: Pod\n---\n[]", "one object expected, found 2"),
        ("kind: ElasticJob", "metadata: a name is needed"),
        ("\x00", "not YAML"),
        ("kind: ElasticJob\nkind: Job", "line 2: not YAML: 'kind' is there twice"),
        ("kind: " + "[" * 5000, "exceeded max depth"),
        ("kind: ElasticJob\nmetadata: {name: x, labels: {a: !!binary eA==}}", "type: bytes"),
        (yaml.safe_dump(job("x", strategy="Guess")), "spec.strategy"),
        (yaml.safe_dump(job("x", strateggy="Local")), 'unknown field "spec.strateggy"'),
    ],
)
def test_a_manifest_that_is_wrong(cluster: RunningCluster, text: str, said: str) -> None:
    ran = Terminal(cluster.kubeconfig_path)("submit", "-f", "-", stdin=text)
    refused(ran, Exit.USAGE, said)


def test_a_time_is_text(cluster: RunningCluster) -> None:
    document = job("timed")
    document["metadata"]["annotations"] = {"when": "WHEN"}
    text = yaml.safe_dump(document).replace("WHEN", "2026-01-01")
    stored = Terminal(cluster.kubeconfig_path).ok("submit", "-f", "-", "-o", "json", stdin=text)
    assert stored.json["metadata"]["annotations"] == {"when": "2026-01-01"}


def test_a_fault_of_the_program_is_one_line_too(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Penstock, "cluster", property(broken), raising=False)
    terminal = Terminal(cluster.kubeconfig_path)
    refused(terminal("list"), Exit.FAILED, "a fault of Penstock itself: ", "--debug")


def test_debug_shows_the_traceback(dead: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "list", "--kubeconfig", str(dead)]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert plain.returncode == Exit.UNREACHABLE
    assert "Traceback" not in plain.stderr
    full = subprocess.run([*command, "--debug"], capture_output=True, text=True, timeout=50)
    assert full.returncode == Exit.FAILED
    assert "Traceback" in full.stderr
    assert "does not answer" in full.stderr
