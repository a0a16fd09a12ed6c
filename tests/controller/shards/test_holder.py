"""A process at the API server: it takes a free shard, gives it back, and ends where it loses it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.base.shards import NUMBER_KEY, NUMBER_OBJECT, Share
from penstock.controller.shards.holder import ShardHolder
from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.kube.election import LeaseName
from penstock_cluster.testing import RunningCluster, api_server
from tests.kube.leases import Failing, own_lease


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as found:
        yield found


@pytest.fixture
def lease(cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[LeaseName]:
    with own_lease(cluster, request.node.name, "penstock-controller") as found:
        yield found


def divide(cluster: RunningCluster, lease: LeaseName, number: str) -> None:
    if cluster.find("configmaps", NUMBER_OBJECT, lease.namespace) is None:
        document = {"metadata": {"name": NUMBER_OBJECT}, "data": {NUMBER_KEY: number}}
        cluster.create("configmaps", document, lease.namespace)
    else:
        change = {"data": {NUMBER_KEY: number}}
        cluster.patch("configmaps", NUMBER_OBJECT, change, lease.namespace)


def holders(cluster: RunningCluster, lease: LeaseName) -> set[str]:
    found = cluster.list("leases.coordination.k8s.io", lease.namespace)
    return {str(one["spec"].get("holderIdentity") or "") for one in found} - {""}


class Process:
    """A holder whose work is to wait."""

    def __init__(self, api: Api, lease: LeaseName, identity: str) -> None:
        self.numbers: list[float] = []
        self.leads: list[float] = []
        self.share: Share | None = None
        self.stop, self.end = asyncio.Event(), asyncio.Event()
        holder = ShardHolder(
            api, lease, identity, self.leads.append, self.numbers.append, abandon=pytest.fail
        )
        self.task = asyncio.create_task(holder.run(self._work, self.stop))

    async def _work(self, share: Share) -> None:
        self.share = share
        try:
            await self.end.wait()
        finally:
            self.share = None


@contextlib.asynccontextmanager
async def processes(
    cluster: RunningCluster, lease: LeaseName, count: int
) -> AsyncIterator[list[Process]]:
    client = await connect(cluster.kubeconfig_path, "tests")
    found = [Process(Api(client), lease, f"process-{number}") for number in range(count)]
    try:
        async with asyncio.timeout(60):
            yield found
    finally:
        for one in found:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in found), return_exceptions=True)
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


async def shares(found: list[Process], *wanted: Share) -> None:
    """Wait until these shares are looked after, each by one of them."""
    while sorted(one.share for one in found if one.share) != sorted(wanted):
        await asyncio.sleep(0.05)
        for one in found:
            assert not one.task.done(), one.task.result()


def test_shards_are_taken_and_divided_anew(cluster: RunningCluster, lease: LeaseName) -> None:
    async def main() -> None:
        async with processes(cluster, lease, 3) as found:
            await shares(found, Share())
            divide(cluster, lease, "2")
            await shares(found, Share(0, 2), Share(1, 2))
            divide(cluster, lease, "two")
            divide(cluster, lease, "3")
            await shares(found, Share(0, 3), Share(1, 3), Share(2, 3))
            assert all(one.numbers[-1] == 3 for one in found)
            for one in found:
                one.stop.set()
                assert await one.task is True
            assert holders(cluster, lease) == set()

    asyncio.run(main())


def test_work_that_ends_gives_the_lease_back(cluster: RunningCluster, lease: LeaseName) -> None:
    async def main() -> None:
        async with processes(cluster, lease, 1) as [only]:
            await shares([only], Share())
            assert holders(cluster, lease) == {"process-0"}
            only.end.set()
            assert await only.task is True
            assert holders(cluster, lease) == set()
            assert only.leads == [1, 0]

    asyncio.run(main())


def test_a_lease_that_cannot_be_renewed_ends_the_process(
    cluster: RunningCluster, lease: LeaseName
) -> None:
    async def main() -> None:
        async with processes(cluster, lease, 1) as [only]:
            await shares([only], Share())
            cluster.engine.interceptor = Failing()
            assert await only.task is False
            assert only.share is None

    asyncio.run(main())
