"""A pod's part: what it measures, over which calls, and that it begins whatever goes wrong."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from penstock.base.listener import address_of, create_listener
from penstock.crds import environment
from penstock.job.settings import pod_identity
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.nodecheck import pod
from penstock.trainer.nodecheck.cohort import CheckedNode, PodChecks
from penstock.trainer.nodecheck.link import LINK_SECONDS, MOST_CALLERS, measure_link, serving
from penstock.trainer.nodecheck.pod import check_pod
from penstock.trainer.nodecheck.probe import OwnSpeeds, measure
from penstock.trainer.server import Changes, Endpoints, make_server


def test_a_machine_has_speeds() -> None:
    found = measure()
    assert found.compute is not None
    assert found.memory is not None
    assert found.compute > 1e6
    assert found.memory > 1e6


def test_a_link_is_for_holders_of_the_token_alone() -> None:
    with serving("127.0.0.1", "right") as address:
        speed = measure_link(address, "right")
        assert speed is not None
        assert speed > 1e5
        assert measure_link(address, "wrong") is None


def test_strangers_that_say_nothing_are_few_at_a_time() -> None:
    with serving("127.0.0.1", "right") as address:
        port = int(address.rpartition(":")[2])
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        closed = 0
        for stranger in strangers[MOST_CALLERS:]:
            stranger.settimeout(5)
            closed += stranger.recv(1) == b""
        for stranger in strangers:
            stranger.close()
        assert closed == 20 - MOST_CALLERS


def test_a_partner_that_is_not_there_has_failed() -> None:
    assert measure_link("127.0.0.1:1", "token") is None


def test_a_partner_that_says_nothing_has_failed_in_time() -> None:
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert measure_link(f"127.0.0.1:{silent.getsockname()[1]}", "token") is None
    assert time.monotonic() - began < 20 * LINK_SECONDS


def test_without_a_trainer_the_program_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod, "TRAINER_SECONDS", 0.5)
    asyncio.run(check_pod(pod_identity({}), "127.0.0.1:1", asyncio.Event()))


def test_a_trainer_and_its_pods_come_to_an_end_together() -> None:
    """Over real sockets: three pods of equal machines."""

    async def run() -> list[CheckedNode]:
        coordinator = Coordinator(JobFacts(), "trainer")
        coordinator.expect_workers(range(3))
        checks = PodChecks(replaces=False)
        endpoints = Endpoints(coordinator, Changes(coordinator), "token", checks=checks)
        listening = create_listener("127.0.0.1", 0)
        server = make_server(endpoints.app())
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        pods = [
            pod_identity(
                {
                    environment.JOB_TOKEN: "token",
                    environment.RANK: str(rank),
                    environment.NODE_NAME: f"n{rank}",
                }
            )
            for rank in range(3)
        ]
        address = address_of(listening)
        await asyncio.gather(*(check_pod(pod, address, asyncio.Event()) for pod in pods))
        server.should_exit = True
        await serving
        return checks.take_found()

    found = asyncio.run(run())
    assert {one.node for one in found} == {"n0", "n1", "n2"}
    assert all(one.measured is not None and one.measured.compute for one in found)
    assert any(one.measured is not None and one.measured.link for one in found)


def test_a_pod_that_is_to_end_does_not_wait() -> None:
    async def run() -> None:
        draining = asyncio.Event()
        draining.set()
        await check_pod(pod_identity({}), "192.0.2.1:1", draining)  # an address that is nobody's

    asyncio.run(run())


def test_no_measurement_goes_on_when_the_program_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is forked, and a product of matrices that loses its threads has no end."""
    begun, ended = threading.Event(), threading.Event()

    def slow_measure() -> OwnSpeeds:
        begun.set()
        time.sleep(1.0)
        ended.set()
        return OwnSpeeds()

    async def give_up() -> bool:
        task = asyncio.create_task(pod._measure(0, "", "", lambda _: asyncio.sleep(0)))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.wait([task])
        return ended.is_set()  # before the loop waits for its threads

    monkeypatch.setattr(pod, "measure", slow_measure)
    assert asyncio.run(give_up())
