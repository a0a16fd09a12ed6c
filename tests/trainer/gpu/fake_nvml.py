"""A ``pynvml`` that shows the devices it is told to, and fails as it is told to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


class NVMLError(Exception):
    """As the library's: its number says what went wrong."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass
class Device:
    """One device, or a slice of one."""

    uuid: str
    busy: int | None = 50
    used: int = 10 * GIB
    total: int = 80 * GIB
    watts: float | None = 300.0
    processes: dict[int, int | None] = field(default_factory=dict)
    shares: dict[int, int] | None = None
    """Of the processes, percent; None: not told."""
    slices: Sequence[Device] = ()
    error: int | None = None
    """What every question about it ends with."""


LIBRARY = """
import sys
from tests.trainer.gpu.fake_nvml import Device, FakeNvml

sys.modules[__name__] = FakeNvml(Device("GPU-a", busy=25), Device("GPU-b", busy=75))
"""


def library_path(folder: Path) -> str:
    """A ``PYTHONPATH`` with which a process finds a library that shows two devices."""
    (folder / "pynvml.py").write_text(LIBRARY)
    return f"{folder}{os.pathsep}{Path(__file__).parents[3]}"


class FakeNvml:
    """The functions of the library that the reader calls."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_INSUFFICIENT_SIZE = 7
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15

    def __init__(self, *devices: Device, init_error: int | None = None) -> None:
        self.devices = list(devices)
        self.init_error = init_error
        self.inits = self.shutdowns = 0

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.init_error is not None:
            raise NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self._told(self.devices[index], self.devices[index])

    def nvmlDeviceGetUUID(self, device: Device) -> str:
        return device.uuid

    def nvmlDeviceGetMigMode(self, device: Device) -> tuple[int, int]:
        mode = int(bool(device.slices))
        return mode, mode

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> Device:
        if index >= len(device.slices):
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return device.slices[index]

    def nvmlDeviceGetUtilizationRates(self, device: Device) -> Any:
        return SimpleNamespace(gpu=self._told(device, device.busy), memory=0)

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> Any:
        return SimpleNamespace(used=self._told(device, device.used), total=device.total)

    def nvmlDeviceGetPowerUsage(self, device: Device) -> int:
        return int(self._told(device, device.watts) * 1000)

    def nvmlDeviceGetComputeRunningProcesses(self, device: Device) -> list[Any]:
        held = self._told(device, device.processes)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in held.items()]

    def nvmlDeviceGetProcessUtilization(self, device: Device, since: int) -> list[Any]:
        shares = self._told(device, device.shares)
        if not shares:
            raise NVMLError(self.NVML_SUCCESS)
        return [
            sample
            for pid, share in shares.items()
            for sample in (
                SimpleNamespace(pid=pid, smUtil=share, timeStamp=since + 2),
                SimpleNamespace(pid=pid, smUtil=99, timeStamp=since + 1),
            )
        ]

    def _told(self, device: Device, value: Any) -> Any:
        if device.error is not None:
            raise NVMLError(device.error)
        if value is None:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return value
