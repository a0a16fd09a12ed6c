"""The shell on the embedded API server: watches that break, answers that fail, bad settings."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.controller.reconcile import Settings
from penstock.controller.service import USER_AGENT
from penstock.kube.connection import connect
from penstock_cluster.registry.model import errors
from penstock_cluster.testing import RunningCluster, api_server
from tests.controller.scripted_life import World, install
from tests.patience import patient

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningCluster]:
    with api_server() as cluster:
        cluster.run(install(cluster.engine))
        yield cluster


@pytest.fixture
def namespace(server: RunningCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"ns-{abs(hash(request.node.name)) % 10**8}"
    yield server.namespace(name)
    server.engine.interceptor = None


@contextlib.asynccontextmanager
async def operating(server: RunningCluster, namespace: str) -> AsyncIterator[Operator]:
    client = await connect(server.kubeconfig_path, USER_AGENT)
    operator = Operator(
        client,
        Options(Settings(trainer_image="t"), namespace=namespace),
        Metrics(),
        random_source=random.Random(1),
    )
    task = asyncio.create_task(operator.run())
    try:
        yield operator
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


async def until(what: str, probe: Callable[[], Any], seconds: float = 20) -> Any:
    loop = asyncio.get_running_loop()
    end = loop.time() + patient(seconds)
    while not (found := probe()):
        assert loop.time() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)
    return found


def make_job(server: RunningCluster, namespace: str, replicas: int = 2) -> None:
    document = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "replicaSpecs": {
                "worker": {
                    "replicas": replicas,
                    "template": {"spec": {"containers": [{"name": "main", "image": "image"}]}},
                }
            },
        },
    }
    server.create("elasticjobs.penstock.dev", document, namespace)


def workers(server: RunningCluster, namespace: str) -> list[str]:
    pods = server.list("pods", namespace, labelSelector="penstock.dev/role=worker")
    return sorted(pod["metadata"]["name"] for pod in pods)


class Failing:
    """Answers some requests of the controller with an error."""

    def __init__(self, matches: Callable[[Any], bool], times: int, make: Callable[[], Any]) -> None:
        self._matches = matches
        self._left = times
        self._make = make

    async def on_request(self, request: Any) -> Any:
        if self._left and request.user_agent == USER_AGENT and self._matches(request):
            self._left -= 1
            return self._make()
        return None

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return True


@pytest.mark.parametrize(
    "make",
    [
        lambda: errors.internal("etcd is away"),
        lambda: errors.service_unavailable("overloaded"),
        lambda: errors.too_many_requests("slow down", retry_after=1),
    ],
    ids=["500", "503", "429"],
)
def test_errors_of_the_server_are_outlived(
    server: RunningCluster, namespace: str, make: Callable[[], Any]
) -> None:
    server.engine.interceptor = Failing(
        lambda request: request.namespace == namespace and request.verb in {"create", "patch"},
        4,
        make,
    )

    async def main() -> None:
        async with operating(server, namespace):
            make_job(server, namespace)
            await until("two workers", lambda: len(workers(server, namespace)) == 2)

    asyncio.run(main())
    assert len(workers(server, namespace)) == 2


def test_one_bad_object_does_not_hold_up_another(server: RunningCluster, namespace: str) -> None:
    server.engine.interceptor = Failing(
        lambda request: (
            request.namespace == namespace and request.name.startswith("bad")
            if request.name
            else False
        ),
        10_000,
        lambda: errors.internal("always"),
    )

    async def main() -> None:
        async with operating(server, namespace):
            make_job(server, namespace)
            bad = server.get("elasticjobs.penstock.dev", "job", namespace)
            bad["metadata"] = {"name": "bad", "namespace": namespace}
            bad.pop("status", None)
            server.create("elasticjobs.penstock.dev", bad, namespace)
            await until("the good job's workers", lambda: len(workers(server, namespace)) >= 2)

    asyncio.run(main())
    assert "job-worker-0-0" in workers(server, namespace)


def test_a_pod_lost_while_the_place_of_the_watch_was_forgotten_is_replaced(
    server: RunningCluster, namespace: str
) -> None:
    async def forget() -> None:
        """Every watch ends and no old place can be taken up again."""
        server.engine.store.compact_all()
        server.engine.close_watches()

    async def main() -> None:
        async with operating(server, namespace):
            make_job(server, namespace, replicas=1)
            await until("a worker", lambda: workers(server, namespace) == ["job-worker-0-0"])
            server.run(forget())
            server.delete("pods", "job-worker-0-0", namespace, gracePeriodSeconds="0")
            await until("another", lambda: workers(server, namespace) == ["job-worker-0-1"])

    asyncio.run(main())


def test_a_scale_deleted_while_nobody_watched_is_noticed(
    server: RunningCluster, namespace: str
) -> None:
    async def main() -> None:
        async with operating(server, namespace) as operator:
            make_job(server, namespace, replicas=0)
            await until("a worker", lambda: workers(server, namespace) == ["job-worker-0-0"])
            uid = server.get("elasticjobs.penstock.dev", "job", namespace)["metadata"]["uid"]
            server.create("scales.penstock.dev", _pin(uid), namespace)
            await until("the pin to be applied", lambda: _is_applied(server, namespace))
            assert len(workers(server, namespace)) == 3
            server.engine.interceptor = Deaf(namespace)
            server.delete("scales.penstock.dev", "pin", namespace)
            await asyncio.sleep(0.3)
            assert len(workers(server, namespace)) == 3, "the event was dropped"
            await operator.resync()
            await until("one worker", lambda: len(workers(server, namespace)) == 1)

    asyncio.run(main())


def _is_applied(server: RunningCluster, namespace: str) -> bool:
    status = server.get("scales.penstock.dev", "pin", namespace).get("status") or {}
    found = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return found.get("Applied") == "True"


class Deaf:
    """Drops every event about Scales."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def on_request(self, request: Any) -> None:
        return None

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return bool(request.resource != "scales")


def _pin(uid: str) -> Json:
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": "pin"},
        "spec": {
            "jobRef": {"name": "job", "uid": uid},
            "roles": {"worker": {"replicas": 3}},
            "source": "User",
            "policy": "Pin",
        },
    }


def test_a_whole_life(server: RunningCluster, namespace: str) -> None:
    world = World(server.engine, namespace)

    async def tell() -> None:
        async with world.running():
            await world.live()

    async def main() -> None:
        async with operating(server, namespace):
            await asyncio.to_thread(server.run, tell(), 50)

    asyncio.run(main())
    assert [name for name, _ in world.stages][-1] == "succeeded"


# The command


def start(*options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "controller", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_health_and_metrics(server: RunningCluster) -> None:
    process = start(
        f"--kubeconfig={server.kubeconfig_path}", "--metrics-port=0", "--log-format=json"
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("controller listening on http://127.0.0.1:")
        url = line.split()[-1]
        for path in ("/healthz", "/readyz"):
            with urllib.request.urlopen(url + path, timeout=10) as answer:
                assert answer.read() == b"ok\n"
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for name in (
            "reconcile_duration_seconds",
            "queue_depth",
            "pods_created",
            "errors",
            "leading",
        ):
            assert f"penstock_controller_{name}" in text
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=15)
    assert process.returncode == 0
    assert all(json.loads(one)["level"] for one in log.splitlines())


def test_not_ready_without_the_api_server(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    process = start(f"--kubeconfig={path}", "--metrics-port=0")
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(url + "/healthz", timeout=10) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url + "/readyz", timeout=10)
        assert refused.value.code == 503
        refused.value.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=15)
    assert process.returncode == 0


def test_a_port_in_use_is_named(server: RunningCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(f"--kubeconfig={server.kubeconfig_path}", f"--metrics-port={port}")
        _, log = process.communicate(timeout=20)
    assert process.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in log
    assert "Traceback" not in log


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    process = start(f"--kubeconfig={tmp_path / 'none'}")
    _, log = process.communicate(timeout=20)
    assert process.returncode == 2
    assert str(tmp_path / "none") in log
    assert "Traceback" not in log


def test_manifests_are_printed() -> None:
    process = start("--print-manifests")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    for kind in (
        "CustomResourceDefinition",
        "ClusterRole",
        "ValidatingAdmissionPolicy",
        "PriorityClass",
    ):
        assert f"kind: {kind}\n" in out
