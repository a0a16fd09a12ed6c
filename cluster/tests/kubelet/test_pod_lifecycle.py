"""Pods with real processes: how they end, restart, and what their status says about it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from cluster.tests.kubelet.clusters import (
    Cluster,
    condition,
    container,
    is_ready,
    is_running,
    pod,
    python,
    run,
    terminated,
    until,
)
from penstock_cluster.nodes import NodeDeclaration


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 3", "Failed", 3, "Error"),
        ("kill -9 $$$$", "Failed", 137, "Error"),
        ("kill -SEGV $$$$", "Failed", 139, "Error"),
    ],
)
def test_how_a_container_ends(
    tmp_path: Path, script: str, phase: str, code: int, reason: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script=script))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == phase
        assert terminated(ended)["exitCode"] == code
        assert terminated(ended)["reason"] == reason
        assert terminated(ended).get("signal", 0) == max(0, code - 128)
        assert condition(ended, "Ready")["status"] == "False"
        assert not container(ended)["ready"]

    run(scenario, tmp_path)


def test_a_running_pod_has_the_status_of_a_real_one(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60"))
        status = (await cluster.ready("p"))["status"]
        assert status["phase"] == "Running"
        assert status["qosClass"] == "BestEffort"
        assert status["podIP"].startswith("127.")
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["hostIP"] == "127.0.0.1"
        assert status["startTime"]
        [main] = status["containerStatuses"]
        assert set(main["state"]) == {"running"}
        assert main["ready"]
        assert main["started"]
        assert main["restartCount"] == 0
        assert main["containerID"].startswith("process://")
        assert main["imageID"]
        true = {each["type"] for each in status["conditions"] if each["status"] == "True"}
        assert true == {
            "PodScheduled",
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
        }

    run(scenario, tmp_path)


def test_restarts_back_off_and_remember_the_last_end(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="exit 5", restartPolicy="OnFailure"))
        waiting = await cluster.pod_until(
            "p",
            lambda found: (
                "waiting" in container(found)["state"] and container(found)["restartCount"] >= 1
            ),
            "waits for its next try",
        )
        main = container(waiting)
        assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert "restarting failed container=main" in main["state"]["waiting"]["message"]
        assert main["lastState"]["terminated"]["exitCode"] == 5
        assert waiting["status"]["phase"] == "Running"
        await cluster.pod_until("p", lambda p: container(p)["restartCount"] >= 3, "restarts")
        assert "BackOff" in await cluster.events("p")

    run(scenario, tmp_path)


def test_on_failure_ends_with_the_first_success(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        counter = tmp_path / "count"
        script = f"echo x >> {counter}; [ $(wc -l < {counter}) -ge 3 ]"
        await cluster.run(pod(script=script, restartPolicy="OnFailure"))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert container(ended)["restartCount"] == 2
        assert container(ended)["lastState"]["terminated"]["exitCode"] == 1

    run(scenario, tmp_path)


def test_always_restarts_after_success_too(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="exit 0", restartPolicy="Always"))
        found = await cluster.pod_until("p", lambda p: container(p)["restartCount"] >= 1, "again")
        assert found["status"]["phase"] == "Running"

    run(scenario, tmp_path)


def test_init_containers_run_in_turn(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        order = tmp_path / "order"
        init = [
            {"name": f"init-{i}", "image": "x", "command": ["sh", "-c", f"echo {i} >> {order}"]}
            for i in range(2)
        ]
        await cluster.run(pod(script=f"echo main >> {order}", initContainers=init))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert order.read_text().split() == ["0", "1", "main"]
        assert condition(ended, "Initialized")["status"] == "True"
        assert terminated(ended, "init-1")["exitCode"] == 0

    run(scenario, tmp_path)


def test_a_failed_init_container_fails_the_pod(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        init = [{"name": "init", "image": "x", "command": ["sh", "-c", "exit 4"]}]
        await cluster.run(pod(script="exit 0", initContainers=init))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Failed"
        assert terminated(ended, "init")["exitCode"] == 4
        assert container(ended)["state"]["waiting"]["reason"] == "PodInitializing"
        assert condition(ended, "Initialized")["reason"] == "ContainersNotInitialized"

    run(scenario, tmp_path)


def test_a_sidecar_runs_beside_the_containers_and_ends_after_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        sidecar = {
            "name": "sidecar",
            "image": "x",
            "restartPolicy": "Always",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"],
        }
        await cluster.run(pod(script="sleep 0.3", initContainers=[sidecar]))
        both = await cluster.ready("p")
        assert "running" in container(both, "sidecar")["state"]
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Succeeded"
        assert terminated(ended, "sidecar")["exitCode"] == 0

    run(scenario, tmp_path)


def test_deleting_gives_the_grace_period(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        script = f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; while :; do sleep 0.05; done"
        await cluster.run(pod(script=script, terminationGracePeriodSeconds=20))
        await cluster.ready("p")
        await asyncio.sleep(0.2)  # the shell sets its trap
        async with cluster.api.watch("pods", "default") as events:
            await cluster.api.delete("pods", "p", "default")
            last = None
            async for event in events:
                if event.type == "DELETED":
                    last = event.object
                    break
        assert (tmp_path / "bye").exists()
        assert last is not None
        # Who watches learns how it ended before it is gone.
        assert terminated(last)["exitCode"] == 0
        assert "Killing" in await cluster.events("p")

    run(scenario, tmp_path)


def test_who_ignores_sigterm_is_killed_when_the_grace_period_is_over(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        script = f"trap '' TERM; echo $$$$ > {tmp_path}/pid; while :; do sleep 0.1; done"
        await cluster.run(pod(script=script, terminationGracePeriodSeconds=1))
        await cluster.ready("p")
        await asyncio.sleep(0.2)
        await cluster.api.delete("pods", "p", "default")
        assert await cluster.exists("p")
        await cluster.gone("p", 5)
        pid = int((tmp_path / "pid").read_text())
        assert not is_running(pid)

    run(scenario, tmp_path)


def test_with_strict_signals_unhandled_sigterm_is_ignored_as_by_pid_one(tmp_path: Path) -> None:
    handling = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: exit(0))\n"
    handling += "print('set')\ntime.sleep(60)"

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(
            pod("deaf", container={"command": ["sleep", "60"]}, terminationGracePeriodSeconds=1),
            python("hears", handling, terminationGracePeriodSeconds=20),
        )
        await cluster.ready("deaf")
        await cluster.log_until("hears", "set")
        last: dict[str, dict] = {}
        async with cluster.api.watch("pods", "default") as events:
            for name in ("deaf", "hears"):
                await cluster.api.delete("pods", name, "default")
            async for event in events:
                if event.type == "DELETED":
                    last[event.object["metadata"]["name"]] = event.object
                if len(last) == 2:
                    break
        assert terminated(last["deaf"])["exitCode"] == 137
        assert terminated(last["hears"])["exitCode"] == 0

    run(scenario, tmp_path, strict_signals=True)


def test_a_forced_deletion_ends_the_processes_too(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        script = f"trap '' TERM; echo $$$$ > {tmp_path}/pid; while :; do sleep 0.1; done"
        await cluster.run(pod(script=script, terminationGracePeriodSeconds=60))
        await cluster.ready("p")
        await cluster.api.delete("pods", "p", "default", grace_period_seconds=0)
        assert not await cluster.exists("p")
        pid = int((tmp_path / "pid").read_text())

        async def ended() -> bool:
            return not is_running(pid)

        await until(ended, "the process has ended", 8)

    run(scenario, tmp_path)


def test_a_second_delete_may_shorten_the_grace_period(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        script = "trap '' TERM; while :; do sleep 0.1; done"
        await cluster.run(pod(script=script, terminationGracePeriodSeconds=60))
        await cluster.ready("p")
        await asyncio.sleep(0.2)
        await cluster.api.delete("pods", "p", "default")
        await cluster.api.delete("pods", "p", "default", grace_period_seconds=1)
        await cluster.gone("p", 8)

    run(scenario, tmp_path)


def test_a_hook_runs_before_sigterm(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        hook = {"preStop": {"exec": {"command": ["sh", "-c", f"echo hook > {tmp_path}/hook"]}}}
        main = {"lifecycle": hook}
        await cluster.run(pod(script="sleep 60", container=main, terminationGracePeriodSeconds=5))
        await cluster.ready("p")
        await cluster.api.delete("pods", "p", "default")
        await cluster.gone("p")
        assert (tmp_path / "hook").exists()

    run(scenario, tmp_path, NodeDeclaration("n1"))


def test_the_active_deadline(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="sleep 60", activeDeadlineSeconds=1))
        ended = await cluster.ended("p")
        assert ended["status"]["phase"] == "Failed"
        assert ended["status"]["reason"] == "DeadlineExceeded"

    run(scenario, tmp_path)


def test_beyond_its_memory_limit_a_container_is_oom_killed(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        source = "import time; block = bytearray(150 << 20); time.sleep(60)"
        limits = {"resources": {"limits": {"memory": "80Mi", "cpu": "1"}}}
        await cluster.run(python("p", source, container=limits))
        ended = await cluster.ended("p")
        assert terminated(ended)["reason"] == "OOMKilled"
        assert terminated(ended)["exitCode"] == 137
        assert ended["status"]["qosClass"] == "Guaranteed"

    run(scenario, tmp_path)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(container={"command": ["no-such-program"]}))
        ended = await cluster.ended("p")
        assert terminated(ended)["reason"] == "StartError"
        assert terminated(ended)["exitCode"] == 128
        assert "executable file not found in $PATH" in terminated(ended)["message"]

    run(scenario, tmp_path)


def test_no_command_says_what_to_do(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(container={"command": None}))
        ended = await cluster.ended("p")
        assert "set spec.containers[].command" in terminated(ended)["message"]

    run(scenario, tmp_path)


def test_the_termination_message(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(
            pod("said", "echo why > /dev/termination-log; exit 1"),
            pod(
                "from-log",
                "echo last words; exit 1",
                container={"terminationMessagePolicy": "FallbackToLogsOnError"},
            ),
        )
        assert terminated(await cluster.ended("said"))["message"] == "why\n"
        assert terminated(await cluster.ended("from-log"))["message"] == "last words"

    run(scenario, tmp_path)


def test_environment_of_a_pod(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        api = cluster.api
        settings = {"metadata": {"name": "settings"}, "data": {"A": "1", "B": "two"}}
        await api.create("configmaps", settings, "default")
        secret = {"metadata": {"name": "secret"}, "stringData": {"token": "s3cret"}}
        await api.create("secrets", secret, "default")
        env = [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "token"}}},
            {"name": "ALL", "value": "$(NAME)-$(B)-$(NOPE)-$$(A)"},
        ]
        main = {
            "env": env,
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "resources": {"limits": {"cpu": "2"}},
            "args": ["$(ALL)"],
            "command": ["sh", "-c", 'env; echo "arg=$0"'],
        }
        await cluster.run(pod(container=main))
        ended = await cluster.ended("p")
        lines = set((await cluster.log("p")).splitlines())
        cores = min(2, len(os.sched_getaffinity(0)))
        assert {
            "NAME=p",
            f"IP={ended['status']['podIP']}",
            "NODE=n1",
            "CPUS=2",
            "TOKEN=s3cret",
            "A=1",
            "ALL=p-two-$(NOPE)-$(A)",
            "arg=p-two-$(NOPE)-$(A)",
            "HOSTNAME=p",
            "GLOO_SOCKET_IFNAME=lo",
            f"OMP_NUM_THREADS={cores}",
            "OMP_WAIT_POLICY=passive",
        } <= lines

    run(scenario, tmp_path)


def test_a_missing_reference_waits_until_it_is_there(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        reference = {"configMapKeyRef": {"name": "late", "key": "k"}}
        main = {"env": [{"name": "K", "valueFrom": reference}]}
        await cluster.run(pod(script="echo K=$K", container=main))
        waiting = await cluster.pod_until(
            "p",
            lambda p: (
                p["status"].get("containerStatuses")
                and container(p)["state"].get("waiting", {}).get("reason")
                == "CreateContainerConfigError"
            ),
            "waits for its ConfigMap",
        )
        assert container(waiting)["state"]["waiting"]["message"] == 'configmap "late" not found'
        assert waiting["status"]["phase"] == "Pending"
        late = {"metadata": {"name": "late"}, "data": {"k": "v"}}
        await cluster.api.create("configmaps", late, "default")
        await cluster.ended("p")
        assert await cluster.log("p") == "K=v\n"

    run(scenario, tmp_path)


def test_the_working_directory(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        elsewhere = {"workingDir": "/usr"}
        await cluster.run(pod("here", "pwd"), pod("there", "pwd", container=elsewhere))
        await cluster.ended("here")
        await cluster.ended("there")
        assert await cluster.log("here") == f"{Path.cwd()}\n"
        assert await cluster.log("there") == "/usr\n"

    run(scenario, tmp_path)


def test_penstock_and_python_are_found(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(
            python("p", "import sys, shutil; print(sys.prefix, shutil.which('penstock'))")
        )
        await cluster.ended("p")
        assert (await cluster.log("p")).startswith(sys.prefix)
        assert "None" not in await cluster.log("p")

    run(scenario, tmp_path)


def test_nothing_is_left_when_the_pods_are_gone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(*(pod(f"p{i}", "sleep 60") for i in range(5)))
        for i in range(5):
            await cluster.ready(f"p{i}")
        await asyncio.gather(*(cluster.api.delete("pods", f"p{i}", "default") for i in range(5)))
        for i in range(5):
            await cluster.gone(f"p{i}")

        async def clean() -> bool:
            return not [each for each in (tmp_path / "pods").iterdir() if each.is_dir()]

        await until(clean, "no pod folder is left", 5)
        assert not cluster.kubelet.workers

    run(scenario, tmp_path)


def test_resources_changed_in_place(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        source = "import time\nblock = bytearray(60 << 20)\ntime.sleep(60)"
        resources = {"limits": {"cpu": "1", "memory": "200Mi"}}
        await cluster.run(python("p", source, container={"resources": resources}))
        await cluster.ready("p")
        smaller = {"limits": {"cpu": "1", "memory": "50Mi"}, "requests": {"memory": "50Mi"}}
        change = {"spec": {"containers": [{"name": "main", "resources": smaller}]}}
        await cluster.api.patch(
            "pods", "p", change, "default", kind="strategic", subresource="resize"
        )
        ended = await cluster.ended("p")
        assert terminated(ended)["reason"] == "OOMKilled"

    run(scenario, tmp_path)


def test_ready_is_told_to_those_who_watch(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with cluster.api.watch("pods", "default") as events:
            await cluster.run(pod(script="sleep 60"))
            phases = []
            async for event in events:
                phases.append(event.object["status"].get("phase"))
                if is_ready(event.object):
                    break
        assert phases[0] == "Pending"
        assert phases[-1] == "Running"

    run(scenario, tmp_path)
