"""The process round the loop: configuration, election, health, signals."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import uuid4

from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from penstock.client import AsyncBrainClient, RetryPolicy, TokenFile
from penstock.scheduler.errors import SchedulerError
from penstock.scheduler.metrics import Metrics
from penstock.scheduler.service.api import Api
from penstock.scheduler.service.brain import BrainLink
from penstock.scheduler.service.carrier import AT_ONCE
from penstock.scheduler.service.election import LeaseName, give_back, lead
from penstock.scheduler.service.health import HealthServer
from penstock.scheduler.service.loop import Loop, Options

logger = logging.getLogger(__name__)

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BRAIN_RETRY: Final = RetryPolicy(total_seconds=10.0, attempt_seconds=5.0)


class ConfigurationError(SchedulerError):
    """The scheduler cannot start; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How the process runs; `Options` is how the planner in it works."""

    loop: Options
    kubeconfig: Path | None = None
    brain_url: str = ""
    brain_token_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    lease: LeaseName | None = None
    """None: no election, for development with one replica only."""


def make_identity() -> str:
    """A name that no other replica has, now or earlier."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def own_namespace() -> str:
    """The namespace that the scheduler's own pod is in; outside a cluster, ``default``."""
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _in_cluster(kubeconfig: Path | None) -> bool:
    return kubeconfig is None and (_ACCOUNT / "token").exists() and "KUBECONFIG" not in os.environ


async def connect(kubeconfig: Path | None) -> ApiClient:
    """A client for the cluster of a kubeconfig, of ``$KUBECONFIG``, or the one it runs in.

    Raises:
        ConfigurationError: there is no usable configuration.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = AT_ONCE + 8
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        if _in_cluster(kubeconfig):
            kube_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if kubeconfig is None else str(kubeconfig),
                client_configuration=configuration,
            )
    except (kube_config.ConfigException, OSError) as error:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise ConfigurationError(
            f"cannot use the kubeconfig {where}: {error}; name another with --kubeconfig"
        ) from error
    place = urlsplit(configuration.host)
    if not configuration.proxy and place.hostname and not proxy_bypass(place.hostname):
        configuration.proxy = getproxies().get(place.scheme)
    client = ApiClient(configuration)
    client.user_agent = "penstock-scheduler"
    return client


class _OwnToken:
    """The token with which we reach the API server: the Brain asks that same server about it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.value = ""

    async def renew(self) -> None:
        headers: dict[str, str] = {}
        await self._client.update_params_for_auth(headers, None, ["BearerToken"], "", "GET", None)
        found = {name.lower(): value for name, value in headers.items()}
        self.value = found.get("authorization", "").removeprefix("Bearer ").strip()

    def __call__(self) -> str:
        return self.value


def _brain(options: ProcessOptions, token: _OwnToken) -> AsyncBrainClient | None:
    if not options.brain_url:
        logger.warning("no --brain-url: pods are placed, but nobody is given data workers")
        return None
    if urlsplit(options.brain_url).scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"--brain-url={options.brain_url!r}: must begin with http:// or https://"
        )
    if options.brain_token_file is not None:
        if not options.brain_token_file.is_file():
            raise ConfigurationError(
                f"--brain-token-file={options.brain_token_file}: there is no such file"
            )
        return AsyncBrainClient(
            options.brain_url, token=TokenFile(options.brain_token_file), retry=_BRAIN_RETRY
        )
    if _in_cluster(options.kubeconfig):
        own = TokenFile(_ACCOUNT / "token")
        return AsyncBrainClient(options.brain_url, token=own, retry=_BRAIN_RETRY)
    return AsyncBrainClient(
        options.brain_url, token=token if token.value else None, retry=_BRAIN_RETRY
    )


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
    client = await connect(options.kubeconfig)
    brain: AsyncBrainClient | None = None
    try:
        token = _OwnToken(client)
        await token.renew()
        brain = _brain(options, token)
        api = Api(client)
        link = None if brain is None else BrainLink(brain, metrics, token.renew)
        loop = Loop(api, link, options.loop, metrics)
        async with HealthServer(options.host, options.port, metrics, api) as health:
            announce(health.url)
            return await _until_stopped(options, client, api, loop, metrics, stop)
    finally:
        if brain is not None:
            await brain.aclose()
        await client.close()  # type: ignore[no-untyped-call]


async def _until_stopped(
    options: ProcessOptions,
    client: ApiClient,
    api: Api,
    loop: Loop,
    metrics: Metrics,
    stop: asyncio.Event,
) -> bool:
    identity = options.loop.identity

    async def work() -> None:
        metrics.leading.set(1)
        logger.info("leading as %s", identity)
        try:
            await loop.run()
        finally:
            metrics.leading.set(0)

    async def alone() -> bool:
        await work()
        return True

    lease = options.lease
    running: Awaitable[bool] = alone() if lease is None else lead(client, lease, identity, work)
    task = asyncio.ensure_future(running)
    stopped = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    orderly = stopped.done()
    stopped.cancel()
    if orderly:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        orderly = await task
    if orderly and lease is not None:
        await give_back(api, lease, identity)
    return orderly
