"""The controller as a process: health, leadership, an orderly end."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.crds.group import ELASTICJOB_PLURAL
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
    """None: no election, for development with one replica only."""
    makes_namespace: str | None = None
    """A namespace to make where it is missing: that of the Leases, outside a cluster."""


def _tune_garbage_collection() -> None:
    """Leave the modules alone, and look less often: objects of JSON do not form cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


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
    _tune_garbage_collection()
    client = await connect(options.kubeconfig, USER_AGENT)
    try:
        operator = Operator(client, options.operator, metrics, watching=listen_for_signals)
        api = operator.api
        probes = ProbeServer(
            options.host, options.port, metrics.registry, api, ELASTICJOB_PLURAL, operator.report
        )
        identity = options.operator.identity
        candidate = Candidate(
            api, options.lease, identity, metrics.leading.set, options.makes_namespace
        )
        async with probes:
            announce(probes.url)
            return await candidate.run(operator.run, stop)
    finally:
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here
