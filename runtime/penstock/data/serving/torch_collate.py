"""PyTorch's ``default_collate`` in a worker, which stacks tensors where the batch is delivered.

In PyTorch's own workers it stacks them in new shared memory for the same reason. There the batch is
no copy then; here that would be memory that nobody shares, and a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils import collate as torchs

from penstock.data.serving.batch_memory import PLACED_BYTES, BatchMemory
from penstock.data.transport.batch_codec import ALIGNMENT

_stack_as_torch: Any = torchs.collate_tensor_fn


@dataclass(frozen=True)
class PlacedCollate:
    """``default_collate`` with the batch in a `BatchMemory`, wherever that gives the same batch.

    Its own code keeps nothing of a batch; with a function of the program's one cannot know.
    """

    memory: BatchMemory

    def __call__(self, samples: Any) -> Any:
        """The batch of these samples."""
        sizes = list(_sizes(samples[0], len(samples))) if len(samples) else []
        offsets, size = [], 0
        for of_tensor, count in sizes:
            size += -size % ALIGNMENT if count else 0
            if of_tensor:
                offsets.append((size, count))
            size += count
        if size < PLACED_BYTES or (memory := self.memory.reserve(size)) is None:
            return default_collate(samples)
        places = iter(offsets)

        def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
            offset, count = next(places, (0, 0))
            first = batch[0]
            if (
                not count
                or count != first.nbytes * len(batch)
                or first.is_quantized
                or not first.is_contiguous()
                or {type(one) for one in batch} != {torch.Tensor}
                or {one.dtype for one in batch} != {first.dtype}
                or any(one.requires_grad for one in batch)
            ):
                return stack_privately(batch, collate_fn_map=collate_fn_map)
            flat = torch.frombuffer(
                memory, dtype=first.dtype, count=first.numel() * len(batch), offset=offset
            )
            return torch.stack(batch, 0, out=flat.view(len(batch), *first.shape))

        return torchs.collate(
            samples, collate_fn_map={**torchs.default_collate_fn_map, torch.Tensor: stack}
        )


def stack_privately(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """What ``default_collate`` does with tensors, the result not being in shared memory."""
    first = batch[0]
    plain = first.layout is torch.strided and not first.is_nested and not first.is_quantized
    if get_worker_info() is None or not plain:
        return _stack_as_torch(batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, 0, out=first.new_empty((len(batch), *first.shape)))


def place(collate: Any, memory: BatchMemory) -> Any:
    """The collate function of a pipeline as a worker calls it."""
    known: Any = torchs.default_collate_fn_map
    if known.get(torch.Tensor) is _stack_as_torch:  # for functions that call ``default_collate``
        known[torch.Tensor] = stack_privately
    ours = {stack_privately.__module__, torchs.__name__}
    if collate is default_collate and all(one.__module__ in ours for one in known.values()):
        return PlacedCollate(memory)
    return collate


def _sizes(sample: Any, count: int) -> Iterator[tuple[bool, int]]:
    """Of each array of the batch of such samples, in order: of tensors or not, and its bytes."""
    if isinstance(sample, torch.Tensor):
        strided = sample.layout is torch.strided and sample.device.type == "cpu"
        yield True, sample.nbytes * count if strided else 0
    elif isinstance(sample, np.ndarray):
        yield True, sample.nbytes * count
    elif isinstance(sample, np.generic):
        yield False, sample.nbytes * count
    elif isinstance(sample, int | float):
        yield False, (1 if isinstance(sample, bool) else 8) * count
    elif isinstance(sample, Mapping):
        for value in sample.values():
            yield from _sizes(value, count)
    elif isinstance(sample, Sequence) and not isinstance(sample, str | bytes):
        for value in sample:
            yield from _sizes(value, count)
