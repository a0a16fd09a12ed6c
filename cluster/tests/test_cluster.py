"""The cluster as one object: entered once at a time."""

from __future__ import annotations

import asyncio

import pytest

from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster


def test_one_that_runs_cannot_be_entered_again() -> None:
    async def scenario() -> None:
        cluster = EmbeddedCluster(ClusterOptions(tls=False, runs_processes=False))
        async with cluster:
            url = cluster.url
            with pytest.raises(RuntimeError, match="is running already; make another one"):
                async with cluster:
                    pass
            assert cluster.url == url
            await cluster.api.list("nodes")
        async with cluster:  # once it has ended it may
            await cluster.api.list("nodes")

    asyncio.run(asyncio.wait_for(scenario(), 30))
