"""What happens to a job, and what its trainer is to do about it.

An event says that something is known now; it never says what follows. Those that concern parameter
servers alone are the events of their machine. An instruction is for whoever called
`penstock.trainer.control.machine.step`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.data.ledger import Ledger, LedgerError
from penstock.data.ledger.events import Event as LedgerEvent
from penstock.job.protocol import AgentReport, LeaseReply, LeaseRequest, SessionReport
from penstock.parameter_server.control.events import Observation as ServerObservation
from penstock.parameter_server.control.events import ServerAnswered, WorkerAnswered
from penstock.parameter_server.control.records.servers import Key, ServerPod
from penstock.parameter_server.protocol import ServerReport, WorkerReport
from penstock.trainer.control.model.job import JobFacts, RefusedError
from penstock.trainer.control.model.saved_state import SavedState

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an earlier trainer of this job had written down."""

    ledger: Ledger
    saved: SavedState


@dataclass(frozen=True, slots=True)
class SurvivorsExpected:
    """The job may have been running before this trainer."""


@dataclass(frozen=True, slots=True)
class JobRead:
    """The job's spec says this now."""

    facts: JobFacts


@dataclass(frozen=True, slots=True)
class WorkersExpected:
    """The ranks that should train; None: nobody knows."""

    ranks: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class PodsKnown:
    """The cluster's pods of a job; those of workers and servers by rank and incarnation."""

    expected: frozenset[int]
    """Ranks of workers whose pods live and are to stay."""
    running: frozenset[Key] = frozenset()
    """Workers of these whose containers have started."""
    ended: tuple[Key, ...] = ()
    """Workers whose processes have ended."""
    servers: Mapping[Key, ServerPod] = field(default_factory=dict)
    """Parameter servers that live."""
    ended_servers: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class SharesWeighed:
    """A plan wants shares of a step by these weights of ranks, for the groups to come."""

    weights: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class SessionReported:
    """One training process's whole state."""

    report: SessionReport


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """A holder that works on its own acknowledges slots and asks for more."""

    request: LeaseRequest


@dataclass(frozen=True, slots=True)
class ServerReported:
    """One parameter server's whole state."""

    report: ServerReport


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """The whole state of one worker of parameter servers."""

    report: WorkerReport


@dataclass(frozen=True, slots=True)
class AgentReported:
    """One agent's whole state."""

    report: AgentReport


@dataclass(frozen=True, slots=True)
class RefusalShown:
    """Those who watch the job have been told that it was refused."""


@dataclass(frozen=True, slots=True)
class JournalTried:
    """The journal was written; or why it cannot be, for people."""

    trouble: str = ""


@dataclass(frozen=True, slots=True)
class JournalDue:
    """What has happened to the ledger is to be written down."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Look at everything anew; after every report, and a few times per second."""


Observation = PodsKnown | ServerObservation
"""What is seen of the cluster, or said by whoever started the job."""

Event = (
    Recovered
    | SurvivorsExpected
    | JobRead
    | WorkersExpected
    | Observation
    | SharesWeighed
    | SessionReported
    | LeaseRequested
    | ServerReported
    | ServerAnswered
    | WorkerReported
    | WorkerAnswered
    | AgentReported
    | RefusalShown
    | JournalTried
    | JournalDue
    | Ticked
)

# ------------------------------------------------------------------ instructions


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the log; ``level`` as in `logging`."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The report is of a process whose place a newer one has: it changed nothing."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender is to hear why it was not heeded, or why the job cannot go on."""

    error: RefusedError | LedgerError


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to whoever asked for slots."""

    lease: LeaseReply


@dataclass(frozen=True, slots=True)
class Write:
    """Events for the journal."""

    events: tuple[LedgerEvent, ...]


Instruction = Say | Superseded | Refuse | Grant | Write
