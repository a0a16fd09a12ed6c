"""Faults of containers, starts and pods, on real processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cluster.tests.kubelet.clusters import (
    Cluster,
    condition,
    container,
    pod,
    python,
    run,
    terminated,
    until,
)
from penstock_cluster.faults.catalogue import FaultError
from penstock_cluster.nodes import NodeDeclaration

TICKING = "while :; do echo tick; sleep 0.05; done"


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [("kill_container", 137, "Error"), ("oom_kill_container", 137, "OOMKilled")],
)
def test_a_container_is_killed(tmp_path: Path, fault: str, code: int, reason: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        await cluster.ready("p")
        await getattr(cluster.faults, fault)(name="p")
        ended = await cluster.ended("p")
        assert terminated(ended)["exitCode"] == code
        assert terminated(ended)["reason"] == reason

    run(scenario, tmp_path)


def test_any_signal(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        await cluster.ready("p")
        await cluster.faults.signal_container(name="p", signal=10)
        assert terminated(await cluster.ended("p"))["exitCode"] == 138

    run(scenario, tmp_path)


def test_a_frozen_container_is_still_running_for_the_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script=TICKING))
        await cluster.log_until("p", "tick")
        await cluster.faults.freeze_container(name="p")
        await asyncio.sleep(0.2)
        frozen = len(await cluster.log("p"))
        await asyncio.sleep(0.3)
        assert len(await cluster.log("p")) == frozen
        assert (await cluster.pod("p"))["status"]["phase"] == "Running"
        await cluster.faults.thaw_container(name="p")

        async def ticks() -> bool:
            return len(await cluster.log("p")) > frozen

        await until(ticks, "it goes on")

    run(scenario, tmp_path)


def test_a_slow_container(tmp_path: Path) -> None:
    source = """
import time
while True:
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.05:
        pass
    print(f"{time.monotonic() - began:.3f}")
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source))
        await cluster.log_until("p", "0.")
        await cluster.faults.slow_container(name="p", percent=10)
        await asyncio.sleep(2)
        times = [float(line) for line in (await cluster.log("p")).split()]
        assert max(times[-3:]) > 0.15
        with pytest.raises(FaultError, match="percent"):
            await cluster.faults.slow_container(name="p", percent=0)

    run(scenario, tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    source = """
import os, time
path = os.environ["PENSTOCK_VOLUME_DATA"] + "/file"
while True:
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(b"x" * 100)
        print("written")
    except OSError as error:
        print("failed", type(error).__name__)
    time.sleep(0.05)
"""

    async def scenario(cluster: Cluster) -> None:
        mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        volumes = [{"name": "data", "emptyDir": {}}]
        await cluster.run(python("p", source, container=mount, volumes=volumes))
        await cluster.log_until("p", "written")
        await cluster.faults.fill_disk(name="p")
        log = await cluster.log_until("p", "failed")
        seen = len(log)
        await cluster.faults.fill_disk(name="p", limit_bytes=None)

        async def writes() -> bool:
            return (await cluster.log("p"))[seen:].rstrip().endswith("written")

        await until(writes, "it writes again")

    run(scenario, tmp_path)


def test_a_delayed_start(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.delay_start(seconds=0.8, labels={"slow": "yes"})
        began = time.monotonic()
        await cluster.run(pod("slow", labels={"slow": "yes"}), pod("quick"))
        await cluster.ended("quick")
        assert "waiting" in container(await cluster.pod("slow"))["state"]
        await cluster.ended("slow")
        assert time.monotonic() - began >= 0.8

    run(scenario, tmp_path)


def waits_with(reason: str):
    def check(found: dict) -> bool:
        waiting = container(found)["state"].get("waiting") or {}
        return waiting.get("reason") == reason

    return check


def test_an_image_that_cannot_be_pulled(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.fail_image_pull(name="p")
        await cluster.run(pod(script="exit 0"))
        found = await cluster.pod_until("p", waits_with("ImagePullBackOff"), "cannot be pulled")
        assert 'Back-off pulling image "any"' in container(found)["state"]["waiting"]["message"]
        assert found["status"]["phase"] == "Pending"
        await cluster.faults.clear()
        assert (await cluster.ended("p"))["status"]["phase"] == "Succeeded"

    run(scenario, tmp_path)


def test_a_broken_configuration(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.break_config(name="p", message='secret "x" not found', seconds=0.5)
        await cluster.run(pod(script="exit 0"))
        check = waits_with("CreateContainerConfigError")
        found = await cluster.pod_until("p", check, "is badly configured")
        assert container(found)["state"]["waiting"]["message"] == 'secret "x" not found'
        assert (await cluster.ended("p"))["status"]["phase"] == "Succeeded"

    run(scenario, tmp_path)


def test_a_crash_at_start(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.crash_at_start(labels={"app": "x"}, times=2, exit_code=9, message="no")
        labels = {"app": "x"}
        await cluster.run(pod(script="exit 0", labels=labels, restartPolicy="OnFailure"))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert container(ended)["restartCount"] == 2
        assert container(ended)["lastState"]["terminated"]["exitCode"] == 9
        assert await cluster.log("p", previous=True) == "no\n"

    run(scenario, tmp_path)


def test_never_ready(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.never_ready(name="p")
        await cluster.run(pod(script="sleep 60"))
        running = await cluster.pod_until(
            "p", lambda found: found["status"].get("phase") == "Running", "runs"
        )
        await asyncio.sleep(0.5)
        running = await cluster.pod("p")
        assert condition(running, "Ready")["reason"] == "ContainersNotReady"
        await cluster.faults.clear()
        await cluster.ready("p")

    run(scenario, tmp_path)


def test_eviction_under_node_pressure(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        await cluster.ready("p")
        await cluster.faults.evict_pod(name="p")
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Failed"
        assert ended["status"]["reason"] == "Evicted"
        assert ended["status"]["message"] == "The node was low on resource: memory."
        assert condition(ended, "DisruptionTarget")["reason"] == "TerminationByKubelet"
        await cluster.pod_until("p", lambda p: "terminated" in container(p)["state"], "is stopped")

    run(scenario, tmp_path)


def test_preemption_and_deletion_by_others(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod("victim", "sleep 60"), pod("deleted", "sleep 60"))
        await cluster.ready("victim")
        await cluster.ready("deleted")
        async with cluster.api.watch("pods", "default") as events:
            await cluster.faults.preempt_pod(name="victim")
            await cluster.faults.delete_pod(name="deleted", grace_seconds=0)
            last: dict[str, dict] = {}
            async for event in events:
                last[event.object["metadata"]["name"]] = event.object
                if event.type == "DELETED" and event.object["metadata"]["name"] == "victim":
                    break
        assert condition(last["victim"], "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        assert not await cluster.exists("deleted")

    run(scenario, tmp_path)


def test_lost_processes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        await cluster.ready("p")
        await cluster.faults.lose_processes(name="p")
        assert terminated(await cluster.ended("p"))["reason"] == "ContainerStatusUnknown"

    run(scenario, tmp_path)


SERVER = """
import socket
listener = socket.create_server(("0.0.0.0", 7000))
print("listening")
while True:
    listener.accept()[0].close()
"""

CLIENT = """
import os, socket, sys, time
while True:
    try:
        socket.create_connection((sys.argv[1], 7000), timeout=0.3).close()
        print("connected")
    except TimeoutError:
        print("no answer")
    except OSError as error:
        print("error", error)
    time.sleep(0.1)
"""


def test_a_partition_swallows_new_connections(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("server", SERVER))
        await cluster.log_until("server", "listening")
        address = (await cluster.pod("server"))["status"]["podIP"]
        client = {"command": ["python", "-u", "-c", CLIENT], "args": [address]}
        await cluster.run(pod("client", container=client), pod("other", container=client))
        await cluster.log_until("client", "connected")
        await cluster.faults.partition_pod(name="server", others=["client"])
        log = await cluster.log_until("client", "no answer")
        assert "error" not in log
        assert "no answer" not in await cluster.log("other")
        await cluster.faults.heal_pod(name="server")
        seen = len(await cluster.log("client"))

        async def connects() -> bool:
            return "connected" in (await cluster.log("client"))[seen:]

        await until(connects, "the partition is healed")
        await cluster.faults.partition_pod(name="client", seconds=0.5)
        seen = len(await cluster.log("client"))

        async def cut_off() -> bool:
            return "no answer" in (await cluster.log("client"))[seen:]

        await until(cut_off, "it is cut off from all")
        seen = len(await cluster.log("client"))
        await until(connects, "the partition ends by itself")

    run(scenario, tmp_path)


ECHO = """
import socket
listener = socket.create_server(("0.0.0.0", 7000))
print("listening")
while True:
    connection = listener.accept()[0]
    while content := connection.recv(1):
        connection.sendall(content)
"""

CALLER = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000))
while True:
    began = time.monotonic()
    connection.sendall(b"-")
    assert connection.recv(1) == b"-"
    print("slow" if time.monotonic() - began > 0.39 else "quick")
    time.sleep(0.05)
"""


def test_delays_hold_for_the_connections_that_stand(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.relay_pods()
        await cluster.run(python("server", ECHO))
        await cluster.log_until("server", "listening")
        address = (await cluster.pod("server"))["status"]["podIP"]
        client = {"command": ["python", "-u", "-c", CALLER], "args": [address]}
        await cluster.run(pod("client", container=client))
        await cluster.log_until("client", "quick")

        async def says(word: str) -> None:
            seen = len(await cluster.log("client"))

            async def said() -> bool:
                return word in (await cluster.log("client"))[seen:]

            await until(said, f"the client finds it {word}")

        for name in ("server", "client"):
            await cluster.faults.delay_pod(name=name, delay_seconds=0.3, jitter_seconds=0.1)
            await says("slow")
            await cluster.faults.heal_pod(name=name)
            await says("quick")
        await cluster.faults.delay_pod(name="client", delay_seconds=0.2, seconds=0.5)
        await says("slow")
        await says("quick")
        with pytest.raises(FaultError, match="at least 0"):
            await cluster.faults.delay_pod(name="client", delay_seconds=-1)

    run(scenario, tmp_path)


def test_a_fault_that_would_hit_nothing_is_refused(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(FaultError, match="default/nobody"):
            await cluster.faults.kill_container(name="nobody")
        with pytest.raises(FaultError, match="there are: n1"):
            await cluster.faults.lose_node(name="n9")
        await cluster.run(pod(script="exit 0"))
        await cluster.ended("p")
        with pytest.raises(FaultError, match="not running"):
            await cluster.faults.kill_container(name="p")

    run(scenario, tmp_path, NodeDeclaration("n1"))
