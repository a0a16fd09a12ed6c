"""``spec.input`` of a job, as its trainer tells training processes and data workers."""

from __future__ import annotations

from penstock.base import quantity
from penstock.base.enums import Compression, Sharding
from penstock.crds.input import Input, InputBuckets, InputCache, InputShare
from penstock.data.protocol import BucketOptions, CacheOptions, InputOptions, ShareOptions


def input_options_of(said: Input) -> InputOptions:
    """The options of a job's input."""
    return InputOptions(
        guarantee=said.guarantee,
        skip_bad=said.skip_bad,
        buckets=None if said.buckets is None else _buckets(said.buckets),
        share=None if said.share is None else _share(said.share),
        cache=None if said.cache is None else _cache(said.cache),
        compression=said.compression or Compression.AUTO,
        sharding=said.sharding or Sharding.DYNAMIC,
    )


def _buckets(said: InputBuckets) -> BucketOptions:
    edges = tuple(sorted(said.boundaries))
    return BucketOptions(boundaries=edges, lengths=said.lengths, tokens=said.tokens_per_batch)


def _share(said: InputShare) -> ShareOptions:
    return ShareOptions(
        group=said.group,
        order=said.order,
        window_bytes=0 if said.window is None else quantity.parse_bytes(said.window),
        join=said.join,
    )


def _cache(said: InputCache) -> CacheOptions:
    return CacheOptions(
        memory_bytes=quantity.parse_bytes(said.memory),
        paths=tuple(said.paths),
        scope=said.scope,
        form=said.form,
    )
