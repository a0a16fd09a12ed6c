"""The messages between a job's trainer and what runs in its pods: typed, msgpack, level-triggered.

A caller always sends its whole state and gets its whole orders back, so that a message that is
lost, repeated or late does no harm, and a trainer that lost its memory has it back after one report
of each rank. Two calls do all the work: `SessionReport` (a member of a group: a training process
that uses the API, or an agent for all the processes that it starts as ranks of one world) and
`AgentReport` (what looks after any training process).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import Field

from penstock.base.fields import MAX_REPLICAS
from penstock.data import protocol as framing
from penstock.data.protocol import Message as Message
from penstock.data.protocol import ProtocolError as ProtocolError
from penstock.data.protocol import encode as encode
from penstock.job.identities import MemberId as MemberId
from penstock.job.work_source import Part

if TYPE_CHECKING:
    from penstock.data.ledger import Buckets, SampleOrder

PROTOCOL_VERSION: Final = 1
CONTENT_TYPE: Final = "application/msgpack"
HEADERS: Final = {"Content-Type": CONTENT_TYPE}
"""Of every request, beside what `penstock.job.call_auth` adds."""
MAX_MESSAGE_BYTES: Final = 4 << 20
MAX_PROCESSES: Final = 64
"""Training processes of one pod that its agent reports."""
MAX_GPUS: Final = 64
"""Devices of one pod that its agent reports, MIG slices counted one by one."""
MAX_FRAMES: Final = 64
"""Calls of a stack that are reported, the innermost ones."""
MAX_RANKS: Final = 1024
"""Processes that an agent starts as ranks of one world."""

SESSION_PATH: Final = "/v1/session"
AGENT_PATH: Final = "/v1/agent"
LEASE_PATH: Final = "/v1/leases"
SUMMARY_PATH: Final = "/v1/summary"
HEALTH_PATH: Final = "/healthz"

Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MAX_TEXT: Final = 4096
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Phase(StrEnum):
    """What a session is doing."""

    READY = "ready"  # outside any group, model loaded, waiting to be put into one
    TRAINING = "training"  # in the group whose number it reports
    LEAVING = "leaving"  # drained: it will not come back
    FAILED = "failed"  # launched processes have failed: was it their own fault, or a peer's end?
    FINISHED = "finished"  # the data are exhausted; the script may still evaluate its model
    CLOSED = "closed"  # the script has left the session and reported its figures


def _unsaid(value: object) -> bool:
    """Whether a field is left out of a message: the release before refuses what it does not know.

    A trainer of this release has agents of the one before, and the other way round: an agent's is
    the image of the job.
    """
    return not value


def _single(value: object) -> bool:
    """The same of a number of processes: before, every member was one."""
    return value == 1


Ranks = Annotated[int, Field(ge=1, le=MAX_RANKS, exclude_if=_single)]


class DataSpec(Message):
    """The data of a job, as its training script describes them; the same on every rank.

    ``buckets``: digest of an order by length, of which a trainer knows only the sizes of steps.
    """

    dataset_size: Annotated[int, Field(ge=1, lt=1 << 62)]
    global_batch: Annotated[int, Field(ge=1, le=1 << 24)]
    epochs: Annotated[int, Field(ge=1, le=1 << 24)]
    slots_per_step: Annotated[int, Field(ge=1, le=1 << 16)] | None = None
    seed: int = 0
    shuffle: bool = True
    buckets: Annotated[str, Field(max_length=64, exclude_if=_unsaid, repr=False)] = ""

    def order(self, slots_per_step: int, buckets: Buckets | None = None) -> SampleOrder:
        """The order of samples that this describes; ``buckets``: by whoever has the lengths."""
        # With NumPy, which an agent has no other use of.
        from penstock.data.ledger import BucketOrder, SampleOrder, SizedOrder

        size, seed = self.dataset_size, self.seed
        shape = (size, self.global_batch, slots_per_step, self.epochs, seed, self.shuffle)
        if buckets is not None:
            return BucketOrder(*shape, buckets=buckets, fills_slots=False)
        return SizedOrder(*shape) if self.buckets else SampleOrder(*shape)


class GroupMember(Message):
    """A member of a group, the address of its control channel, and how many processes it is.

    Of a launched member the address is where its first process can host the store of the world.
    """

    id: MemberId
    address: Text
    processes: Ranks = 1


class Restore(StrEnum):
    """Where the members of a new group get the model from."""

    LIVE = "live"  # from the source's memory
    CHECKPOINT = "checkpoint"  # the source loads its newest checkpoint
    FRESH = "fresh"  # the source's initial model


class Group(Message):
    """One membership: who trains together, in rank order, and where they begin.

    ``number`` fences: it grows with every group, and what an older group does no longer counts.
    """

    number: Count
    members: tuple[GroupMember, ...]
    source: Count
    start_step: Count
    restore: Restore
    shares: tuple[Count, ...]
    skipped: tuple[tuple[Count, Count], ...] = ()  # slots in quarantine: start, stop

    def index_of(self, member: MemberId) -> int | None:
        """The position (rank within the group) of a member; None when it is not in it."""
        for index, other in enumerate(self.members):
            if other.id == member:
                return index
        return None


class EpochAudit(Message):
    """What the surviving model consumed in one epoch, counted per sample."""

    epoch: Count
    samples_seen: Count
    samples_lost: Count
    samples_repeated: Count


def is_none(value: object) -> bool:
    """Whether a field is left out that says something when it is empty; see `_unsaid`."""
    return value is None


class Trouble(Message):
    """Something that a training process cannot write; ``reason``: as in the job's conditions."""

    reason: Annotated[str, Field(min_length=1, max_length=63)]
    message: Text


Troubles = Annotated[tuple[Trouble, ...], Field(max_length=8, exclude_if=_unsaid)]


class SessionReport(Message):
    """The whole state of one member of a group: a training process, or launched processes.

    Launched are the processes that an agent starts as ranks of one world (`penstock run
    --nproc-per-node`). What they train on is theirs alone: ``data`` is None, and nothing is said of
    steps.
    """

    version: int = PROTOCOL_VERSION
    member: MemberId
    phase: Phase
    address: Text
    data: DataSpec | None
    processes: Ranks = 1
    replica_pods: Annotated[int, Field(ge=1, le=MAX_REPLICAS, exclude_if=_single)] = 1
    """Of launched processes: pods of the replica group that they are with others; 1: of none."""
    generation: Count = 0  # number of the group it is in, or was in last; 0: none yet
    group: Group | None = None  # that group, so that a new trainer can take it up
    committed: Count | None = None  # steps that its model has seen; None: no live model yet
    computed: Count = 0  # steps whose computation it has ended, committed or not
    checkpoint: Count | None = None  # steps that its newest checkpoint has seen
    failed: Count | None = None  # the slot, over all epochs, on which its program raised an error
    lost: tuple[MemberId, ...] = ()  # members whose connection to it ended
    slot_seconds: Seconds | None = None  # smoothed time that one slot takes here
    audits: tuple[EpochAudit, ...] = ()
    result: dict[str, Any] | None = None
    troubles: Troubles = ()
    idle_seconds: Annotated[Seconds | None, Field(exclude_if=is_none)] = None
    """Since the last step that one of the launched processes took; None: none is known."""
    seen_revision: Count = 0
    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 0.0

    @property
    def launched(self) -> bool:
        """Whether an agent speaks, for processes that form their own group."""
        return self.data is None


class Directive(StrEnum):
    """What a session is to do."""

    WAIT = "wait"  # stay ready
    JOIN = "join"  # form the group that comes with it
    TRAIN = "train"  # go on
    REGROUP = "regroup"  # leave the group at the next step boundary
    ABANDON = "abandon"  # the group is broken: leave it now
    FINISH = "finish"  # all data are consumed: end the loop
    REFUSED = "refused"  # a newer process has this rank: end
    END = "end"  # the launched processes failed by themselves: end with their exit code


class SessionReply(Message):
    """The whole orders for one training process."""

    trainer: Text  # identity of this life of the trainer
    revision: Count
    directive: Directive
    group: Group | None = None
    slots_per_step: Count
    lease_seconds: Seconds
    lease_stop_step: Count = 0  # steps below it may be committed
    shares: tuple[Count, ...] = ()
    audited_epochs: Count = 0  # audits of epochs below it have arrived
    message: Text = ""


class GpuUsage(Message):
    """What a program uses of one device, or of a MIG slice of one; None: the device does not tell.

    Utilisation (0 to 1) and power are means over some seconds. Where several programs share a
    device, utilisation and memory are this one's if the driver tells them apart.
    """

    uuid: Annotated[str, Field(max_length=96)] = ""
    utilization: Annotated[float, Field(ge=0, le=1)] | None = None
    memory_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_watts: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Usage(Message):
    """What a training process and its children use now."""

    cpu_cores: Seconds
    memory_bytes: Count
    gpus: Annotated[tuple[GpuUsage, ...], Field(max_length=MAX_GPUS, exclude_if=_unsaid)] = ()
    """Empty: none is measured, or the agent is of the release before."""


class ProcessState(StrEnum):
    """What an agent's training process is doing."""

    RUNNING = "running"
    EXITED = "exited"


class TrainingProcess(Message):
    """A process of a pod that has trained, joined a process group, or taken a part of the work."""

    pid: Count
    part: Part = Part.OWN
    rank: Count = 0  # in its process group; 0 of 1 without one
    world_size: Annotated[int, Field(ge=1, le=1 << 20)] = 1
    seconds: Seconds | None = None  # for which it has trained as that; None: not at all yet
    idle: Seconds = 0.0  # since the last of these steps
    widest: Annotated[int, Field(ge=1, le=1 << 20)] = 1  # the largest group that it was ever in,
    widest_rank: Count = 0  # and as which rank
    steps: Annotated[Count, Field(exclude_if=_unsaid)] = 0
    """Optimizer steps after its first, of a process that has joined a group; 0: unknown."""
    step_seconds: Annotated[Seconds, Field(exclude_if=_unsaid)] = 0.0
    """The time that they took, up to the newest of them."""
    queued: Annotated[Seconds, Field(exclude_if=_unsaid)] = 0.0
    """Of the seconds since its last step: what a thread of it was ready to run, and had no core."""
    used: Annotated[Seconds, Field(exclude_if=_unsaid)] = 0.0
    """CPU seconds since then, of it and of what it has started; of longer pauses alone."""
    saves: Annotated[bool, Field(exclude_if=_unsaid)] = False
    """Whether it has written or taken up a checkpoint."""


class CallFrame(Message):
    """One call of a stack."""

    path: Annotated[str, Field(max_length=1024)]
    line: Count = 0
    function: Annotated[str, Field(max_length=256)]


class ProcessLook(Message):
    """One process at one moment: what the trainer is to know of one that takes no more steps."""

    pid: Count
    state: Annotated[str, Field(max_length=1)]
    """As Linux has it: R, S, D, T, t or Z."""
    cpu_seconds: Seconds
    frames: Annotated[tuple[CallFrame, ...], Field(max_length=MAX_FRAMES)] = ()
    """Of its main thread, the innermost first; none: its stack could not be read."""
    tree_cpu_seconds: Annotated[Seconds, Field(exclude_if=_unsaid)] = 0.0
    """Of it and of what it has started."""
    tree_io_bytes: Annotated[Count, Field(exclude_if=_unsaid)] = 0
    """Read and written by these so far, as far as they are told apart from the network's."""
    wakeups: Annotated[Count, Field(exclude_if=_unsaid)] = 0
    """How often its main thread has gone to sleep by itself so far."""
    sleeps_in: Annotated[str, Field(max_length=64, exclude_if=_unsaid)] = ""
    """The kernel's function in which its main thread sleeps, where the agent may know."""
    wanders: Annotated[bool, Field(exclude_if=_unsaid)] = False
    """Whether its main thread was in several places within this look."""


class AgentReport(Message):
    """The state of one agent and of the training process that it looks after."""

    version: int = PROTOCOL_VERSION
    role: Text
    rank: Count
    incarnation: Count
    node: Text = ""
    pod: Text = ""
    state: ProcessState = ProcessState.RUNNING
    exit_code: int | None = None
    draining: bool = False
    usage: Usage | None = None
    life: Annotated[str, Field(max_length=32, exclude_if=_unsaid)] = ""
    """Tells apart agents of one rank."""
    launched: Annotated[int, Field(ge=0, le=MAX_RANKS, exclude_if=_unsaid)] = 0
    """Processes that it starts as ranks of one world; 0: it runs the program as it is."""
    processes: Annotated[
        Annotated[tuple[TrainingProcess, ...], Field(max_length=MAX_PROCESSES)] | None,
        Field(exclude_if=is_none),
    ] = None
    """None: this agent cannot know, being of the release before or not on Linux."""
    duplicates: Annotated[
        tuple[Count, ...], Field(max_length=MAX_PROCESSES, exclude_if=_unsaid)
    ] = ()
    """Process ids that had a session of this rank open at the same time."""
    looks: Annotated[bool, Field(exclude_if=_unsaid)] = False
    """Whether it can look at its processes' stacks."""
    look: Annotated[Count, Field(exclude_if=_unsaid)] = 0
    """The look that was asked for last, and `shown` answers; 0: none."""
    shown: Annotated[
        tuple[ProcessLook, ...], Field(max_length=MAX_PROCESSES, exclude_if=_unsaid)
    ] = ()
    ends_hung: Annotated[bool, Field(exclude_if=_unsaid)] = False
    """Whether it carries out `EndHung`."""

    def for_release_before(self) -> AgentReport:
        """The same for a trainer of the release before, which refuses fields it does not know."""
        usage = None if self.usage is None else self.usage.model_copy(update={"gpus": ()})
        unsaid = {"life": "", "launched": 0, "processes": None, "duplicates": (), "usage": usage}
        looks = {"looks": False, "look": 0, "shown": (), "ends_hung": False}
        return self.model_copy(update=unsaid | looks)


class EndHung(Message):
    """End a process that stands still; said until its agent's reports have it no more."""

    number: Annotated[int, Field(ge=1)]
    """Of this life of the trainer; the same each time it is said."""
    pid: Count
    replace: bool
    """Whether the pod is to fail; else the program is started again in it, if that is possible."""
    why: Annotated[str, Field(max_length=2048)]


class AgentReply(Message):
    """What the trainer wants of an agent."""

    trainer: Text
    superseded: bool = False  # a newer incarnation of the rank has reported
    hung_seconds: Seconds | None = None  # its program holds up the others for so long: end it
    refused: Annotated[Text, Field(exclude_if=_unsaid)] = ""
    """Why the job cannot go on like this: end the program."""
    undecided: Annotated[bool, Field(exclude_if=_unsaid)] = False
    """To the last report: stay, and ask again."""
    look: Annotated[Count, Field(exclude_if=_unsaid)] = 0
    """Look at the stacks of the processes, once for each number; to agents that can. 0: do not."""
    end_hung: Annotated[EndHung | None, Field(exclude_if=is_none)] = None
    """To agents that say `AgentReport.ends_hung`."""


class LeaseRequest(Message):
    """Acknowledge what was consumed and ask for more: for holders that work on their own."""

    version: int = PROTOCOL_VERSION
    holder: Annotated[str, Field(min_length=1, max_length=128)]
    data: DataSpec
    max_slots: Annotated[int, Field(ge=0, le=1 << 20)]
    completed: tuple[tuple[Count, Count, Count], ...] = ()  # fence, start, stop
    failed: tuple[tuple[Count, Count], ...] = ()  # fence, slot
    returned: tuple[Count, ...] = ()  # fences
    held: tuple[Count, ...] | None = None  # fences it knows; others of its own never reached it
    slot_seconds: Seconds | None = None


class LeaseReply(Message):
    """A range of slots, or the news that there are none (left, or now)."""

    fence: Count | None = None
    start: Count = 0
    stop: Count = 0
    slots_per_step: Count
    lease_seconds: Seconds
    order_seed: int = 0  # of the order in which the slots hold samples
    refused: tuple[Count, ...] = ()  # fences that had ended: that work does not count
    finished: bool = False


AnyMessage = TypeVar("AnyMessage", bound=Message)


def decode(kind: type[AnyMessage], body: bytes) -> AnyMessage:
    """The message that `penstock.data.protocol.encode` made.

    Raises:
        ProtocolError: it is too long, no msgpack, of another version, or a field is wrong.
    """
    return framing.decode(kind, body, version=PROTOCOL_VERSION, max_bytes=MAX_MESSAGE_BYTES)
