"""What servers and workers of a job with parameter servers tell its trainer, and are told.

As everywhere in a job: whole state in, whole orders out, so that a message that is lost, repeated
or late does no harm, and a trainer that was killed knows everything again after one report of each.
A report may be held by the trainer for up to ``wait_seconds``, until its answer would differ; it is
answered sooner than that, so that silence means something. A trainer that has just started answers
with status 503 until it knows again who holds what: go on as you are, and report again.

``seen_revision`` is that of the newest reply that the caller has *carried out*: by it the trainer
tells a server that is frozen now from one that was frozen some time ago.

The life of a layout, in the trainer's orders to servers:

    BUILD  take in the partitions that you own in it: from the servers of the present layout (which
           are frozen meanwhile), or from the chief, which fills it from a checkpoint or afresh
    SERVE  answer workers that speak of it
    HALT   let workers end what they have begun: begin nothing, but read and push
    FREEZE answer no worker; other servers and the chief may read partitions

A BUILD that was given up never comes again under its number: what it has taken in may be torn.

A save goes the same way: HALT, FREEZE with ``snapshot`` set (each server copies its partitions),
SERVE; the chief then reads the copies while the training goes on. Where a server has no memory for
a copy all stay frozen until the chief has read the partitions themselves.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import (
    PROTOCOL_VERSION,
    Count,
    DataSpec,
    LeaseReply,
    LeaseRequest,
    MemberId,
    Message,
    Seconds,
    Text,
    Troubles,
    Usage,
    is_none,
)
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.spec import ModelSpec

SERVER_PATH: Final = "/v1/parameters/server"
WORKER_PATH: Final = "/v1/parameters/worker"
WAIT_LIMIT_SECONDS: Final = 20.0
MAX_DROPPED: Final = 4096
"""So many parameters are named whose gradients were not finite."""

Wait = Annotated[float, Field(ge=0, le=WAIT_LIMIT_SECONDS)]


class Applied(Message):
    """Which slots a server has applied, in short: equal for two servers if their sets are."""

    slots: Count = 0  # how many
    watermark: Count = 0  # all below it
    digest: Count = 0  # of the whole set
    pushes: Count = 0  # updates made, each slot once: more than ``slots`` would be a repetition

    @classmethod
    def of(cls, applied: RangeSet, pushes: int) -> Applied:
        """A store's slots and updates, in short."""
        digest = hashlib.blake2b(repr(list(applied)).encode(), digest_size=7).digest()
        return cls(
            slots=applied.total,
            watermark=applied.watermark,
            digest=int.from_bytes(digest),
            pushes=pushes,
        )


class ServerStage(StrEnum):
    """What a server does with its present layout."""

    EMPTY = "empty"
    SERVING = "serving"
    HALTED = "halted"
    FROZEN = "frozen"


class ServerFigures(Message):
    """What a server did since it started: the trainer takes differences."""

    pulls: Count = 0
    pushes: Count = 0
    bytes_in: Count = 0
    bytes_out: Count = 0
    busy_seconds: Seconds = 0.0  # in which requests were being carried out
    waited_seconds: Seconds = 0.0  # that requests waited for the store: the queue
    duplicates: Count = 0  # pushes of slots that had been applied


class ServerReport(Message):
    """The whole state of one server.

    A server has two calls under way: one that the trainer holds until there is news, and one made
    when its own state changed meanwhile. ``serial`` grows with every report of one life: of two,
    the older one says nothing any more, but it is answered.
    """

    version: int = PROTOCOL_VERSION
    server: ServerId
    serial: Count = 0
    address: Text
    node: Text = ""
    pod: Text = ""
    stage: ServerStage = ServerStage.EMPTY
    layout: Layout | None = None  # the one it holds; None while EMPTY
    built: Count = 0  # number of the next layout, once it has all of that
    snapshot: Count | None = None  # the snapshot that it holds
    uncopied: Annotated[Count | None, Field(exclude_if=is_none)] = None
    """The snapshot for which it has no memory."""
    applied: Applied = Applied()
    spec: ModelSpec | None = None  # the model that it holds, for a trainer that has forgotten
    data: DataSpec | None = None  # that it is trained on: what slots are numbers of
    draining: bool = False  # it was asked to go
    memory_limit_bytes: Count | None = None  # if it was told one
    usage: Usage | None = None
    figures: ServerFigures = ServerFigures()
    trouble: Text = ""  # why it cannot do what it was ordered to
    seen_revision: Count = 0
    wait_seconds: Wait = 0.0

    def for_release_before(self) -> ServerReport:
        """The same for a trainer that refuses ``uncopied``: there the trouble ends the save."""
        return self.model_copy(update={"uncopied": None})


class ServerOrder(StrEnum):
    """What a server is to do; see the module's docstring."""

    IDLE = "idle"  # hold nothing; a server that is draining may go
    SERVE = "serve"
    HALT = "halt"
    FREEZE = "freeze"
    BUILD = "build"
    REFUSED = "refused"  # a newer process has this rank and incarnation, or the job is done: end


class Source(StrEnum):
    """Where a layout that is built gets its parameters from."""

    SERVERS = "servers"  # the owners in the present layout
    CHIEF = "chief"  # the worker that fills it


class ServerReply(Message):
    """The whole orders for one server."""

    trainer: Text
    revision: Count
    order: ServerOrder
    layout: Layout | None = None  # to SERVE, HALT, FREEZE: the present one
    next: Layout | None = None  # to BUILD; the order for the present one is then FREEZE
    source: Source = Source.SERVERS
    spec: ModelSpec | None = None
    data: DataSpec | None = None
    snapshot: Count | None = None  # hold this one (taken while frozen); None: hold none
    finished: bool = False  # the job is done: end with success
    message: Text = ""


class WorkerPhase(StrEnum):
    """What a worker is doing."""

    RUNNING = "running"
    FINISHED = "finished"  # out of the loop, may still evaluate its model
    LEAVING = "leaving"  # it was asked to go: trains no more, and goes unless it is told to stay
    CLOSED = "closed"


class WorkerReport(Message):
    """The whole state of one worker, with its acknowledgements and its wish for more slots."""

    version: int = PROTOCOL_VERSION
    member: MemberId
    phase: WorkerPhase = WorkerPhase.RUNNING
    spec: ModelSpec
    lease: LeaseRequest
    layout: Count = 0  # number of the newest layout that it knows
    checkpoint: Count | None = None  # slots in its newest checkpoint; None: it has none
    saves: bool = False  # whether it has a folder for checkpoints
    save_every_slots: Count = 0  # 0: only at the end
    filled: Count = 0  # number of the layout that it has filled, as chief
    read: Annotated[Count | None, Field(exclude_if=is_none)] = None
    """The snapshot that it saves from frozen servers, and has read."""
    saved: Count | None = None  # the snapshot that it has saved, as chief
    lost: tuple[ServerId, ...] = ()  # servers that do not answer it
    dropped: Annotated[
        dict[str, int], Field(default_factory=dict, max_length=MAX_DROPPED)
    ]  # batches, by parameter
    failed: Text = ""  # why it cannot fill or save
    result: dict[str, Any] | None = None
    troubles: Troubles = ()
    seen_revision: Count = 0
    wait_seconds: Wait = 0.0


class FrozenModel(Message):
    """What a chief saves where there are no copies: what its servers hold, while nothing changes.

    Attributes:
        layout: the present one.
        training_waits: workers go on when it has been read; else there is nothing to hurry for.
    """

    layout: Layout
    training_waits: bool


class WorkerReply(Message):
    """The whole orders for one worker."""

    trainer: Text
    revision: Count
    lease: LeaseReply
    layout: Layout | None = None  # the one that is served now; None: wait
    paused: bool = False  # begin nothing: give back what you have not begun
    chief: bool = False
    fill: Layout | None = None  # chief: fill this one
    fill_checkpoint: Count | None = None  # from this checkpoint; None: afresh
    save: Count | None = None  # chief: write this snapshot of the present layout to disk
    save_from: Annotated[FrozenModel | None, Field(exclude_if=is_none)] = None
    """And read it there; None: servers have copies of it."""
    stay: bool = False  # if it is leaving: not yet, there is a checkpoint to be written
    over: bool = False  # the job is done and its servers have gone: there is nothing left to do
    message: Text = ""
