"""What the workers of all pods share, and what the containers of one pod share."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_cluster.events import EventRecorder
from penstock_cluster.gpus import machine_gpus
from penstock_cluster.kubelet.container.cores import CoreAllocator
from penstock_cluster.kubelet.container.devices import DeviceAllocator
from penstock_cluster.kubelet.container.disturbances import Disturbances
from penstock_cluster.kubelet.container.runtime import Runtime
from penstock_cluster.kubelet.container.sources import PodSources
from penstock_cluster.kubelet.container.volumes import PodVolumes
from penstock_cluster.kubelet.network.addresses import AddressBlock
from penstock_cluster.kubelet.network.hosts import Blackhole
from penstock_cluster.kubelet.network.relay import Relay
from penstock_cluster.kubelet.state.backoff import BackoffOptions
from penstock_cluster.kubelet.state.status import PodRecord
from penstock_cluster.registry import Api, Engine

Json = Mapping[str, Any]

# What a container would find in its image, here comes from the machine: just enough to run.
_INHERITED = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PYTHONPATH",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)

REFRESH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How pods are run."""

    folder: Path
    """Where pods keep volumes, logs and scratch files; one per cluster."""
    working_directory: Path = field(default_factory=Path.cwd)
    """Where containers without a ``workingDir`` start."""
    backoff: BackoffOptions = field(default_factory=BackoffOptions)
    log_bytes: int = 10 << 20
    """A container's log is rotated at this size; one old file is kept."""
    refresh_seconds: float = REFRESH_SECONDS
    """How often ConfigMap, Secret and token volumes are brought up to date."""
    retry_seconds: float = 1.0
    """How often a volume or configuration that is missing is looked for."""
    heartbeat_seconds: float = 10.0
    """How often a node renews its Lease; 0: never."""
    inherited_variables: tuple[str, ...] = _INHERITED
    runs_processes: bool = True
    """False: pods are Running at once and have no process, for load tests."""
    enforces_cpu_limits: bool = False
    """Stop a container's processes for the rest of 100 ms when they have used their CPU limit."""
    strict_signals: bool = False
    """Ignore SIGTERM in processes that do not handle it, as PID 1 of a container does. Off, they
    end at once: kinder than a cluster, and no waiting for ``sleep`` to use up its grace period."""
    cores: tuple[int, ...] = field(default_factory=lambda: tuple(sorted(os.sched_getaffinity(0))))
    """The cores of this machine that containers may use."""
    gpus: tuple[str, ...] = field(default_factory=machine_gpus)
    """The GPUs of this machine that pods may use."""

    def image_environment(self) -> dict[str, str]:
        """The variables that stand for those of an image."""
        here = str(Path(sys.executable).parent)
        path = os.environ.get("PATH") or os.defpath
        found = {name: os.environ[name] for name in self.inherited_variables if name in os.environ}
        return {**found, "PATH": f"{here}{os.pathsep}{path}"}


@dataclass(slots=True)
class Services:
    """What the workers of all pods share."""

    engine: Engine
    api: Api
    options: KubeletOptions
    runtime: Runtime
    cores: CoreAllocator
    devices: DeviceAllocator
    addresses: AddressBlock
    events: EventRecorder
    disturbances: Disturbances
    blackhole: Blackhole
    relay: Relay
    api_server: tuple[str, int]
    """Host and port of the API server, as pods are told."""

    @property
    def hosts_file(self) -> Path:
        return self.options.folder / "hosts"


@dataclass(slots=True)
class PodContext:
    """What the containers of one pod share."""

    services: Services
    pod: Json
    folder: Path
    record: PodRecord
    sources: PodSources
    allocatable: Mapping[str, int]
    report: Callable[[], Awaitable[None]]
    machine_percent: Callable[[], int | None] = lambda: None
    """The speed of the pod's node as a fault has it; None: that of this machine."""
    volumes: PodVolumes = field(default_factory=lambda: PodVolumes({}))
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The GPUs of each container, by its name; those without are left out."""

    async def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event on the pod."""
        await self.services.events.record(self.pod, "Pod", reason, message, warning=warning)
