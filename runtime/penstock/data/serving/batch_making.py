"""The user's code in a data worker: opening a pipeline, making a batch, packing it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from penstock.data.cuts.head_and_tail import Begun, Tail, opened
from penstock.data.cuts.reading import ReadLocalPipeline
from penstock.data.errors import NotPortableError
from penstock.data.pipeline import AnyPipeline, Pipeline, open_pipeline
from penstock.data.serving.asked_files import read_there
from penstock.data.serving.batch_memory import BatchMemory
from penstock.data.serving.consumer_connection import Request
from penstock.data.serving.stage_before import StageBefore
from penstock.data.sharing.stream_pipeline import SharedStreamPipeline
from penstock.data.streams.digest import UNKNOWN, chain_digest
from penstock.data.streams.pipeline import Address, Chain, StreamPipeline
from penstock.data.transport import messages
from penstock.data.transport.batch_codec import Packed, Packer
from penstock.data.transport.pickled_batch import take_apart

Collating = TypeVar("Collating", Pipeline, StreamPipeline, Pipeline | StreamPipeline)

MAX_STRUCTURE_BYTES: Final = 16 << 20
"""Where texts and bytes of a local worker's batch need more, they go the way that arrays go."""


def make(
    pipeline: AnyPipeline,
    request: Request,
    packer: Packer,
    leaving: Callable[[], bool],
    before: StageBefore | None = None,
) -> Any:
    """The batch that was asked for; ``before``: makes it up to the stages of this data worker.

    Raises:
        KeepsStateError: it changed the dataset, and the program is to see that.
        Exception: whatever the user's code raises.
    """
    if not isinstance(pipeline, StreamPipeline):
        if before is not None and isinstance(pipeline, Pipeline):
            came, batch = before.take(request)
            if came:
                return pipeline.finish(request.seed, request.indices, batch, pipeline.boundary)
        if request.begun is not None and isinstance(pipeline, Pipeline):
            return finish(pipeline, request)
        maker: Any = pipeline
        watch = request.line.watches.get(request.digest)
        try:
            if isinstance(pipeline, ReadLocalPipeline):
                line = request.line
                with read_there(line.files, line.send, pipeline.roots, pipeline.folder):
                    return pipeline.make(request.seed, request.indices, until=request.until)
            if request.until is None:
                return maker.make(request.seed, request.indices)
            return maker.make(request.seed, request.indices, until=request.until)
        finally:
            if watch is not None:
                watch.check()

    address = Address(*request.indices)
    return request.line.streams.make(
        request.stream, pipeline, request.seed, address, chaining(packer), leaving
    )


def chaining(packer: Packer) -> Chain:
    """Digests what is passed over, as its consumer has digested what it got."""

    def chain(before: int, batch: Any) -> int:
        try:
            packed = packer.pack(batch)
        except NotPortableError:
            return UNKNOWN
        return chain_digest(before, packed.structure, packed.parts, packed.size)

    return chain


def finish(pipeline: Pipeline, request: Request) -> Any:
    """The batch that a data worker has begun, to its end; whole where that cannot be.

    Raises:
        Exception: whatever the user's code raises.
    """
    arrived, _ = opened(request.begun)
    request.begun = None
    if isinstance(arrived, Begun):
        tails = request.line.tails
        if (tail := tails.get(arrived.point)) is None:
            tail = tails[arrived.point] = Tail(pipeline, arrived.point)
        try:
            batch, made = tail.finish(request.seed, request.indices, arrived)
        except Exception:  # noqa: BLE001 - the user's code: it raises where all is made again
            made = False
        if made:
            return batch
    return pipeline.make(request.seed, request.indices)


def pack(packer: Packer, batch: Any, *, local: bool) -> tuple[int, Packed]:
    """The kind of message that a batch goes in, and the batch.

    Raises:
        Exception: it cannot be sent, or what its classes raise when they are pickled.
    """
    try:
        packed = packer.pack(batch)
    except NotPortableError:
        if not local:
            raise
    else:
        if not local or len(packed.structure) <= MAX_STRUCTURE_BYTES:
            return messages.BATCH, packed
    return messages.PICKLED, packer.pack(take_apart(batch))


def reopening(
    opened: StreamPipeline, blob: memoryview, signature: Any, token: str
) -> Callable[[], StreamPipeline]:
    """Gives the pipeline that was opened, and then, each time, another one."""
    first: list[StreamPipeline] = [opened]

    def reopen() -> StreamPipeline:
        if first:
            return first.pop()
        again = open_pipeline(blob, signature, token, place=False, checked=False)
        if isinstance(again, SharedStreamPipeline):
            again = again.pipeline
        assert isinstance(again, StreamPipeline), "as it was the first time"
        return again

    return reopen


def prepare(pipeline: Pipeline, rank: int) -> None:
    """Do what the program wants done in a worker of its loader, and what takes time but once.

    A function of its ``batch_stage`` may import a library for seconds: nobody waits for a batch of
    this pipeline yet.

    Raises:
        NotPortableError: the user's code failed; says how.
    """
    if pipeline.prepare is not None:
        try:
            pipeline.prepare(rank)
        except Exception as error:  # the user's code, whatever it raises
            raise NotPortableError(
                f"worker_init_fn raised {type(error).__name__} here: {error}"
            ) from error
    if (opening := getattr(pipeline.batch_stage, "open", None)) is not None:
        opening()


def placed(pipeline: AnyPipeline, memory: BatchMemory) -> AnyPipeline:
    """The pipeline, its batches being made in ``memory`` if that is possible."""
    if isinstance(pipeline, Pipeline | StreamPipeline):
        return place_collate(pipeline, memory)
    return pipeline


def place_collate(pipeline: Collating, memory: BatchMemory) -> Collating:
    """`placed`, of one that collates."""
    if "torch" not in sys.modules:
        return pipeline
    from penstock.data.serving.torch_collate import place

    return replace(pipeline, collate=place(pipeline.collate, memory))
