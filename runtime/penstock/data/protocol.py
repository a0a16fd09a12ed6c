"""What training processes and data workers tell the job's dispatcher: typed, msgpack over HTTP.

As everywhere in a job, a caller sends its whole state and gets its whole orders: a call that is
lost or repeated does no harm, and a dispatcher that was killed knows everybody again a second after
it is back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Final, TypeVar

import msgpack
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from penstock.base.enums import (
    CacheForm,
    CacheScope,
    Compression,
    Guarantee,
    Sharding,
    ShareJoin,
    ShareOrder,
)
from penstock.base.enums import PartitionPhase as Phase

DATA_PROTOCOL_VERSION: Final = 1
CONSUMER_PATH: Final = "/v1/data/consumer"
WORKER_PATH: Final = "/v1/data/worker"
MAX_BYTES: Final = 1 << 20
REPORT_SECONDS: Final = 1.0
"""How often everybody reports."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Rank = Annotated[int, Field(ge=0, lt=4096)]
Incarnation = Annotated[int, Field(ge=0, lt=1 << 31)]
Rate = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class ProtocolError(Exception):
    """A message that is not what it should be; says which field and why."""


class Message(BaseModel):
    """Unknown fields are refused, so that a difference of versions shows at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)


MOST_CUT: Final = 200
"""Characters of a cut's name, which is that of a transform."""


class QueueState(Message):
    """A consumer's queue over the last seconds: the signal by which data workers are counted.

    A batch is enqueued whoever made it, the training process included. ``wait_share`` is the part
    of the time that the training waited for data, made for it elsewhere or by itself. ``limit``
    says what keeps more data workers from being of use ("memory", "sampler"), if anything does.
    """

    enqueued_per_second: Rate = 0.0
    dequeued_per_second: Rate = 0.0
    received_bytes_per_second: Rate = 0.0
    wait_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    ready: Count = 0
    limit: Annotated[str, Field(max_length=20)] = ""


Total = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class MakingTotals(Message):
    """Batches that one kind of maker has made since the consumer came up, and what they cost."""

    batches: Count = 0
    seconds: Total = 0.0
    cpu_seconds: Total = 0.0
    queued_seconds: Total = 0.0
    storage_bytes: Count = 0


class InputTotals(Message):
    """A consumer's input since it came up; whoever listens takes differences.

    ``cpu_seconds`` are the training process's own, of all its threads.
    """

    seconds: Total = 0.0
    taken: Count = 0
    waited_seconds: Total = 0.0
    cpu_seconds: Total = 0.0
    received_bytes: Count = 0
    batch_bytes: Count = 0  # of the newest batch
    cores: Annotated[float, Field(ge=0, le=100_000)] = 0.0  # that its pod may use
    local_workers: Count = 0
    in_line: MakingTotals = MakingTotals()
    local: MakingTotals = MakingTotals()
    remote: MakingTotals = MakingTotals()
    cut: Annotated[str, Field(max_length=MOST_CUT)] = ""  # what data workers make of each batch


MEASURE: Final = "Measure"
"""In the place of where lengths are known from: one pass over the dataset."""


class BucketOptions(Message):
    """Steps of samples of like length: what ``spec.input.buckets`` says in an ElasticJob.

    ``lengths``: `MEASURE`, a file's path (with a slash in it), or a name of the dataset's
    attributes.
    """

    boundaries: Annotated[
        tuple[Annotated[int, Field(ge=1, lt=1 << 31)], ...], Field(min_length=1, max_length=512)
    ]
    lengths: Annotated[str, Field(min_length=1, max_length=4096)] = MEASURE
    tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None


def _absent(value: object) -> bool:
    """Whether a field is left out of a message: the release before refuses what it cannot know."""
    return value is None


class ShareOptions(Message):
    """Who shares batches with whom, and how: what ``spec.input.share`` says in an ElasticJob.

    ``window_bytes``: of each data worker; 0: a quarter of the memory that it may use.
    """

    group: Annotated[str, Field(min_length=1, max_length=40)]
    order: ShareOrder = ShareOrder.FREE
    window_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    join: ShareJoin = ShareJoin.NOW


def _raw(value: object) -> bool:
    return value == CacheForm.RAW


class CacheOptions(Message):
    """What is kept of the files that a dataset reads: what ``spec.input.cache`` says."""

    memory_bytes: Annotated[int, Field(ge=1, lt=1 << 62)]
    paths: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    scope: CacheScope = CacheScope.NODE
    form: Annotated[CacheForm, Field(exclude_if=_raw)] = CacheForm.RAW


def _automatic(value: object) -> bool:
    return value == Compression.AUTO


def _dynamic(value: object) -> bool:
    return value == Sharding.DYNAMIC


class InputOptions(Message):
    """How the samples of the job are to be treated: what ``spec.input`` says in an ElasticJob."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    skip_bad: bool = False
    buckets: Annotated[BucketOptions | None, Field(exclude_if=_absent)] = None
    share: Annotated[ShareOptions | None, Field(exclude_if=_absent)] = None
    cache: Annotated[CacheOptions | None, Field(exclude_if=_absent)] = None
    compression: Annotated[Compression, Field(exclude_if=_automatic)] = Compression.AUTO
    sharding: Annotated[Sharding, Field(exclude_if=_dynamic)] = Sharding.DYNAMIC


class SharedPosition(Message):
    """How far a program is in an order that its group has in common: a sample of an epoch."""

    key: Annotated[str, Field(max_length=128)]
    epoch: Annotated[int, Field(ge=0, lt=1 << 53)]
    sample: Annotated[int, Field(ge=0, lt=1 << 62)]


def _nothing(value: object) -> bool:
    return not value


def _one(value: object) -> bool:
    return value == 1


Positions = Annotated[tuple[SharedPosition, ...], Field(max_length=64, exclude_if=_nothing)]


MAX_PARTITION_NOTES: Final = 8
MAX_PARTITION_NAME: Final = 180
"""Less than a name may have: a number may come behind it."""
MAX_PARTITION_TEXT: Final = 500


class PartitionNote(Message):
    """What of a training process's steps is made elsewhere, for a loader or a declared function.

    ``prefix``: what moves, which takes ``prefix_percent`` of a step as recorded; ``why``: it stays.
    ``moved``: steps, or calls of the function, of these ``steps`` that used what came.
    """

    name: Name
    state: Phase
    prefix: Annotated[str, Field(max_length=MAX_PARTITION_TEXT)] = ""
    prefix_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    crossing_bytes: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None
    steps: Count = 0
    moved: Count = 0
    why: Annotated[str, Field(max_length=MAX_PARTITION_TEXT)] = ""

    @field_validator("name", "prefix", "why", mode="before")
    @classmethod
    def _fit(cls, text: object, info: ValidationInfo) -> object:
        """Texts are of the program: they are cut to their bounds, and can be sent."""
        most = MAX_PARTITION_NAME if info.field_name == "name" else MAX_PARTITION_TEXT
        if not isinstance(text, str):
            return text
        fits = text[:most].encode(errors="replace").decode()
        return fits or "unnamed" if info.field_name == "name" else fits


class ConsumerReport(Message):
    """One training process that takes batches."""

    version: int = DATA_PROTOCOL_VERSION
    name: Name
    address: Name  # HOST:PORT where it listens for data workers
    local: Annotated[str, Field(max_length=100)] = ""  # abstract Unix socket beside it
    group: Name = "train"
    index: Count = 0
    rank: Rank = 0  # of the pod that it is in
    taken: Count = 0  # batches since it came up
    workers: Count = 0  # data workers connected to it
    lost: Count = 0  # steps that died with their data worker (AtMostOnce)
    left_out: Count = 0  # samples that raised, and the newest of them (skipBad)
    newest_left_out: Annotated[
        tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=8)
    ] = ()
    queue: QueueState | None = None
    input: InputTotals | None = None
    positions: Positions = ()
    closed: bool = False
    share_group: Annotated[str | None, Field(max_length=40, exclude_if=_absent)] = None
    lag_tiles: Annotated[int | None, Field(ge=0, lt=1 << 62, exclude_if=_absent)] = None
    partition: Annotated[
        tuple[PartitionNote, ...], Field(max_length=MAX_PARTITION_NOTES, exclude_if=_nothing)
    ] = ()


class ConsumerReply(Message):
    """What a training process should know."""

    dispatcher: Name
    workers: Count  # data workers that report
    options: InputOptions = InputOptions()
    fronts: Positions = ()  # of those who are farthest of all others


class SharedTotals(Message):
    """What a data worker has made for jobs that share, in tiles, since it began.

    ``members``: loaders that share now; ``held_bytes``: of what lies there for them.
    """

    made: Annotated[int, Field(ge=0)] = 0
    taken: Annotated[int, Field(ge=0)] = 0
    evicted: Annotated[int, Field(ge=0)] = 0
    members: Annotated[int, Field(ge=0)] = 0
    held_bytes: Annotated[int, Field(ge=0)] = 0


class ConsumerEntry(Message):
    """Where a consumer is to be found."""

    name: Name
    address: Name
    local: str = ""


class WorkerReport(Message):
    """One data worker.

    ``stage``: it runs the batched stages, and takes batches from data workers of stage 0 at
    ``relay``. Both are left out where it is of stage 0. ``processes`` of its pod are data workers
    of one rank, this one included; left out where it is alone.
    """

    version: int = DATA_PROTOCOL_VERSION
    name: Name
    node: Annotated[str, Field(max_length=253, pattern=r"^[^\x00]*$")] = ""
    batches: Count = 0
    busy_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    rank: Rank = 0  # of its pod, and which life of it
    incarnation: Incarnation = 0
    cpu_cores: Annotated[float, Field(ge=0, le=100_000)] = 0.0  # since the last report
    memory_bytes: Annotated[int, Field(ge=0, lt=1 << 53)] = 0
    shared: Annotated[SharedTotals | None, Field(exclude_if=_absent)] = None
    stage: Annotated[int, Field(ge=0, le=1, exclude_if=_nothing)] = 0
    relay: Annotated[ConsumerEntry | None, Field(exclude_if=_absent)] = None
    processes: Annotated[int, Field(ge=1, le=1000, exclude_if=_one)] = 1
    leaving: bool = False


class WorkerReply(Message):
    """Whom a data worker is to serve."""

    dispatcher: Name
    consumers: tuple[ConsumerEntry, ...] = ()
    cache: Annotated[CacheOptions | None, Field(exclude_if=_absent)] = None


def consumers_digest(consumers: Iterable[ConsumerEntry]) -> str:
    """What names a set of consumers, in a data worker's call: what it has been told last.

    A dispatcher that has nothing else to say holds the call for up to `REPORT_SECONDS`.
    """
    names = sorted(f"{one.name} {one.address} {one.local}" for one in consumers)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


AnyMessage = TypeVar("AnyMessage", bound=BaseModel)


def encode(message: BaseModel) -> bytes:
    """A message, of this or of another protocol of the job, as msgpack."""
    packed: bytes = msgpack.packb(message.model_dump(mode="json"))
    return packed


def decode(
    kind: type[AnyMessage],
    body: bytes,
    *,
    version: int = DATA_PROTOCOL_VERSION,
    max_bytes: int = MAX_BYTES,
) -> AnyMessage:
    """The message that `encode` made; a kind with a field ``version`` must be of this one.

    Raises:
        ProtocolError: it is too long, no msgpack, of another version, or a field is wrong.
    """
    if len(body) > max_bytes:
        raise ProtocolError(f"{len(body)} bytes; a message has at most {max_bytes}")
    try:
        content = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not msgpack: {error}") from error
    known = isinstance(content, dict) and "version" in kind.model_fields
    if known and (spoken := content.get("version", version)) != version:
        raise ProtocolError(
            f"version: {spoken!r}; this side speaks {version}: run the same release of Penstock "
            "everywhere in the job"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or kind.__name__
        got = str(first.get("input"))[:80]
        raise ProtocolError(f"{kind.__name__}.{field}: {first['msg']} (got {got!r})") from error
