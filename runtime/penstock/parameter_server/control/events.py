"""What happens to a job with parameter servers, and what its trainer is to do about it.

An event says that something is known now; it never says what follows. An instruction is for whoever
called `penstock.parameter_server.control.machine.step`: the ledger and the log are not the
machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.data.ledger import Ledger
from penstock.job.protocol import DataSpec, MemberId
from penstock.parameter_server.control.records.servers import Key, ServerPod
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import ServerReport, WorkerReport

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Activated:
    """The job has parameter servers."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an earlier trainer of this job had written down."""

    number: int
    present: int
    saved: int | None
    restores: int
    final_slots: int | None
    any_closed: bool


@dataclass(frozen=True, slots=True)
class SurvivorsExpected:
    """The job may have been running before this trainer."""


@dataclass(frozen=True, slots=True)
class ServersExpected:
    """Outside a cluster: so many servers are to come before there is a layout."""

    count: int


@dataclass(frozen=True, slots=True)
class ServerReported:
    """One server's whole state."""

    report: ServerReport


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """One worker's whole state."""

    report: WorkerReport


@dataclass(frozen=True, slots=True)
class ServerAnswered:
    """A server was given its orders."""

    server: ServerId


@dataclass(frozen=True, slots=True)
class WorkerAnswered:
    """A worker was given its orders."""

    worker: MemberId


@dataclass(frozen=True, slots=True)
class WorkerAlive:
    """An agent says that its worker's program runs."""

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker's program, or its pod, has ended."""

    rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PodsKnown:
    """The cluster's pods of servers that live, and those that have ended."""

    servers: Mapping[Key, ServerPod]
    ended: frozenset[Key]


@dataclass(frozen=True, slots=True)
class RanksCapped:
    """Servers of ranks from ``cap`` on are to go; None: none is."""

    cap: int | None


@dataclass(frozen=True, slots=True)
class SuspensionChanged:
    """The job's spec says whether it is suspended."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class Ticked:
    """Look at everything anew; after every report, and a few times per second."""

    ledger: Ledger | None  # is only read: see `Instruction`
    data: DataSpec | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is done: servers may go."""


Event = (
    Activated
    | Recovered
    | SurvivorsExpected
    | ServersExpected
    | ServerReported
    | WorkerReported
    | ServerAnswered
    | WorkerAnswered
    | WorkerAlive
    | WorkerEnded
    | PodsKnown
    | RanksCapped
    | SuspensionChanged
    | Ticked
    | Finished
)

Observation = PodsKnown | RanksCapped | ServersExpected
"""What is seen of the cluster, or said by whoever started the job."""

# ------------------------------------------------------------------ instructions


@dataclass(frozen=True, slots=True)
class Refuse:
    """The report is of a process whose place a newer one has: it changed nothing."""


@dataclass(frozen=True, slots=True)
class EndLeases:
    """All leases of a holder are to end: `Ledger.release`."""

    holder: str


@dataclass(frozen=True, slots=True)
class AdoptProgress:
    """The slots below a position, and no others, are consumed: `Ledger.adopt`."""

    position: int


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the log; ``level`` as in `logging`."""

    level: int
    text: str


Instruction = Refuse | EndLeases | AdoptProgress | Say
