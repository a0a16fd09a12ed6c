"""A holder of a shard whose work does not end when it is cancelled; its process has to.

Arguments: a kubeconfig, and the namespace of the Leases.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from penstock.base.shards import Share
from penstock.controller.shards.holder import ShardHolder
from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.kube.election import LeaseName
from penstock.kube.logs import set_up_logging


async def work(_share: Share) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


async def main(kubeconfig: str, namespace: str) -> None:
    set_up_logging("text")
    client = await connect(Path(kubeconfig), "tests")
    lease = LeaseName(namespace, "penstock-controller")
    await ShardHolder(Api(client), lease, "stubborn").run(work, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
