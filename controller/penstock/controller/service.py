"""The controller as a process: health, leadership, an orderly end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubernetes.aio.client import ApiClient

from penstock.base.garbage_collection import collect_seldom
from penstock.base.shards import ALL_JOBS, Share
from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.controller.shards.holder import ShardHolder
from penstock.crds.group import ELASTICJOB_PLURAL
from penstock.kube.api import Api
from penstock.kube.connection import connect
from penstock.kube.election import Candidate, LeaseName
from penstock.kube.probes import ProbeServer

USER_AGENT: Final = "penstock-controller"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the process runs; `Options` is how the controller in it works."""

    operator: Options
    kubeconfig: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    lease: LeaseName | None = None
    """That of the first shard; None: no election, for development with one replica only."""
    makes_namespace: str | None = None
    """A namespace to make where it is missing: that of the Leases, outside a cluster."""


class _Terms:
    """What this process does under one Lease after the other: a new operator for each share."""

    def __init__(
        self, client: ApiClient, options: Options, metrics: Metrics, watching: Callable[[], None]
    ) -> None:
        self._client, self._options, self._metrics = client, options, metrics
        self._watching = watching
        self._operator: Operator | None = None

    async def run(self, share: Share = ALL_JOBS) -> None:
        """Look after the jobs of a share until cancelled."""
        operator = Operator(
            self._client, self._options, self._metrics, watching=self._watching, share=share
        )
        self._operator = operator
        try:
            await operator.run()
        finally:
            self._operator = None

    def report(self) -> None:
        """Bring the gauges up to date; called before they are read."""
        if self._operator is not None:
            self._operator.report()


async def _lead(
    options: ServiceOptions, api: Api, metrics: Metrics, terms: _Terms, stop: asyncio.Event
) -> bool:
    identity, show = options.operator.identity, metrics.leading.set
    if options.lease is None:
        alone = Candidate(api, None, identity, show, options.makes_namespace)
        return await alone.run(terms.run, stop)
    holder = ShardHolder(
        api, options.lease, identity, show, metrics.shards.set, options.makes_namespace
    )
    return await holder.run(terms.run, stop)


async def serve(options: ServiceOptions, announce: Callable[[str], None]) -> bool:
    """Run until SIGTERM or SIGINT.

    Args:
        options: how.
        announce: called once with the address of health and metrics, when they are served.

    Returns:
        True after an orderly end; False where the Lease was lost.

    Raises:
        ConfigurationError: the configuration cannot be used.
        PortInUseError: the port is taken.
    """
    metrics = Metrics()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen_for_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

    listen_for_signals()
    collect_seldom()
    client = await connect(options.kubeconfig, USER_AGENT)
    try:
        api = Api(client, metrics.count_request)
        terms = _Terms(client, options.operator, metrics, listen_for_signals)
        probes = ProbeServer(
            options.host, options.port, metrics.registry, api, ELASTICJOB_PLURAL, terms.report
        )
        async with probes:
            announce(probes.url)
            return await _lead(options, api, metrics, terms, stop)
    finally:
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here
