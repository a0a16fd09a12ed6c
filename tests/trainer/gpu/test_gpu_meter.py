"""The meter asks nobody to wait, whatever the driver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import psutil
import pytest

from penstock.job.protocol import GpuUsage
from penstock.trainer.gpu.gpu_meter import GpuMeter
from penstock.trainer.gpu.nvml import NvmlReader
from penstock.trainer.process_meter import ProcessMeter
from tests.trainer.gpu.fake_nvml import Device, FakeNvml


class Reader:
    """Reads one device, after as long as it is told to."""

    is_absent = False

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.closed = threading.Event()
        self.asked: list[Collection[int]] = []

    def read(self, pids: Collection[int]) -> tuple[GpuUsage, ...]:
        self.asked.append(pids)
        self.go_on.wait()
        return (GpuUsage(uuid="GPU-a", utilization=0.5),)

    def close(self) -> None:
        self.closed.set()


def eventually(what: Callable[[], object], timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_driver_that_hangs_holds_up_nobody() -> None:
    reader = Reader()
    with GpuMeter(reader) as meter:
        assert meter.read({1}) == ()
        assert meter.read({1}) == ()
    assert not reader.closed.is_set(), "it is still in the driver"
    reader.go_on.set()
    assert reader.closed.wait(30)


def test_the_newest_reading_comes_with_the_programs_usage() -> None:
    reader = Reader()
    reader.go_on.set()
    with GpuMeter(reader) as meter:
        own = psutil.Process().pid
        process = ProcessMeter(lambda: [own], meter.read)
        eventually(lambda: (usage := process.read()) is not None and usage.gpus)
        eventually(lambda: any(own in pids for pids in reader.asked))
    assert reader.closed.wait(30)


def test_the_thread_ends_where_there_is_no_device() -> None:
    nvml = FakeNvml()
    with GpuMeter(NvmlReader({}, lambda: nvml)) as meter:
        eventually(lambda: nvml.shutdowns == 1)
        eventually(lambda: "gpu-meter" not in {each.name for each in threading.enumerate()})
        assert meter.read({1}) == ()


def test_a_fault_of_the_reader_ends_the_measuring_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, device: Device) -> None:
            raise OSError("not the library's error")

    nvml = Broken(Device("GPU-a"))
    with GpuMeter(NvmlReader({}, lambda: nvml)) as meter:
        eventually(lambda: nvml.shutdowns == 1)
        assert meter.read({1}) == ()
    assert "GPUs are not measured any more" in caplog.text


@pytest.mark.gpu
def test_a_real_device_says_what_it_does() -> None:
    import torch

    held = torch.ones(256 << 20, dtype=torch.uint8, device="cuda")
    reader = NvmlReader({})
    found = reader.read({psutil.Process().pid})
    reader.close()
    assert found, "pip install 'penstock[gpu]'"
    for device in found:
        assert device.uuid.startswith(("GPU-", "MIG-"))
        assert device.memory_total_bytes is not None
    assert sum(device.memory_bytes or 0 for device in found) >= held.nbytes
