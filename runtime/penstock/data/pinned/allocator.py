"""Where pinned memory for batches comes from: PyTorch's caching host allocator for CUDA.

A tensor that is copied to a device with ``non_blocking=True`` and dropped at once is safe with that
allocator, on whatever stream: it notes an event for each such copy and waits for it. It does so for
tensors that share the storage which it gave out, and for no others.

Until it has been seen on a GPU this is for those who ask for it, by ``PENSTOCK_PINNED_WRITES=1``;
otherwise batches are pinned by the threads that receive them.
"""

from __future__ import annotations

from typing import Any

import torch

from penstock.data.pinned.pool import Allocate
from penstock.data.variables import PINNED_WRITES


def pinned_allocator(loader: Any) -> Allocate | None:
    """What allocates for a loader's batches; None where they are not to be pinned here.

    CUDA's alone: that other accelerators' allocators keep events has not been seen.
    """
    asked_for = PINNED_WRITES.now() and loader.pin_memory
    if not asked_for or not loader.num_workers or not torch.accelerator.is_available():
        return None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "cuda":
        return None
    device = torch.accelerator.current_device_index()

    def allocate(size: int) -> torch.Tensor:
        torch.accelerator.set_device_index(device)  # of this thread
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    return allocate
