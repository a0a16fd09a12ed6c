"""What training processes and data workers tell the job's dispatcher: typed, msgpack over HTTP.

As everywhere in a job, a caller sends its whole state and gets its whole orders: a call that is
lost or repeated does no harm, and a dispatcher that was killed knows everybody again a second after
it is back.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgpack
from pydantic import BaseModel, ConfigDict, Field, ValidationError

DATA_PROTOCOL_VERSION: Final = 1
CONSUMER_PATH: Final = "/v1/data/consumer"
WORKER_PATH: Final = "/v1/data/worker"
MAX_BYTES: Final = 1 << 20
REPORT_SECONDS: Final = 1.0
"""How often everybody reports."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class DataProtocolError(Exception):
    """A message that is not what it should be; says which field and why."""


class Message(BaseModel):
    """Unknown fields are refused, so that a difference of versions shows at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class QueueState(Message):
    """A consumer's queue since it came up: the signal by which data workers are counted.

    ``wait_share``: the part of the last interval that the training waited for data.
    """

    enqueued_per_second: Rate = 0.0
    dequeued_per_second: Rate = 0.0
    wait_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    ready: Count = 0


class ConsumerReport(Message):
    """One training process that takes batches."""

    version: int = DATA_PROTOCOL_VERSION
    name: Name
    address: Name  # HOST:PORT where it listens for data workers
    local: Annotated[str, Field(max_length=100)] = ""  # abstract Unix socket beside it
    group: Name = "train"
    index: Count = 0
    workers: Count = 0  # data workers connected to it
    queue: QueueState | None = None
    closed: bool = False


class ConsumerReply(Message):
    """What a training process should know."""

    dispatcher: Name
    workers: Count  # data workers that report


class WorkerReport(Message):
    """One data worker."""

    version: int = DATA_PROTOCOL_VERSION
    name: Name
    node: Annotated[str, Field(max_length=253)] = ""
    batches: Count = 0
    busy_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    leaving: bool = False


class ConsumerEntry(Message):
    """Where a consumer is to be found."""

    name: Name
    address: Name
    local: str = ""


class WorkerReply(Message):
    """Whom a data worker is to serve."""

    dispatcher: Name
    consumers: tuple[ConsumerEntry, ...] = ()


AnyMessage = TypeVar("AnyMessage", bound=Message)


def encode(message: Message) -> bytes:
    """A message as msgpack."""
    packed: bytes = msgpack.packb(message.model_dump(mode="json"))
    return packed


def decode(kind: type[AnyMessage], body: bytes) -> AnyMessage:
    """The message that `encode` made.

    Raises:
        DataProtocolError: it is too long, no msgpack, of another version, or a field is wrong.
    """
    if len(body) > MAX_BYTES:
        raise DataProtocolError(f"{len(body)} bytes; a message has at most {MAX_BYTES}")
    try:
        content = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException) as error:
        raise DataProtocolError(f"not msgpack: {error}") from error
    known = isinstance(content, dict) and "version" in kind.model_fields
    if known and (spoken := content.get("version")) != DATA_PROTOCOL_VERSION:
        raise DataProtocolError(
            f"version: {spoken!r}; this side speaks {DATA_PROTOCOL_VERSION}: run the same release "
            "of Penstock everywhere in the job"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or kind.__name__
        got = str(first.get("input"))[:80]
        raise DataProtocolError(f"{kind.__name__}.{field}: {first['msg']} (got {got!r})") from error
