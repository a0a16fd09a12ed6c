"""Reads GPUs through NVML, by the library ``nvidia-ml-py`` (``pip install 'penstock[gpu]'``).

Where library, driver or device is absent there is nothing to read, now and later: that is said
once, at debug level. A device that was there and fails (it was reset, or fell off the bus) is told
once and left out; NVML is opened anew after a while, and after ever longer ones while it fails.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any, Final

from penstock.job.protocol import MAX_GPUS, GpuUsage
from penstock.trainer.gpu.device_use import DeviceReading, own_use
from penstock.trainer.gpu.visible_devices import ListedDevice, visible_devices

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 15.0
LONGEST_RETRY_SECONDS: Final = 600.0
SAMPLES_SECONDS: Final = 2.0
"""The driver samples processes about once in a second: one that computes has a sample in this."""

_NO_SUCH_FIGURE: Final = (
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
)
"""A device does not tell this, and works."""
_ABSENT: Final = (
    "NVML_ERROR_LIBRARY_NOT_FOUND",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
)
"""There is no driver to ask."""


def find_library() -> ModuleType | None:
    """The module ``pynvml``; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        logger.debug("no GPU is measured: %s; pip install 'penstock[gpu]'", error)
        return None


class NvmlReader:
    """The devices that are the program's, read when asked; calls may take as long as the driver."""

    def __init__(
        self,
        environ: Mapping[str, str],
        library: Callable[[], Any | None] = find_library,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = environ
        self._find_library = library
        self._clock = clock
        self._library: Any = None
        self._handles: dict[str, Any] = {}  # by UUID
        self._uuids: dict[int, str] = {}  # by index, as they were when they worked
        self._is_open = False
        self._is_absent = False
        self._retry_at: float | None = None  # something failed: NVML is opened anew then
        self._pause = FIRST_RETRY_SECONDS
        self._failed: set[str] = set()  # devices and calls of which that was said

    @property
    def is_absent(self) -> bool:
        """Whether there is nothing to read, and never will be."""
        return self._is_absent

    def read(self, pids: Collection[int]) -> tuple[GpuUsage, ...]:
        """What the program, whose process ids these are, uses of each device that works."""
        if self._is_absent or not self._open():
            return ()
        found = []
        for uuid, handle in list(self._handles.items()):
            try:
                reading = self._read_device(uuid, handle)
            except self._library.NVMLError as error:
                del self._handles[uuid]
                self._note_failure(uuid, error)
            else:
                found.append(own_use(reading, pids))
        if self._retry_at is None:
            self._pause = FIRST_RETRY_SECONDS
            self._failed.clear()
        return tuple(found)

    def count(self) -> int:
        """The devices and MIG slices that are the program's, and work."""
        return len(self._handles) if not self._is_absent and self._open() else 0

    def close(self) -> None:
        """Let go of the driver."""
        if self._is_open:
            self._is_open = False
            try:
                self._library.nvmlShutdown()
            except self._library.NVMLError as error:
                logger.debug("NVML did not close: %s", error)

    def _open(self) -> bool:
        """Whether there are devices to read, as they were found or are found now."""
        due = self._retry_at is not None and self._clock() >= self._retry_at
        if self._is_open and not due:
            return True
        if self._retry_at is not None and not due:
            return False
        self.close()
        again, self._retry_at = self._retry_at is not None, None
        if self._library is None:
            self._library = self._find_library()
        if self._library is None:
            self._is_absent = True
            return False
        try:
            self._library.nvmlInit()
            self._is_open = True
            self._handles = self._find_devices()
        except self._library.NVMLError as error:
            if not again and error.value in self._codes(_ABSENT):
                logger.debug("no GPU is measured: %s", error)
                self._is_absent = True
            else:
                self._note_failure("NVML", error)
            self.close()
            return False
        if not self._handles:
            if again and self._retry_at is None:
                self._note_failure("NVML", LookupError("no device is left"))
            elif self._retry_at is None:
                logger.debug("no GPU is measured: none is visible to the program")
                self._is_absent = True
            self.close()
        return bool(self._handles)

    def _find_devices(self) -> dict[str, Any]:
        nvml, listed, handles = self._library, [], {}
        failed: dict[str, Exception] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(nvml.nvmlDeviceGetUUID(device))
                slices = self._find_slices(device)
            except nvml.NVMLError as error:  # the others work, and keep their indices
                uuid, slices = self._uuids.get(index, f"number {index}"), {}
                failed[uuid] = error
            else:
                self._uuids[index] = uuid
                handles.update({uuid: device, **slices})
            listed.append(ListedDevice(uuid, tuple(slices)))
        chosen = visible_devices(self._environ, listed)[:MAX_GPUS]
        for uuid in failed.keys() & set(chosen):
            self._note_failure(uuid, failed[uuid])
        return {uuid: handles[uuid] for uuid in chosen if uuid in handles}

    def _find_slices(self, device: Any) -> dict[str, Any]:
        nvml = self._library
        mode = self._figure(nvml.nvmlDeviceGetMigMode, device)
        if mode is None or not mode[0]:
            return {}
        found = {}
        for index in range(self._figure(nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0):
            one = self._figure(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)
            if one is not None:
                found[_text(nvml.nvmlDeviceGetUUID(one))] = one
        return found

    def _read_device(self, uuid: str, handle: Any) -> DeviceReading:
        nvml = self._library
        rates = self._figure(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._figure(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._figure(nvml.nvmlDeviceGetPowerUsage, handle)
        processes = self._figure(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        shared = len(processes) > 1
        return DeviceReading(
            uuid=uuid,
            utilization=None if rates is None else rates.gpu / 100,
            memory_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_watts=None if power is None else power / 1000,
            process_memory_bytes={each.pid: each.usedGpuMemory for each in processes},
            process_utilization=self._process_utilization(handle) if shared else None,
        )

    def _process_utilization(self, handle: Any) -> dict[int, float] | None:
        """The newest share of each process that has computed lately; None: it is not told."""
        nvml = self._library
        since = time.time() - SAMPLES_SECONDS  # the driver's clock, which counts microseconds
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, int(since * 1e6))
        except nvml.NVMLError as error:
            # Nobody has computed: the library raises in either case.
            if error.value in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND}:
                return {}
            if error.value in self._codes(_NO_SUCH_FIGURE):
                return None
            raise
        newest_last = sorted(samples, key=lambda sample: sample.timeStamp)
        return {sample.pid: sample.smUtil / 100 for sample in newest_last}

    def _figure(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call gives; None where this device or driver does not tell it."""
        try:
            return call(*arguments)
        except self._library.NVMLError as error:
            if error.value in self._codes(_NO_SUCH_FIGURE):
                return None
            raise

    def _codes(self, names: Collection[str]) -> set[int]:
        return {getattr(self._library, name) for name in names if hasattr(self._library, name)}

    def _note_failure(self, what: str, error: Exception) -> None:
        """Say it once, and try again later."""
        if what not in self._failed:
            self._failed.add(what)
            logger.warning("GPU %s is not measured for now: %s", what, error)
        if self._retry_at is None:
            self._retry_at = self._clock() + self._pause
            self._pause = min(2 * self._pause, LONGEST_RETRY_SECONDS)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
