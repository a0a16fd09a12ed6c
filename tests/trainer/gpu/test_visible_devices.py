"""Which devices are the program's, by the variables that say so."""

from __future__ import annotations

import pytest

from penstock.trainer.gpu.visible_devices import ListedDevice, visible_devices

WHOLE = [ListedDevice(f"GPU-{letter}1-{letter}2") for letter in "abcd"]
CUT = [ListedDevice("GPU-a", ("MIG-a1", "MIG-a2")), ListedDevice("GPU-b")]
ALL = tuple(device.uuid for device in WHOLE)


@pytest.mark.parametrize(
    ("named", "indices"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("2, 0", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,9,2", [1]),
        ("1,x,2", [1]),
        ("1,1", [1]),
        ("GPU-c1-c2,0", [2, 0]),
        ("GPU-d", [3]),
        ("GPU-", []),
        ("MIG-a1", []),
    ],
)
def test_cuda_reads_indices_and_uuids_until_one_fits_nothing(
    named: str, indices: list[int]
) -> None:
    # It says so whatever the container runtime was told.
    environ = {"CUDA_VISIBLE_DEVICES": named, "NVIDIA_VISIBLE_DEVICES": "void"}
    assert visible_devices(environ, WHOLE) == tuple(ALL[index] for index in indices)


@pytest.mark.parametrize(
    ("given", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("all", [0, 1, 2, 3]),
        ("void", []),
        ("none", []),
        ("", []),
        ("GPU-b,GPU-a", [1, 0]),
        ("4,5,6,7", [0, 1, 2, 3]),
        ("1,3", [1, 3]),
        ("GPU-gone", []),
    ],
)
def test_the_container_runtime_has_hidden_the_others_already(
    given: str | None, indices: list[int]
) -> None:
    environ = {} if given is None else {"NVIDIA_VISIBLE_DEVICES": given}
    assert visible_devices(environ, WHOLE) == tuple(ALL[index] for index in indices)


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({}, ("MIG-a1", "MIG-a2", "GPU-b")),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ("MIG-a1", "MIG-a2")),
        ({"CUDA_VISIBLE_DEVICES": "MIG-a2"}, ("MIG-a2",)),
        ({"NVIDIA_VISIBLE_DEVICES": "MIG-a1"}, ("MIG-a1",)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, ("GPU-b",)),
    ],
)
def test_a_device_that_is_cut_up_stands_for_its_slices(
    environ: dict[str, str], uuids: tuple[str, ...]
) -> None:
    assert visible_devices(environ, CUT) == uuids
