"""Streams of a dataset that is iterated, which jobs share: what they are known by.

A stream cannot be divided into tiles: its batches come one after the other. So jobs share those
streams that are the same for them, batch by batch in the stream's own order: of one content
(`penstock.data.sharing.pipeline.content_digest`), one part of the data, and one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.data.pipeline import AnyPipeline, PackedPipeline, pack_pipeline
from penstock.data.sharing.pipeline import content_digest
from penstock.data.streams.pipeline import StreamPipeline

NameStream = Callable[[Any, int, int], tuple[int, ...]]
"""What a stream is, given its dataset, number and seed: which part of the data, and its seed."""


@dataclass(frozen=True)
class SharedStreamPipeline(AnyPipeline):
    """A pipeline of which streams are shared.

    Attributes:
        pipeline: of one job.
        key: of what it does: who has the same shares.
        name: says which stream is which. Two of one key and name are the same, of whatever job.
        window_bytes: of batches that each data worker keeps; 0: as its memory allows.
    """

    pipeline: StreamPipeline
    key: bytes
    name: NameStream
    window_bytes: int = 0


def pack_shared_streams(
    pipeline: StreamPipeline, content: Any, name: NameStream, window_bytes: int, token: str
) -> PackedPipeline:
    """A pipeline as it is shared, packed for data workers.

    ``content``: all that its streams depend on beside their name.

    Raises:
        NotPortableError: it cannot be sent; says why.
    """
    key = content_digest((content, pipeline.collate, pipeline.environ), pipeline.batch_size)
    return pack_pipeline(SharedStreamPipeline(pipeline, key, name, window_bytes), token)
