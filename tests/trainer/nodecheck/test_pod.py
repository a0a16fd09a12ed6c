"""A pod's part: what it measures, over which calls, and that it begins whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.base.listener import address_of, create_listener
from penstock.crds import environment
from penstock.job.settings import pod_identity
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.nodecheck import pod
from penstock.trainer.nodecheck.cohort import CheckedNode, PodChecks
from penstock.trainer.nodecheck.link import (
    LINK_SECONDS,
    MESSAGE_BYTES,
    MOST_CALLERS,
    measure_link,
    serving,
)
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


def test_a_trainer_that_is_far_away_is_not_waited_for_before_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linking = threading.Event()

    def link(address: str, token: str) -> float:
        linking.set()
        return 1e9

    async def say(_: object) -> None:
        assert await asyncio.to_thread(linking.wait, 30), "the link waits for the trainer"

    monkeypatch.setattr(pod, "measure", OwnSpeeds)
    monkeypatch.setattr(pod, "measure_link", link)
    measured = asyncio.run(pod._measure(1, "partner:1", "token", say))
    assert (measured.link, measured.complete, measured.failed) == (1e9, True, False)


def test_a_link_on_which_all_comes_late_is_slow() -> None:
    with serving("127.0.0.1", "token") as address, late(address, 0.05) as slow_address:
        usual, slow = measure_link(address, "token"), measure_link(slow_address, "token")
    assert usual is not None
    assert slow is None or slow <= 2 * MESSAGE_BYTES / 0.1, "each message waits for its way"


@contextlib.contextmanager
def late(address: str, seconds: float) -> Iterator[str]:
    """A way to an address on which each piece comes so much later, in both directions."""
    host, _, port = address.rpartition(":")

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=deliver, args=(waiting, target), daemon=True).start()
            while content := source.recv(1 << 16):
                waiting.put((time.monotonic() + seconds, content))
        waiting.put((0.0, b""))

    def deliver(waiting: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (one := waiting.get())[1]:
                time.sleep(max(0.0, one[0] - time.monotonic()))
                target.sendall(one[1])
            target.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                there = listening.accept()[0]
                back = socket.create_connection((host, int(port)))
                threading.Thread(target=carry, args=(there, back), daemon=True).start()
                carry(back, there)
                there.close()
                back.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)
