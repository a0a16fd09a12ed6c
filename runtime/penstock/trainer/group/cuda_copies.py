"""Copies from CUDA devices to page-locked memory beside the training.

Where the device has room, the state is copied within it first, which takes a thousandth of a second
per gigabyte or two, and goes to the host from there on a stream of its own while the training goes
on. Where it has not, the copies are queued on the training's stream: its next kernels wait for
them, the program does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from penstock.trainer.group.host_copies import Region, view


def fits_beside(size: int, free_bytes: int) -> bool:
    """Whether so much may be taken of a device for a moment.

    Args:
        size: bytes that are wanted.
        free_bytes: what no process has taken. What PyTorch keeps for later does not count: the
            next step needs it again.
    """
    return size <= free_bytes // 2


def finish_kernels(tensors: Sequence[torch.Tensor]) -> None:
    """Wait until what is queued on this thread's streams has been done to these tensors."""
    for device in {tensor.device for tensor in tensors if tensor.device.type == "cuda"}:
        torch.cuda.current_stream(device).synchronize()


class CudaTransport:
    """A `penstock.trainer.group.host_copies.Transport` of CUDA devices."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def carries(self, device: torch.device) -> bool:
        """Whether this is a CUDA device."""
        return device.type == "cuda"

    def allocate(self, size: int) -> torch.Tensor:
        """Page-locked memory; the first of a process takes about a second per gigabyte."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def begin(self, regions: Sequence[Region]) -> Callable[[], None]:
        """As `penstock.trainer.group.host_copies.Transport.begin`."""
        done = [self._begin(region) for region in regions]

        def wait() -> None:
            for event in done:
                event.synchronize()

        return wait

    def _begin(self, region: Region) -> torch.cuda.Event:
        # PyTorch leaves events and streams untyped.
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        with torch.no_grad(), torch.cuda.device(region.device):
            training = torch.cuda.current_stream(region.device)
            beside = _beside(region)
            if beside is None:
                for tensor, start in region.parts:
                    view(region.host, start, tensor).copy_(tensor, non_blocking=True)
                done.record(training)
                return done
            for tensor, start in region.parts:
                view(beside, start, tensor).copy_(tensor)
            stream = self._streams.get(region.device)
            if stream is None:
                # PyTorch leaves streams untyped.
                stream = torch.cuda.Stream(region.device)  # type: ignore[no-untyped-call]
                self._streams[region.device] = stream
            stream.wait_stream(training)
            with torch.cuda.stream(stream):
                region.host.copy_(beside, non_blocking=True)
                done.record(stream)
            beside.record_stream(stream)  # its memory is not used again before
        return done


def _beside(region: Region) -> torch.Tensor | None:
    """Memory of the device for a copy of the region; None where it has too little."""
    size = region.host.numel()
    if not fits_beside(size, torch.cuda.mem_get_info(region.device)[0]):
        return None
    try:
        return torch.empty(size, dtype=torch.uint8, device=region.device)
    except torch.OutOfMemoryError:
        return None
