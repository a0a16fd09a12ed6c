"""A rank that begins an epoch without having heard what the job says of its order.

The dispatcher says it when a process begins. One that is silent for too long leaves an epoch in the
order of the loader's own sampler, while other ranks may have heard of a share group, of buckets, or
that nothing is divided. Ranks whose orders differ lose samples together and have others twice, and
nobody sees it. So whoever hears during such an epoch that it is another order ends with an error:
its job begins again from the last checkpoint, and all ranks have heard.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler

from penstock.base.enums import Guarantee
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.process import number_in
from penstock.data.errors import DataError
from penstock.data.protocol import InputOptions


class AssumedOrderError(DataError):
    """An epoch's order is not what the other ranks of the job may have."""


class AssumedOrder:
    """That of an epoch of one of several ranks; see the module's docstring."""

    def __init__(self, consumer: Consumer, own: Guarantee | None) -> None:
        self._consumer, self._own = consumer, own

    @classmethod
    def of(
        cls, loader: Any, consumer: Consumer | None, heard: bool, own: Guarantee | None = None
    ) -> AssumedOrder | None:
        """None: the job has said what it is, or this process is its only one.

        ``heard``: it had before the epoch was begun; ``own``: what the loader promises whatever the
        job says.
        """
        if consumer is None or heard or not consumer.has_assumed or not _is_of_several(loader):
            return None
        return cls(consumer, own)

    def checked(self) -> AssumedOrder | None:
        """Itself until the job has said; None: it is as assumed.

        Raises:
            AssumedOrderError: it is another one.
        """
        if not self._consumer.has_heard:
            return self
        told = _told_otherwise(self._consumer.options(), self._own)
        if told:
            raise AssumedOrderError(
                f"{told}: the job's trainer says so only now, and this epoch was begun without; "
                "other ranks may have begun it so, and samples would be lost or come twice. Run "
                "the program again from its last checkpoint (a job does so by itself)"
            )
        return None


def _told_otherwise(options: InputOptions, own: Guarantee | None) -> str:
    told = []
    if options.share is not None:
        told.append(f"input.share of group {options.share.group}")
    if options.buckets is not None:
        told.append("input.buckets")
    if own is None and options.guarantee is Guarantee.UNSHARDED:
        told.append(f"input.guarantee {options.guarantee}")
    return " and ".join(told)


def _is_of_several(loader: Any) -> bool:
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if isinstance(sampler, DistributedSampler):
        return sampler.num_replicas > 1
    return number_in("WORLD_SIZE", 1) > 1
