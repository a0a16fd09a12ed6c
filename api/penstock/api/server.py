"""Runs the Brain and its API until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import uvicorn

from penstock.api.app import build_app
from penstock.api.auth import Authenticator
from penstock.api.auth.anonymous import Anonymous
from penstock.api.auth.chain import Chain
from penstock.api.auth.kubernetes import KubernetesAuthenticator
from penstock.api.auth.tokens import ApiTokens
from penstock.api.configuration_watch import ConfigurationWatch
from penstock.api.errors import ServerError
from penstock.brain.assembly import check_algorithms, running_brain
from penstock.brain.configuration import BrainSettings
from penstock.brain.store.database import Database

if TYPE_CHECKING:
    from penstock.api.cluster import Cluster

logger = logging.getLogger(__name__)
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

AuthMode = Literal["kubernetes", "tokens", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How to serve."""

    settings: BrainSettings
    database: str
    host: str = "127.0.0.1"
    port: int = 0
    auth: AuthMode = "tokens"
    kubeconfig: str | None = None
    """Files as in ``$KUBECONFIG``."""
    in_cluster: bool = False
    config: Path | None = None
    """The file to watch for changes."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings over the file's."""


async def serve(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ServerError: One of the parts fails.
    """
    if options.auth == "none" and options.host not in _LOOPBACK:
        raise ServerError(
            f"--auth=none with --host={options.host}: a service that asks for no token listens "
            "on loopback only (127.0.0.1, ::1 or localhost)"
        )
    registry = check_algorithms(options.settings)
    database = Database(options.database)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.port))
        stack.push_async_callback(database.close)
        cluster: Cluster | None = None
        if options.kubeconfig is not None or options.in_cluster:
            # The client of Kubernetes takes a second to import: only who needs it waits for it.
            from penstock.api.cluster import connected_cluster

            cluster = await stack.enter_async_context(connected_cluster(options.kubeconfig))
        tokens = ApiTokens(options.settings.tokens)
        authenticator = _authenticator(options, tokens, cluster)
        brain = await stack.enter_async_context(
            running_brain(database, options.settings, registry=registry, scales=cluster)
        )
        if options.config is not None:
            watch = ConfigurationWatch(options.config, options.overrides, brain, tokens)
            watching = asyncio.create_task(watch.run(), name="configuration")
            stack.callback(watching.cancel)
        server = _Server(
            uvicorn.Config(
                build_app(brain, authenticator),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
            stack.callback(loop.remove_signal_handler, number)
        waiting = asyncio.create_task(stopping.wait(), name="signal")
        ready = asyncio.create_task(server.ready.wait(), name="ready")
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if server.ready.is_set():
            # The one line that a supervisor reads the address from.
            sys.stdout.write(f"brain listening on {_url(listener)}\n")
            sys.stdout.flush()
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        brain.plans.stop()
        server.should_exit = True
        for task in (waiting, ready):
            task.cancel()
        await serving


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers, which says when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self.ready.set()


def _authenticator(
    options: ServerOptions, tokens: ApiTokens, cluster: Cluster | None
) -> Authenticator:
    match options.auth:
        case "none":
            return Anonymous()
        case "tokens":
            if not len(tokens):
                raise ServerError(
                    "--auth=tokens and the configuration has no tokens: make one with "
                    "'penstock brain token NAME', connect to a cluster with --kubeconfig or "
                    "$KUBECONFIG, or, on your own machine, give --auth=none"
                )
            return tokens
        case "kubernetes":
            if cluster is None:
                raise ServerError(
                    "--auth=kubernetes needs a cluster: give --kubeconfig=FILE or --in-cluster, "
                    "or set $KUBECONFIG"
                )
            # API tokens first: looking one up costs no request.
            return Chain([tokens, KubernetesAuthenticator(cluster)])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ServerError(f"--host={host}: cannot be resolved: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ServerError(
                f"port {port} of {host} is in use: stop what listens there, or choose another with "
                "--port (0 is any free one)"
            ) from error
        raise ServerError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
