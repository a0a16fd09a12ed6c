"""The processes that make up a control plane on this machine, as data.

Each component is a ``penstock`` command: this room starts the other rooms and imports none of
them. A component announces itself on standard output with one line that holds its address.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.base import ports
from penstock.local.control_plane.home import Home

CLUSTER: Final = "cluster"
BRAIN: Final = "brain"
CONTROLLER: Final = "controller"
SCHEDULER: Final = "scheduler"


@dataclass(frozen=True)
class Ports:
    """Where the components listen; 0 lets the system choose a free port."""

    api_server: int = ports.EMBEDDED_API_SERVER
    brain: int = ports.BRAIN
    controller_metrics: int = ports.CONTROLLER_METRICS
    scheduler_metrics: int = ports.SCHEDULER_METRICS


ANY_PORTS: Final = Ports(api_server=0, brain=0, controller_metrics=0, scheduler_metrics=0)


@dataclass(frozen=True)
class Component:
    """A command to run, once the components named in ``after`` have announced their addresses.

    In ``argv``, ``{brain}`` and the like stand for the address of that component.
    """

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, addresses: Mapping[str, str]) -> list[str]:
        """The command line, with the addresses of other components filled in."""
        return [part.format_map(addresses) for part in self.argv]


def penstock(*arguments: str) -> tuple[str, ...]:
    """A ``penstock`` command line run by this very interpreter."""
    return (sys.executable, "-m", "penstock.cli", *arguments)


@dataclass(frozen=True)
class Settings:
    """What a person may choose about the control plane."""

    home: Home
    ports: Ports = Ports()
    kubeconfig: Path | None = None
    """A cluster that exists already; None starts the embedded one."""
    nodes_file: Path | None = None
    brain_config: Path | None = None
    advertised_brain_url: str | None = None
    """The address by which trainers in a cluster elsewhere reach the Brain on this machine."""
    scheduler_options: tuple[str, ...] = ()
    train_jobs_managed_by: str = ""
    """The ``spec.managedBy`` of TrainJobs that are run in place; empty: none are."""
    enforces_cpu_limits: bool = False
    """Pods of the embedded cluster get no more CPU than their limits."""


def control_plane(settings: Settings) -> tuple[Component, ...]:
    """The components of a control plane, in the order in which they start."""
    home = settings.home
    kubeconfig = settings.kubeconfig or home.kubeconfig
    environment = {"KUBECONFIG": str(kubeconfig.absolute())}
    components: list[Component] = []
    if settings.kubeconfig is None:
        nodes = ("--nodes", str(settings.nodes_file)) if settings.nodes_file else ()
        components.append(
            Component(
                CLUSTER,
                penstock(
                    "cluster",
                    f"--port={settings.ports.api_server}",
                    f"--kubeconfig={home.kubeconfig}",
                    f"--pods-folder={home.pods}",
                    f"--database={home.cluster_database}",
                    *nodes,
                    *(("--enforce-cpu-limits",) if settings.enforces_cpu_limits else ()),
                ),
            )
        )
    first = (CLUSTER,) if settings.kubeconfig is None else ()
    config = (f"--config={settings.brain_config}",) if settings.brain_config else ()
    components.append(
        Component(
            BRAIN,
            penstock(
                "brain",
                f"--port={settings.ports.brain}",
                f"--database=sqlite+aiosqlite:///{home.brain_database}",
                f"--kubeconfig={kubeconfig}",
                f"--token-file={home.brain_token}",
                *config,
            ),
            after=first,
            environment=environment,
        )
    )
    components.append(
        Component(
            CONTROLLER,
            penstock(
                "controller",
                f"--kubeconfig={kubeconfig}",
                f"--metrics-port={settings.ports.controller_metrics}",
                f"--brain-url={settings.advertised_brain_url or '{brain}'}",
                *(
                    (f"--train-jobs-managed-by={settings.train_jobs_managed_by}",)
                    if settings.train_jobs_managed_by
                    else ()
                ),
            ),
            after=(*first, BRAIN),
            environment=environment,
        )
    )
    components.append(
        Component(
            SCHEDULER,
            penstock(
                "scheduler",
                f"--kubeconfig={kubeconfig}",
                f"--metrics-port={settings.ports.scheduler_metrics}",
                "--brain-url={brain}",
                # Not what the kubeconfig has: that may be a client certificate, which proves
                # nothing to the Brain, and a token of the cluster is for the cluster alone.
                f"--brain-token-file={home.brain_token}",
                *settings.scheduler_options,
            ),
            after=(*first, BRAIN),
            environment=environment,
        )
    )
    return tuple(components)
