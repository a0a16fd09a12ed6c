"""Probes: the counting alone, then on real pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.tests.kubelet.clusters import Cluster, condition, container, pod, python, run
from penstock_cluster.kubelet.state.probes import Probe, ProbeCounter


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        ([True, False, False, False], [True, True, True, False]),
        ([False, False, True, False, False, False], [True, True, True, True, True, False]),
        ([False, False, False, True, True], [True, True, False, False, True]),
    ],
)
def test_thresholds(results: list[bool], verdicts: list[bool]) -> None:
    counter = ProbeCounter(failure_threshold=3, success_threshold=2, verdict=True)
    seen = []
    for result in results:
        counter.take(result)
        seen.append(counter.verdict)
    assert seen == verdicts


def test_defaults() -> None:
    probe = Probe.of({"exec": {}})
    assert (probe.period_seconds, probe.timeout_seconds) == (10, 1)
    assert (probe.failure_threshold, probe.success_threshold) == (3, 1)


def test_readiness_by_command_comes_and_goes(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def scenario(cluster: Cluster) -> None:
        probe = {
            "exec": {"command": ["test", "-e", str(flag)]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        }
        await cluster.run(pod(script="sleep 60", container={"readinessProbe": probe}))
        await cluster.log_until("p", "")
        unready = await cluster.pod_until("p", lambda p: "running" in container(p)["state"], "runs")
        assert condition(unready, "Ready")["status"] == "False"
        flag.touch()
        await cluster.ready("p")
        flag.unlink()
        await cluster.pod_until(
            "p", lambda p: condition(p, "Ready")["status"] == "False", "is unready again"
        )
        assert "Unhealthy" in await cluster.events("p")

    run(scenario, tmp_path)


HTTP = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ok" else 500)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""


@pytest.mark.parametrize(
    "handler",
    [
        {"httpGet": {"path": "/ok", "port": "web"}},
        {"tcpSocket": {"port": 8080}},
    ],
)
def test_readiness_over_the_network(tmp_path: Path, handler: dict) -> None:
    async def scenario(cluster: Cluster) -> None:
        ports = [{"name": "web", "containerPort": 8080}]
        main = {"ports": ports, "readinessProbe": {**handler, "periodSeconds": 1}}
        await cluster.run(python("p", HTTP, container=main))
        await cluster.ready("p")

    run(scenario, tmp_path)


def test_a_container_that_is_not_alive_is_restarted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        probe = {
            "httpGet": {"path": "/bad", "port": 8080},
            "initialDelaySeconds": 1,
            "periodSeconds": 1,
            "failureThreshold": 2,
        }
        main = {"livenessProbe": probe}
        await cluster.run(python("p", HTTP, container=main, restartPolicy="Always"))
        restarted = await cluster.pod_until("p", lambda p: container(p)["restartCount"], "restarts")
        assert container(restarted)["lastState"]["terminated"]["exitCode"] == 143
        assert {"Unhealthy", "Killing"} <= await cluster.events("p")

    run(scenario, tmp_path)


def test_nothing_counts_before_a_container_has_started(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def scenario(cluster: Cluster) -> None:
        startup = {
            "exec": {"command": ["test", "-e", str(flag)]},
            "periodSeconds": 1,
            "failureThreshold": 30,
        }
        main = {"startupProbe": startup}
        await cluster.run(pod(script="sleep 60", container=main))
        running = await cluster.pod_until("p", lambda p: "running" in container(p)["state"], "runs")
        assert not container(running)["started"]
        assert not container(running)["ready"]
        flag.touch()
        ready = await cluster.ready("p")
        assert container(ready)["started"]

    run(scenario, tmp_path)


def test_a_container_that_never_starts_is_restarted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        startup = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
        main = {"startupProbe": startup}
        await cluster.run(pod(script="sleep 60", container=main, restartPolicy="Always"))
        await cluster.pod_until("p", lambda p: container(p)["restartCount"], "restarts")

    run(scenario, tmp_path)
