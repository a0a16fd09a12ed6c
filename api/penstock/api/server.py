"""Runs the Brain and its API until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.api.app import build_app
from penstock.api.auth import Authenticator
from penstock.api.auth.anonymous import Anonymous
from penstock.api.auth.chain import Chain
from penstock.api.auth.kubernetes import KubernetesAuthenticator
from penstock.api.auth.tokens import ApiTokens, token_in
from penstock.api.configuration_watch import ConfigurationWatch
from penstock.api.errors import ServerError
from penstock.base.descriptors import raise_descriptor_limit
from penstock.base.garbage_collection import collect_seldom
from penstock.base.http.certificate import CertificateError, ServingCertificate
from penstock.base.http.server import make_server
from penstock.base.listener import address_of, create_listener, is_loopback
from penstock.brain.assembly import check_algorithms, running_brain
from penstock.brain.configuration import BrainSettings
from penstock.brain.store.database import Database

if TYPE_CHECKING:
    from penstock.api.cluster import Cluster

logger = logging.getLogger(__name__)

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
    token_file: Path | None = None
    """Holds an API token beside those of the configuration."""
    requires_audience: bool = False
    """The cluster's tokens count only where they are for a Brain."""
    certificate: tuple[Path, Path] | None = None
    """With its key, for TLS at ``port``."""
    plain_port: int | None = None
    """With a certificate: a port without TLS beside."""


async def serve(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ServerError: One of the parts fails.
    """
    if options.auth == "none" and not is_loopback(options.host):
        raise ServerError(
            f"--auth=none with --host={options.host}: a service that asks for no token listens "
            "on loopback only (127.0.0.1, ::1 or localhost)"
        )
    raise_descriptor_limit()
    registry = check_algorithms(options.settings)
    certificate = _certificate(options)
    database = Database(options.database)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(options.host, options.port))
        listeners = [listener]
        if options.plain_port is not None:
            listeners.append(stack.enter_context(_listen(options.host, options.plain_port)))
        stack.push_async_callback(database.close)
        cluster: Cluster | None = None
        if options.kubeconfig is not None or options.in_cluster:
            # The client of Kubernetes takes a second to import: only who needs it waits for it.
            from penstock.api.cluster import connected_cluster

            cluster = await stack.enter_async_context(connected_cluster(options.kubeconfig))
        local = () if options.token_file is None else (token_in(options.token_file),)
        tokens = ApiTokens(options.settings.tokens, local)
        authenticator = _authenticator(options, tokens, cluster)
        brain = await stack.enter_async_context(
            running_brain(database, options.settings, registry=registry, scales=cluster)
        )
        if options.config is not None:
            watch = ConfigurationWatch(options.config, options.overrides, brain, tokens)
            watching = asyncio.create_task(watch.run(), name="configuration")
            stack.callback(watching.cancel)
        server = make_server(
            build_app(brain, authenticator, local_only=options.auth == "none"),
            keep_alive_seconds=30,
            stop_seconds=5,
            certificate=certificate,
            log_config=None,
        )
        for plain in listeners[1:]:
            server.serve_plainly(plain)
        collect_seldom()
        serving = asyncio.create_task(server.serve(sockets=listeners), name="http")
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
            scheme = "http" if certificate is None else "https"
            sys.stdout.write(f"brain listening on {scheme}://{address_of(listener)}\n")
            sys.stdout.flush()
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        brain.plans.stop()
        server.should_exit = True
        for task in (waiting, ready):
            task.cancel()
        await serving


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
            requires = options.requires_audience
            return Chain([tokens, KubernetesAuthenticator(cluster, requires_audience=requires)])


def _certificate(options: ServerOptions) -> ServingCertificate | None:
    if options.certificate is None:
        if options.plain_port is not None:
            raise ServerError("--plain-port goes with --tls-certificate: --port has no TLS")
        return None
    try:
        return ServingCertificate(*options.certificate)
    except CertificateError as error:
        raise ServerError(f"--tls-certificate, --tls-key: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = create_listener(host, port)
    except socket.gaierror as error:
        raise ServerError(f"--host={host}: cannot be resolved: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServerError(
                f"port {port} of {host} is in use: stop what listens there, or choose another with "
                "--port (0 is any free one)"
            ) from error
        raise ServerError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
