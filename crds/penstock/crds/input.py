"""``spec.input`` of an ElasticJob: who gets which samples, and where they are read and prepared."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from penstock.base.enums import (
    CacheForm,
    CacheScope,
    Compression,
    Guarantee,
    Offload,
    Partition,
    Sharding,
    ShareJoin,
    ShareOrder,
)
from penstock.base.fields import DNS_LABEL, INT32_MAX, Flag, Int32, PositiveQuantity
from penstock.base.structural import Keywords, Model, Rule

_LENGTHS: Final = r"^(/[^\x00]+|[A-Za-z_][A-Za-z0-9_.]*)$"
_ABSOLUTE: Final = r"^/[^\x00]*$"


def immutable(field: str) -> Rule:
    """An optional field that may be neither set, changed nor removed after creation."""
    return Rule(
        cel=f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})",
        message=f"{field} is immutable: after creation it can be neither set, changed nor removed",
        field_path=f".{field}",
    )


class InputBuckets(Model):
    """Steps of samples of like length, on all workers."""

    boundaries: Annotated[
        list[
            Annotated[
                Int32,
                Field(ge=1, le=INT32_MAX),
                Keywords(description="The longest length of a bucket."),
            ]
        ],
        Field(min_length=1, max_length=512),
        Keywords(**{"x-kubernetes-list-type": "set"}),
    ] = Field(
        description="Longest length of each bucket; longer samples are one more bucket.",
    )
    lengths: Annotated[str, Field(min_length=1, max_length=4096, pattern=_LENGTHS)] = Field(
        default="Measure",
        description="Where the length of each sample is known from. Measure: one pass over the"
        " dataset. A path from the root: of a file of integers, as numpy.save writes it. Else: the"
        " dataset's attribute of that name.",
    )
    tokens_per_batch: Annotated[Int32, Field(ge=1, le=INT32_MAX)] | None = Field(
        default=None,
        description="Of a batch at most, each sample padded to its bucket's boundary: short samples"
        " are then more to a batch. Without it a batch has as many samples as the program says.",
    )


class InputShare(Model):
    """Batches are made once for all jobs of a group: of one namespace, with the same data."""

    group: Annotated[str, Field(min_length=1, max_length=40, pattern=DNS_LABEL)] = Field(
        description="Name of the group: jobs of the namespace that name the same share.",
    )
    order: ShareOrder = Field(
        default=ShareOrder.FREE,
        description="Free: each job takes what there is and it has not had in this epoch; every"
        " sample once, in no order that can be repeated. Common: all jobs have the same batches in"
        " the same order.",
    )
    window: PositiveQuantity | None = Field(
        default=None,
        description="Bytes of made samples that a data worker keeps for the group. Default: a"
        " quarter of its memory limit.",
    )
    join: ShareJoin = Field(
        default=ShareJoin.NOW,
        description="With Common: whether a job that comes later begins where the others are (Now),"
        " and has what it missed at the end of its epoch, or at the beginning (Epoch).",
    )


class InputCache(Model):
    """Files that the dataset reads stay in memory, and what is in memory stays there."""

    memory: PositiveQuantity = Field(
        description="Bytes for a node, or with scope Pod for a data worker."
    )
    scope: CacheScope = Field(
        default=CacheScope.NODE,
        description="Pod: in each data worker. Node: for all jobs of a node. Nodes: divided over"
        " the nodes, each file kept once.",
    )
    form: CacheForm = Field(
        default=CacheForm.RAW,
        description="Raw: files as they are. Decoded: what an ImageFolder's loader, or a Stage that"
        " draws nothing, makes of each file; all other files are read as ever.",
    )
    paths: Annotated[
        list[
            Annotated[
                str,
                Field(min_length=1, max_length=4096, pattern=_ABSOLUTE),
                Keywords(description="A folder, from the root."),
            ]
        ],
        Field(min_length=1, max_length=64),
        Keywords(**{"x-kubernetes-list-type": "set"}),
    ] = Field(description="Folders below which files are kept.")


_UNSHARDED_ALONE: Final = Rule(
    cel="!has(self.share) || self.guarantee != 'Unsharded'",
    message="with guarantee Unsharded nothing can be shared: leave out input.share",
    field_path=".share",
)


class Input(Model):
    """The input pipeline: who gets which samples, and where they are prepared."""

    rules: ClassVar[tuple[Rule, ...]] = (
        immutable("buckets"),
        immutable("share"),
        _UNSHARDED_ALONE,
    )

    guarantee: Annotated[
        Guarantee,
        Keywords(
            Rule(
                cel="self == oldSelf",
                message="input.guarantee is immutable: create a new job to change it",
            )
        ),
    ] = Field(
        default=Guarantee.EXACTLY_ONCE,
        description="What is promised about each sample of an epoch; immutable. ExactlyOnce: it is"
        " consumed once, whatever fails. AtMostOnce: once handed out, it counts as consumed."
        " Unsharded: every worker sees all samples, in an order of its own.",
    )
    offload: Offload = Field(
        default=Offload.AUTO,
        description="Whether data workers prepare the batches. Auto: when that is what the training"
        " waits for. Always: from the start. Never: in the training processes only.",
    )
    partition: Partition | None = Field(
        default=None,
        description="What of a training step data workers do as well. Declared, which is meant"
        " where nothing is said: what the program hands to penstock.data.offload. Auto: what is"
        " found to be stateless, too. Never: nothing. A change reaches new incarnations only.",
    )
    skip_bad: Flag = Field(
        default=False,
        description="Whether an epoch goes on without the samples that failed three times on"
        " different holders; if not, it ends with an error that names them.",
    )
    lease_seconds: Annotated[Int32, Field(ge=1, le=3600)] = Field(
        default=20,
        description="Seconds for which a worker holds samples that were handed to it, unless it"
        " renews; after that they go to another.",
    )
    buckets: InputBuckets | None = Field(
        default=None,
        description="Steps of samples of like length, on all workers, for texts and sounds:"
        " immutable. Absent: samples come in the program's own order.",
    )
    share: InputShare | None = Field(
        default=None,
        description="Jobs with which batches are shared; immutable. Absent: none.",
    )
    cache: InputCache | None = Field(
        default=None,
        description="What is read is kept in memory. Absent: nothing but the system's page cache.",
    )
    compression: Compression | None = Field(
        default=None,
        description="Whether batches are sent in fewer bytes. Auto, which is meant where nothing is"
        " said: where a slow link is what the"
        " training waits for. Zstd: always, between nodes. None: as they are.",
    )
    sharding: Sharding | None = Field(
        default=None,
        description="Dynamic, which is meant where nothing is said: whichever data worker is free"
        " makes a batch. Static: each sample has"
        " a data worker that makes it as long as there is one, so that what that has read is of use"
        " again.",
    )
