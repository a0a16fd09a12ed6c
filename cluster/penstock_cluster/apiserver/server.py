"""Serving an engine on a loopback port, with a kubeconfig for it.

>>> async with serve(engine, ServeOptions()) as server:
...     server.url, server.token, server.kubeconfig
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from penstock_cluster.apiserver.app import Application
from penstock_cluster.apiserver.kubeconfig_file import kubeconfig, replace_kubeconfig
from penstock_cluster.apiserver.request import AsgiApp
from penstock_cluster.apiserver.transport import GatheringProtocol
from penstock_cluster.registry import Engine

if TYPE_CHECKING:
    from penstock_cluster.apiserver.certificates import Authority

logger = logging.getLogger(__name__)

_START_SECONDS = 10.0
_AUTHORITY = "certificate-authority"
_STOP_SECONDS = 5.0
_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 32
"""In one turn of the loop; as many wait for descriptors, and are reported, when there are none."""
_HANDSHAKE_SECONDS = 5.0
"""For TLS, in which a connection costs most."""
_ACCEPT_FAILURES_SECONDS = 10.0
_TURNS_TO_CONNECT = 3
"""Of the loop, from accepting a connection until uvicorn knows of it, without TLS."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where and how to serve."""

    host: str = "127.0.0.1"
    #: 0: a free one.
    port: int = 0
    #: Serve over TLS, with a certificate made for this run; the database keeps who signs it.
    tls: bool = False
    #: With TLS: the kubeconfig shows a client certificate and no token, as that of kubeadm does.
    client_certificate: bool = False
    #: Name of cluster, user and context in the kubeconfig.
    name: str = "penstock"
    #: Other ASGI applications by path prefix, reached by administrators only.
    mounts: Mapping[str, AsgiApp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers."""

    engine: Engine
    url: str
    token: str
    kubeconfig: str
    #: The certificate authority to trust, with TLS.
    ca_pem: bytes | None
    authority: Authority | None = None

    def certified_kubeconfig(self, user: str, *groups: str, seconds: float = 3600) -> str:
        """A kubeconfig with a client certificate by which its holder is a user in groups.

        Raises:
            LookupError: the server has no TLS.
        """
        if self.authority is None:
            raise LookupError("client certificates need TLS: ServeOptions(tls=True)")
        certificate = self.authority.client(user, groups, timedelta(seconds=seconds))
        return kubeconfig(self.url, certificate, user, self.ca_pem)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig, readable by its owner only; :mod:`.kubeconfig_file` says how.

        Raises:
            OSError: it cannot be written, or the file is the kubeconfig of something else.
        """
        replace_kubeconfig(path, self.kubeconfig)
        return path


def build_app(engine: Engine, *, mounts: Mapping[str, AsgiApp] | None = None) -> Application:
    """The bare ASGI application over an engine; ``mounts``: others by path prefix."""
    return Application(engine, mounts=mounts)


class _AcceptFailures:
    """Says once in a while that connections cannot be accepted; asyncio would, for each, at length.

    Everything else goes to the handler that was there before.
    """

    def __init__(self, before: Callable[..., object] | None) -> None:
        self._before = before
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message", ""))
        if "socket.accept()" not in message:
            if self._before is not None:
                self._before(loop, context)
            else:
                loop.default_exception_handler(context)
        elif loop.time() >= self._next:
            self._next = loop.time() + _ACCEPT_FAILURES_SECONDS
            logger.error("%s: %s", message, context.get("exception"))


class _Server(uvicorn.Server):
    """uvicorn inside a loop that belongs to somebody else: it leaves signals alone.

    Nor does it leave connections behind. uvicorn ends those that it knows as it begins to stop; one
    that was accepted in the same turn of the loop would hold it up, or be lost, and outlive it.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with bounds for those who connect and say nothing."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_AcceptFailures(loop.get_exception_handler()))
        self.servers = [
            await loop.create_server(
                self._connect,
                sock=listener,
                ssl=self.config.ssl,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self.config.ssl else None,
                backlog=_ACCEPTED_AT_ONCE,
            )
            for listener in sockets or ()
        ]
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio knows one figure for the queue and for a turn
        self.started = True

    def _connect(self) -> asyncio.Protocol:
        return GatheringProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for listener in [each for server in self.servers for each in server.sockets]:
            loop.remove_reader(listener.fileno())  # nobody new; a closed server loses who just came
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which they are closed


@contextlib.asynccontextmanager
async def serve(
    engine: Engine | None = None, options: ServeOptions | None = None
) -> AsyncIterator[RunningServer]:
    """Serve until the block ends. Without an engine a fresh one is made, started and stopped.

    An engine that is passed in must be running. ``OSError`` names the port when it is in use.
    """
    options = options or ServeOptions()
    if engine is None:
        async with Engine() as own, serve(own, options) as running:
            yield running
        return
    listener = _listen(options)
    port = listener.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(listener))
        config = uvicorn.Config(
            "",
            loop="none",
            http=GatheringProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
        app = Application(engine, address=f"{shown}:{port}", mounts=options.mounts)
        config.app = app
        authority: Authority | None = None
        if options.tls:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
            # Imported here: a server without TLS starts a seventh faster.
            from penstock_cluster.apiserver.certificates import Authority

            authority = Authority(engine.secret(_AUTHORITY))
            engine.keep_secret(_AUTHORITY, authority.secret)
            authority.write_serving(folder, options.host)
            config.ssl_certfile = str(folder / "server.pem")
            config.ssl_keyfile = str(folder / "server.key")
            config.ssl_ca_certs = str(folder / "ca.pem")
            config.ssl_cert_reqs = ssl.CERT_OPTIONAL  # a client may show one, or a token
            engine.publish_authority(authority.pem.decode())
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="api-server")
        try:
            await _wait_started(server, task)
            url = f"{'https' if options.tls else 'http'}://{shown}:{port}"
            token = engine.tokens.admin
            ca_pem = None if authority is None else authority.pem
            user: str | tuple[bytes, bytes] = token
            if authority is not None and options.client_certificate:
                user = authority.client("kubernetes-admin", ["system:masters"])
            text = kubeconfig(url, user, options.name, ca_pem)
            yield RunningServer(engine, url, token, text, ca_pem, authority)
        finally:
            app.close()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, _STOP_SECONDS)


def _listen(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ipaddress.ip_address(options.host).version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno,
            f"cannot listen on {options.host}:{options.port}: {error.strerror}; "
            "choose another port, or 0 for any free one",
        ) from error
    return listener


async def _wait_started(server: _Server, task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while not server.started:
            if task.done():
                task.result()
                raise RuntimeError("the API server stopped before it was ready")
            await asyncio.sleep(0.001)
