"""The process round the loop: configuration, election, probes, signals.

While the Lease is held, the controller sees that a planner is alive. It lifts the gates when the
Lease is 30 s old, so that a dead planner holds nobody up.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubernetes.aio.client import ApiClient

from penstock.client import AsyncBrainClient, RetryPolicy, TokenFile
from penstock.client.errors import BrainAddressError
from penstock.client.trust import Trust, TrustFile
from penstock.kube.api import Api
from penstock.kube.connection import account_token, bearer_token, connect
from penstock.kube.election import Candidate, LeaseName
from penstock.kube.errors import ConfigurationError
from penstock.kube.probes import ProbeServer
from penstock.scheduler.service.connections.brain_connection import BrainConnection
from penstock.scheduler.service.loop import Loop, Options
from penstock.scheduler.service.metrics import Metrics

logger = logging.getLogger(__name__)

USER_AGENT: Final = "penstock-scheduler"
_BRAIN_RETRY: Final = RetryPolicy(total_seconds=10.0, attempt_seconds=5.0)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How the process runs; `Options` is how the planner in it works."""

    loop: Options
    kubeconfig: Path | None = None
    brain_url: str = ""
    brain_token_file: Path | None = None
    brain_ca_file: Path | None = None
    """Of those to trust for the Brain; None: whom this machine trusts."""
    host: str = "127.0.0.1"
    port: int = 0
    lease: LeaseName | None = None
    """None: no election, for development with one replica only."""
    makes_namespace: str | None = None
    """A namespace to make where it is missing: that of the Leases, outside a cluster."""


class OwnToken:
    """The token with which we reach the API server: the Brain asks that same server about it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.value = ""

    async def renew(self) -> None:
        self.value = await bearer_token(self._client.configuration)

    def __call__(self) -> str:
        return self.value


def _brain(options: ProcessOptions, token: OwnToken) -> AsyncBrainClient | None:
    if not options.brain_url:
        logger.warning("no --brain-url: pods are placed, but nobody is given data workers")
        return None
    if urlsplit(options.brain_url).scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"--brain-url={options.brain_url!r}: must begin with http:// or https://"
        )
    trust: Trust = True
    if options.brain_ca_file is not None:
        try:
            trust = TrustFile(options.brain_ca_file)
        except BrainAddressError as error:
            raise ConfigurationError(f"--brain-ca-file={error}") from error
    if options.brain_token_file is not None:
        if not options.brain_token_file.is_file():
            raise ConfigurationError(
                f"--brain-token-file={options.brain_token_file}: there is no such file"
            )
        token_file = TokenFile(options.brain_token_file)
        return AsyncBrainClient(
            options.brain_url, token=token_file, retry=_BRAIN_RETRY, verify=trust
        )
    if account_token(options.kubeconfig) is not None:
        # Whoever hears that token, or is the Brain, may do what the scheduler may.
        raise ConfigurationError(
            "no --brain-token-file: the account's token for the API server is not shown to the "
            "Brain; mount a projected token with the audience penstock-brain, as the chart does"
        )
    own = token if token.value else None
    return AsyncBrainClient(options.brain_url, token=own, retry=_BRAIN_RETRY, verify=trust)


async def serve(options: ProcessOptions, announce: Callable[[str], None]) -> bool:
    """Run until SIGTERM or SIGINT.

    Args:
        options: how.
        announce: called once with the address of health and metrics.

    Returns:
        True after an orderly end; False where the Lease was lost.

    Raises:
        ConfigurationError: the configuration cannot be used.
        PortInUseError: the port is taken.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    client = await connect(options.kubeconfig, USER_AGENT)
    brain: AsyncBrainClient | None = None
    try:
        token = OwnToken(client)
        await token.renew()
        brain = _brain(options, token)
        api = Api(client)
        link = None if brain is None else BrainConnection(brain, metrics, token.renew)
        loop = Loop(api, link, options.loop, metrics)
        probes = ProbeServer(options.host, options.port, metrics.registry, api, "nodes")
        candidate = Candidate(
            api, options.lease, options.loop.identity, metrics.leading.set, options.makes_namespace
        )
        async with probes:
            announce(probes.url)
            return await candidate.run(loop.run, stop)
    finally:
        if brain is not None:
            await brain.aclose()
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here
