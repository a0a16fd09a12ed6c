"""The reader asks the driver as little as it can, and never fails for want of a device."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.trainer.gpu.nvml import FIRST_RETRY_SECONDS, NvmlReader
from tests.trainer.gpu.fake_nvml import GIB, Device, FakeNvml


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def reader(nvml: Any, clock: Clock | None = None, **environ: str) -> NvmlReader:
    return NvmlReader(environ, lambda: nvml, clock or Clock())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.WARNING]


def test_each_visible_device_is_read() -> None:
    nvml = FakeNvml(Device("GPU-a", busy=10), Device("GPU-b", busy=80, watts=512.5))
    (own,) = reader(nvml, CUDA_VISIBLE_DEVICES="1").read(())
    assert (own.uuid, own.utilization, own.power_watts) == ("GPU-b", 0.8, 512.5)
    assert (own.memory_bytes, own.memory_total_bytes) == (10 * GIB, 80 * GIB)
    assert [each.uuid for each in reader(nvml).read(())] == ["GPU-a", "GPU-b"]


def test_the_driver_is_opened_once() -> None:
    nvml = FakeNvml(Device("GPU-a"))
    own = reader(nvml)
    for _ in range(3):
        assert own.read(())
    own.close()
    assert (nvml.inits, nvml.shutdowns) == (1, 1)


def test_of_a_shared_device_the_newest_share_of_the_program_counts() -> None:
    device = Device("GPU-a", busy=90, processes={1: GIB, 2: GIB, 7: 3 * GIB}, shares={1: 20, 7: 70})
    (own,) = reader(FakeNvml(device)).read({1, 2})
    assert (own.utilization, own.memory_bytes) == (0.2, 2 * GIB)
    device.shares = {}
    (own,) = reader(FakeNvml(device)).read({1, 2})
    assert own.utilization == 0.0, "nobody has computed"
    device.shares = None
    (own,) = reader(FakeNvml(device)).read({1, 2})
    assert own.utilization == 0.9, "the driver does not say whose it is"


def test_a_slice_tells_its_memory_alone() -> None:
    whole = Device("GPU-a", slices=[Device("MIG-1", None, GIB, 10 * GIB, None), Device("MIG-2")])
    (own,) = reader(FakeNvml(whole), NVIDIA_VISIBLE_DEVICES="MIG-1").read(())
    assert (own.uuid, own.utilization, own.power_watts) == ("MIG-1", None, None)
    assert (own.memory_bytes, own.memory_total_bytes) == (GIB, 10 * GIB)


@pytest.mark.parametrize(
    "nvml",
    [
        pytest.param(None, id="no library"),
        pytest.param(FakeNvml(init_error=FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND), id="no driver"),
        pytest.param(FakeNvml(init_error=FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED), id="not loaded"),
        pytest.param(FakeNvml(), id="no device"),
    ],
)
def test_what_is_not_there_is_asked_for_once_and_said_quietly(
    nvml: FakeNvml | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own, tries = NvmlReader({}, lambda: nvml), 5
    for _ in range(tries):
        assert own.read(()) == ()
    assert own.is_absent
    assert nvml is None or nvml.inits == 1
    assert warnings(caplog) == []
    assert len([each for each in caplog.records if "no GPU" in each.message]) == int(bool(nvml))


def test_a_library_that_is_not_installed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    own = NvmlReader({})
    assert own.read(()) == ()
    assert own.is_absent


def test_a_lost_device_is_told_once_and_looked_for_again_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost, clock = Device("GPU-a", error=FakeNvml.NVML_ERROR_GPU_IS_LOST), Clock()
    nvml = FakeNvml(lost, Device("GPU-b"))
    own = reader(nvml, clock)
    opened = []
    for second in range(200):
        clock.now = float(second)
        assert [each.uuid for each in own.read(())] == ["GPU-b"], "the other one is read on"
        opened.append(nvml.inits)
    assert len(warnings(caplog)) == 1
    first = int(FIRST_RETRY_SECONDS)
    assert (opened[first - 1], opened[first], opened[-1]) == (1, 2, 4)
    assert nvml.shutdowns == nvml.inits - 1

    lost.error = None
    clock.now = 1000.0
    assert len(own.read(())) == 2
    lost.error = FakeNvml.NVML_ERROR_GPU_IS_LOST
    own.read(())
    assert len(warnings(caplog)) == 2, "it came back in between: that is news"


def test_a_device_that_is_lost_from_the_start_keeps_its_index(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost, clock = Device("GPU-a", error=FakeNvml.NVML_ERROR_GPU_IS_LOST), Clock()
    nvml = FakeNvml(lost, Device("GPU-b"))
    others = reader(nvml, clock, CUDA_VISIBLE_DEVICES="1")
    assert [each.uuid for each in others.read(())] == ["GPU-b"]
    assert warnings(caplog) == [], "it is none of the program's"
    own = reader(nvml, clock, CUDA_VISIBLE_DEVICES="0")
    assert own.read(()) == ()
    assert (len(warnings(caplog)), own.is_absent) == (1, False)
    lost.error, clock.now = None, FIRST_RETRY_SECONDS
    assert [each.uuid for each in own.read(())] == ["GPU-a"]


def test_a_driver_that_fails_is_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    nvml = FakeNvml(Device("GPU-a"), init_error=999)
    own = reader(nvml, clock)
    assert [own.read(()) for _ in range(9)] == [()] * 9
    assert (nvml.inits, len(warnings(caplog)), own.is_absent) == (1, 1, False)
    nvml.init_error, clock.now = None, FIRST_RETRY_SECONDS
    assert len(own.read(())) == 1


def test_devices_that_are_all_gone_are_looked_for_again() -> None:
    device, clock = Device("GPU-a", error=FakeNvml.NVML_ERROR_GPU_IS_LOST), Clock()
    nvml = FakeNvml(device)
    own = reader(nvml, clock)
    assert own.read(()) == ()
    nvml.devices = []
    clock.now = FIRST_RETRY_SECONDS
    assert own.read(()) == ()
    assert not own.is_absent
    nvml.devices, device.error = [device], None
    clock.now = 10 * FIRST_RETRY_SECONDS
    assert len(own.read(())) == 1
