"""The embedded cluster as one piece: API server, binder, kubelet, node lifecycle, faults.

>>> async with EmbeddedCluster(ClusterOptions(nodes=[NodeDeclaration("n1")])) as cluster:
...     print(cluster.url)

Everything runs in one process and one event loop, but for the processes of the pods. Leaving the
block stops all of it; so does the end of the process, whatever ends it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from penstock_cluster.apiserver import RunningServer, ServeOptions, serve
from penstock_cluster.faults.catalogue import Faults
from penstock_cluster.faults.clock import SkewableClock
from penstock_cluster.faults.endpoint import PREFIX as FAULTS_PREFIX
from penstock_cluster.faults.endpoint import build_endpoint
from penstock_cluster.gpus import machine_gpus
from penstock_cluster.kubelet.container.context import REFRESH_SECONDS, KubeletOptions
from penstock_cluster.kubelet.kubelet import Kubelet
from penstock_cluster.kubelet.state.backoff import BackoffOptions
from penstock_cluster.node_lifecycle import LifecycleOptions, NodeLifecycle
from penstock_cluster.nodes import NodeDeclaration, NodeDeclarationError, this_machine
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions
from penstock_cluster.scheduler.binder import Binder


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a cluster is made of."""

    nodes: Sequence[NodeDeclaration] = ()
    """Empty: one node with what this machine has."""
    folder: Path | None = None
    """Where pods keep their files; None: a temporary folder, removed with the cluster."""
    database: Path | None = None
    """SQLite file that keeps the objects; None: they go with the cluster."""
    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = True
    """Off, ``load_incluster_config`` of client libraries does not work in pods."""
    client_certificate: bool = False
    """The kubeconfig shows a client certificate and no token, as those of kubeadm, kind and k3s."""
    rbac: bool = False
    longest_token_seconds: int | None = None
    """Tokens of service accounts end after this time at the latest, and the kubelet renews them
    before; None: after the hour or so that pods ask for."""
    runs_processes: bool = True
    """False: pods are Running at once and have no process, for load tests."""
    working_directory: Path = field(default_factory=Path.cwd)
    backoff: BackoffOptions = field(default_factory=BackoffOptions)
    lifecycle: LifecycleOptions = field(default_factory=LifecycleOptions)
    heartbeat_seconds: float = 10.0
    enforces_cpu_limits: bool = False
    """Containers get no more CPU than their limits; off, they get whole cores."""
    gpus: Sequence[str] | None = None
    """The devices of this machine that pods may use, as CUDA names them; None: all that it has."""
    strict_signals: bool = False
    """Processes without a handler for SIGTERM ignore it, as PID 1 of a container does."""


class EmbeddedCluster:
    """A running cluster; use as an async context manager."""

    engine: Engine
    server: RunningServer
    kubelet: Kubelet
    binder: Binder
    faults: Faults
    """Faults on demand, see :mod:`penstock_cluster.faults.catalogue`."""
    api: Api
    """An in-process client with all rights."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        self.options = options or ClusterOptions()
        self._stack = contextlib.AsyncExitStack()
        self._is_entered = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError(
                "this EmbeddedCluster is running already; make another one for a second cluster"
            )
        async with contextlib.AsyncExitStack() as stack:
            self._is_entered = True
            stack.callback(self._leave)
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _leave(self) -> None:
        self._is_entered = False

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        options = self.options
        folder = options.folder
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="penstock-pods-")
            folder = Path(stack.enter_context(temporary))
        clock = SkewableClock()
        self.engine = await stack.enter_async_context(
            Engine(
                EngineOptions(
                    database=options.database,
                    rbac=options.rbac,
                    clock=clock,
                    longest_token_seconds=options.longest_token_seconds,
                )
            )
        )
        serving = ServeOptions(
            host=options.host,
            port=options.port,
            tls=options.tls,
            client_certificate=options.client_certificate,
            mounts={FAULTS_PREFIX: build_endpoint(lambda: self.faults)},
        )
        self.server = await stack.enter_async_context(serve(self.engine, serving))
        self.api = self.engine.api("penstock:cluster", manager="penstock")
        address = urlsplit(self.server.url)
        kubelet_options = KubeletOptions(
            folder=folder.absolute(),
            working_directory=options.working_directory,
            backoff=options.backoff,
            heartbeat_seconds=options.heartbeat_seconds,
            runs_processes=options.runs_processes,
            enforces_cpu_limits=options.enforces_cpu_limits,
            strict_signals=options.strict_signals,
            gpus=machine_gpus() if options.gpus is None else tuple(options.gpus),
            refresh_seconds=_refresh_seconds(options.longest_token_seconds),
        )
        kubelet = Kubelet(
            self.engine, kubelet_options, (str(address.hostname), int(address.port or 0))
        )
        self.kubelet = await stack.enter_async_context(kubelet)
        self.faults = Faults(self.engine, kubelet, clock)
        for declaration in options.nodes or [this_machine()]:
            try:
                await self.kubelet.add_node(declaration)
            except ApiError as error:
                raise NodeDeclarationError(f"nodes: {error.message}") from None
        lifecycle = NodeLifecycle(self.engine, self.kubelet, options.lifecycle)
        self.lifecycle = await stack.enter_async_context(lifecycle)
        binder = Binder(self.engine, records_events=options.runs_processes)
        self.binder = await stack.enter_async_context(binder)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self.server.url

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self.server.token

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig for the administrator, as text."""
        return self.server.kubeconfig


def _refresh_seconds(token_seconds: int | None) -> float:
    """How often volumes are brought up to date: often enough for tokens of that life.

    They are renewed when a fifth of it is left; a quarter of that fifth may pass until then.
    """
    return REFRESH_SECONDS if token_seconds is None else min(REFRESH_SECONDS, token_seconds / 20)
