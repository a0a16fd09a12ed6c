"""The controller as a process: configuration, health, leadership, an orderly end.

On losing the Lease the process ends with an error, as controllers of Kubernetes do: whoever started
it starts it again, and nothing that was begun under the lost Lease lives on.
"""

from __future__ import annotations

import asyncio
import gc
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

from penstock.controller.api import ApiError
from penstock.controller.election import LeaseName, give_back, lead
from penstock.controller.health import HealthServer
from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.crds.group import ELASTICJOB_PLURAL
from penstock.crds.kubeconfig import named, named_or_home

logger = logging.getLogger(__name__)

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS: Final = 64


class ConfigurationError(Exception):
    """The controller cannot start; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the process runs; `Options` is how the controller in it works."""

    operator: Options
    kubeconfig: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    lease: LeaseName | None = None
    """None: no election, for development with one replica only."""


def make_identity() -> str:
    """A name that no other replica has, now or earlier."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def own_namespace() -> str:
    """The namespace that the controller's own pod is in; outside a cluster, ``default``."""
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


async def connect(kubeconfig: Path | None) -> ApiClient:
    """A client for the cluster of a kubeconfig, of ``$KUBECONFIG``, or the one it runs in.

    Raises:
        ConfigurationError: there is no usable configuration.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = _CONNECTIONS
    # The configuration has its own proxy; with trust_env, every request looks for one and for a
    # netrc in a thread, which costs a third of its CPU time.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        if named(kubeconfig) is None and (_ACCOUNT / "token").exists():
            kube_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=named_or_home(kubeconfig), client_configuration=configuration
            )
    except (kube_config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"cannot use the kubeconfig {named_or_home(kubeconfig)}: {error}; name another "
            "with --kubeconfig"
        ) from error
    _use_proxy_of_environment(configuration)
    client = ApiClient(configuration)
    client.user_agent = "penstock-controller"
    return client


def _use_proxy_of_environment(configuration: Configuration) -> None:
    """The proxy of ``HTTPS_PROXY`` and its like, unless the kubeconfig names one."""
    place = urlsplit(configuration.host)
    if not configuration.proxy and place.hostname and not proxy_bypass(place.hostname):
        configuration.proxy = getproxies().get(place.scheme)


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
    """
    metrics = Metrics()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen_for_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

    listen_for_signals()
    _tune_garbage_collection()
    client = await connect(options.kubeconfig)
    try:
        operator = Operator(client, options.operator, metrics, watching=listen_for_signals)
        health = HealthServer(
            options.host, options.port, metrics, lambda: _is_ready(operator), operator.report
        )
        async with health:
            announce(health.url)
            return await _until_stopped(options, client, operator, metrics, stop)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


async def _is_ready(operator: Operator) -> bool:
    try:
        async with asyncio.timeout(5):
            await operator.api.ping(ELASTICJOB_PLURAL)
    except (ApiError, TimeoutError):
        return False
    return True


async def _until_stopped(
    options: ServiceOptions,
    client: ApiClient,
    operator: Operator,
    metrics: Metrics,
    stop: asyncio.Event,
) -> bool:
    async def work() -> None:
        metrics.leading.set(1)
        logger.info("leading as %s", options.operator.identity)
        try:
            await operator.run()
        finally:
            metrics.leading.set(0)

    lease = options.lease
    running: Awaitable[bool]
    if lease is None:
        running = _alone(work)
    else:
        running = lead(client, lease, options.operator.identity, work)
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
        await give_back(operator.api, lease, options.operator.identity)
    return orderly


async def _alone(work: Callable[[], Awaitable[None]]) -> bool:
    await work()
    return True
