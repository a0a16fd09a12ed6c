"""Values between the memory of the host, where servers have theirs, and the devices of a model.

On a CPU nothing is copied at all. To and from a CUDA device copies go through page-locked memory,
which is several times faster than other memory and holds up neither side: on the way there the
program goes on while they run, on the way back all of them are begun before the first is waited
for. Page-locked memory comes from PyTorch's own cache of it, which hands a block out again once the
copy out of it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch


class Staging(Protocol):
    """Copies to and from the devices of one kind."""

    def upload(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """The values on the device; ``values`` may change as soon as this returns."""

    def download(self, values: torch.Tensor) -> torch.Tensor:
        """A tensor of the host that holds the values after the next `wait` for their device."""

    def wait(self, device: torch.device) -> None:
        """Wait until the downloads from a device are done."""


class CudaStaging:
    """Copies through page-locked memory, on the stream that the program uses."""

    def upload(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """As `Staging.upload`."""
        return values.pin_memory().to(device, non_blocking=True)

    def download(self, values: torch.Tensor) -> torch.Tensor:
        """As `Staging.download`."""
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return host.copy_(values, non_blocking=True)

    def wait(self, device: torch.device) -> None:
        """As `Staging.wait`."""
        torch.cuda.current_stream(device).synchronize()


class Transfer:
    """Copies between the host and any devices; see the module's docstring."""

    def __init__(self, staging: Mapping[str, Staging] | None = None) -> None:
        """``staging``: by kind of device; other devices are copied to and from one by one."""
        self._staging = {"cuda": CudaStaging()} if staging is None else staging

    def to_device(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Values of the host on a device; the same tensor where that is the host."""
        staging = self._staging.get(device.type)
        return values.to(device) if staging is None else staging.upload(values, device)

    def to_host(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The values of tensors on the host; the same tensors where they are there already."""
        found, devices = [], {}
        for values in tensors:
            staging = self._staging.get(values.device.type)
            if staging is None:
                found.append(values.to("cpu"))
            else:
                found.append(staging.download(values))
                devices[values.device] = staging
        for device, staging in devices.items():
            staging.wait(device)
        return found
