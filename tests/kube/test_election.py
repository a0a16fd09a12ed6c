"""One replica leads at a time, the next one follows, and what was begun without the Lease ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock.kube import election
from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.kube.election import Candidate, LeaseName, time_left
from penstock.kube.errors import ConfigurationError
from penstock_cluster.registry.model import errors
from penstock_cluster.testing import RunningCluster, api_server
from tests.kube.leases import Failing, own_lease


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as found:
        yield found


@pytest.fixture
def lease(cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[LeaseName]:
    with own_lease(cluster, request.node.name, "lease") as found:
        yield found


def holder(cluster: RunningCluster, lease: LeaseName) -> str:
    found = cluster.get("leases.coordination.k8s.io", lease.name, lease.namespace)
    return str(found["spec"].get("holderIdentity") or "")


class Replica:
    """A candidate whose work is to wait, or to fail."""

    def __init__(
        self, api: Api, lease: LeaseName | None, identity: str, makes: str | None = None
    ) -> None:
        self.shown: list[float] = []
        self.candidate = Candidate(api, lease, identity, self.shown.append, makes, pytest.fail)
        self.stop = asyncio.Event()
        self.working = asyncio.Event()
        self.end = asyncio.Event()
        self.error: Exception | None = None
        self.task = asyncio.create_task(self.candidate.run(self._work, self.stop))

    async def _work(self) -> None:
        self.working.set()
        try:
            await self.end.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.working.clear()

    async def leads(self, within: float = 10.0) -> None:
        async with asyncio.timeout(within):
            await self.working.wait()


@contextlib.asynccontextmanager
async def replicas(
    cluster: RunningCluster, lease: LeaseName | None, count: int = 1
) -> AsyncIterator[list[Replica]]:
    """So many; the first leads."""
    client = await connect(cluster.kubeconfig_path, "tests")
    found: list[Replica] = []
    try:
        for number in range(count):
            found.append(Replica(Api(client), lease, f"replica-{number}"))
            await found[0].leads()
        yield found
    finally:
        for one in found:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in found), return_exceptions=True)
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


def test_one_leads_and_hands_over_when_told_to_stop(
    cluster: RunningCluster, lease: LeaseName
) -> None:
    async def main() -> None:
        async with replicas(cluster, lease, 2) as (first, second):
            assert holder(cluster, lease) == "replica-0"
            begun = time.monotonic()
            first.stop.set()
            assert await first.task is True
            assert not first.working.is_set()
            await second.leads()
            assert time.monotonic() - begun < election.LEASE_SECONDS / 2, "it need not run out"
            assert holder(cluster, lease) == "replica-1"
            assert (first.shown, second.shown) == ([1, 0], [1])

    asyncio.run(main())


def test_who_stops_while_waiting_takes_nothing_along(
    cluster: RunningCluster, lease: LeaseName
) -> None:
    async def main() -> None:
        async with replicas(cluster, lease, 2) as (_, second):
            second.stop.set()
            assert await second.task is True
            assert holder(cluster, lease) == "replica-0"
            assert second.shown == []

    asyncio.run(main())


def test_the_work_ends_when_the_lease_is_lost(cluster: RunningCluster, lease: LeaseName) -> None:
    async def main() -> None:
        async with replicas(cluster, lease) as [first]:
            cluster.engine.interceptor = Failing()
            async with asyncio.timeout(10):
                assert await first.task is False
            assert not first.working.is_set()
            assert first.shown == [1, 0]

    asyncio.run(main())


def test_the_time_that_is_left_counts_from_the_last_write() -> None:
    assert time_left(8.0, None, 1000.0) == 8.0
    assert time_left(8.0, 1000.0, 1003.0) == 5.0
    assert time_left(8.0, 1000.0, 1009.0) == -1.0


def test_a_process_ends_before_others_can_have_its_lease() -> None:
    # The work is cancelled first, and what does not end then ends with the process.
    assert 0 < election.RENEW_DEADLINE_SECONDS < election.END_DEADLINE_SECONDS
    assert election.END_DEADLINE_SECONDS < election.LEASE_SECONDS


class Silent(Failing):
    """Answers nothing about Leases, as behind a network that swallows everything."""

    async def on_request(self, request: Any) -> Any:
        if request.resource == "leases":
            await asyncio.sleep(3600)
        return None


def test_work_ends_before_the_lease_though_the_server_is_silent(cluster: RunningCluster) -> None:
    """At the true times: an attempt to renew that is not answered lasts as long as it may."""
    lease = LeaseName(cluster.namespace("silent"), "lease")

    async def main() -> None:
        async with replicas(cluster, lease) as [first]:
            cluster.engine.interceptor = Silent()
            begun = time.monotonic()
            async with asyncio.timeout(60):
                assert await first.task is False
            assert not first.working.is_set()
            assert time.monotonic() - begun < election.LEASE_SECONDS

    try:
        asyncio.run(main())
    finally:
        cluster.engine.interceptor = None


@pytest.mark.parametrize("told", ["to stop", "nothing"])
def test_work_that_does_not_end_ends_with_its_process(
    cluster: RunningCluster, lease: LeaseName, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "END_DEADLINE_SECONDS", 4.0)
    said: list[str] = []

    async def main() -> None:
        working, end = asyncio.Event(), asyncio.Event()

        async def stubborn() -> None:
            working.set()
            while not end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await end.wait()

        client = await connect(cluster.kubeconfig_path, "tests")
        try:
            candidate = Candidate(Api(client), lease, "stubborn", abandon=said.append)
            stop = asyncio.Event()
            task = asyncio.create_task(candidate.run(stubborn, stop))
            async with asyncio.timeout(60):
                await working.wait()
                if told == "to stop":
                    stop.set()
                else:
                    cluster.engine.interceptor = Failing()
                await task
        finally:
            end.set()
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    asyncio.run(main())
    [line] = said
    assert f"under the Lease {lease.namespace}/lease does not end" in line


class Unknown(Failing):
    """Knows no token any more, as after the account has been removed."""

    async def on_request(self, request: Any) -> Any:
        return errors.unauthorized() if request.resource == "leases" else None


def test_who_has_no_rights_left_says_so_and_ends_in_good_order(
    cluster: RunningCluster, lease: LeaseName, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a release is removed, roles and accounts first; the next leader has to wait."""

    async def main() -> None:
        async with replicas(cluster, lease) as [first]:
            cluster.engine.interceptor = Unknown()
            first.stop.set()
            assert await first.task is True

    with caplog.at_level("INFO", logger="penstock.kube.election"):
        asyncio.run(main())
    [said] = [one for one in caplog.messages if "given back" in one]
    assert said.startswith("the Lease was not given back and will run out: ")
    cluster.engine.interceptor = None
    assert holder(cluster, lease) == "replica-0"


def test_work_that_ends_gives_the_lease_back(cluster: RunningCluster, lease: LeaseName) -> None:
    async def main() -> None:
        async with replicas(cluster, lease) as [first]:
            first.end.set()
            assert await first.task is True
            assert holder(cluster, lease) == ""

    asyncio.run(main())


@pytest.mark.parametrize("elected", [True, False])
def test_what_the_work_raises_is_raised(
    cluster: RunningCluster, lease: LeaseName, elected: bool
) -> None:
    async def main() -> None:
        async with replicas(cluster, lease if elected else None) as [first]:
            first.error = LookupError("fault")
            first.end.set()
            with pytest.raises(LookupError, match="fault"):
                await first.task
            assert first.shown == [1, 0]

    asyncio.run(main())


def test_without_a_lease_nobody_is_asked(cluster: RunningCluster, lease: LeaseName) -> None:
    async def main() -> None:
        async with replicas(cluster, None) as [alone]:
            alone.stop.set()
            assert await alone.task is True
            assert alone.shown == [1, 0]

    asyncio.run(main())
    assert cluster.list("leases.coordination.k8s.io", lease.namespace) == []


def test_a_namespace_that_is_missing_is_made_before_the_lease(cluster: RunningCluster) -> None:
    async def main() -> None:
        client = await connect(cluster.kubeconfig_path, "tests")
        try:
            for _ in range(2):  # missing, and there
                replica = Replica(Api(client), LeaseName("fresh", "lease"), "replica", "fresh")
                await replica.leads()
                replica.stop.set()
                assert await replica.task is True
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    assert cluster.find("namespaces", "fresh") is None
    asyncio.run(main())
    assert cluster.find("namespaces", "fresh") is not None


def test_a_namespace_that_may_not_be_made_is_named(cluster: RunningCluster) -> None:
    class Forbids:
        async def on_request(self, request: Any) -> Any:
            if request.resource == "namespaces" and request.verb == "create":
                return errors.forbidden_path("somebody", "create", "namespaces")
            return None

        def on_watch_event(self, request: Any, event: Any) -> bool:
            return True

    async def main() -> None:
        client = await connect(cluster.kubeconfig_path, "tests")
        try:
            replica = Replica(Api(client), LeaseName("none", "lease"), "replica", "none")
            with pytest.raises(ConfigurationError, match="kubectl create namespace none"):
                await replica.task
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    cluster.engine.interceptor = Forbids()
    try:
        asyncio.run(main())
    finally:
        cluster.engine.interceptor = None
