"""Lengths of samples: what counts as one, where they are known from, and what is said else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.data.protocol import BucketOptions
from penstock.data.torch_loading.lengths import (
    MAX_FILE_BYTES,
    KnownLengths,
    LengthsError,
    length_of,
    read_lengths,
)

EDGES = (4, 8)


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        (torch.zeros(7, 3), 7),
        ((torch.zeros(5), 1), 5),
        ((np.arange(6), "a long label"), 6),
        ({"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "label": 0}, 3),
        ({"a": [1, 2], "b": {"c": np.zeros((9, 2))}}, 9),
        (("four", 1), 4),
        ("words", 5),
        ([1, 2, 3, 4], 4),
        ([], 0),
    ],
)
def test_the_longest_first_dimension_counts(sample: Any, length: int) -> None:
    assert length_of(sample) == length


@pytest.mark.parametrize("sample", [3, (1, 2.5), torch.tensor(4), None])
def test_what_has_no_length_is_named(sample: Any) -> None:
    with pytest.raises(LengthsError, match=f"a sample is a {type(sample).__qualname__}"):
        length_of(sample)


class Texts:
    def __init__(self) -> None:
        self.lengths = [3, 9, 1]

    def __len__(self) -> int:
        return 3

    def sizes(self) -> list[int]:
        return [1, 2, 3]


def unasked() -> Any:
    raise AssertionError("nothing was to be measured")


def test_lengths_are_an_attribute_or_what_a_method_returns() -> None:
    known, texts = KnownLengths(), Texts()
    found = known.buckets(texts, BucketOptions(boundaries=EDGES, lengths="lengths"), unasked)
    assert found.lengths.tolist() == [3, 9, 1]
    found = known.buckets(texts, BucketOptions(boundaries=EDGES, lengths="sizes"), unasked)
    assert found.lengths.tolist() == [1, 2, 3]


def test_they_are_read_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([5, 6, 7], np.int32))
    asked = BucketOptions(boundaries=EDGES, lengths=str(tmp_path / "a.npy"))
    assert KnownLengths().buckets(Texts(), asked, unasked).lengths.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sizes.more", "sizes.more: a method has no attribute 'more'"),
        ("missing", "missing: a Texts has no attribute 'missing'"),
        ("./nowhere.npy", "nowhere.npy: .*; write it with numpy.save"),
        ("__doc__", "__doc__: lengths: an array"),
    ],
)
def test_what_cannot_be_read_is_said(source: str, said: str) -> None:
    asked = BucketOptions(boundaries=EDGES, lengths=source)
    with pytest.raises(LengthsError, match=said):
        KnownLengths().buckets(Texts(), asked, unasked)


def test_lengths_of_another_number_of_samples_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1, 6))
    asked = BucketOptions(boundaries=EDGES, lengths=str(tmp_path / "a.npy"))
    with pytest.raises(LengthsError, match="5 lengths; the dataset has 3 samples"):
        KnownLengths().buckets(Texts(), asked, unasked)


def test_a_file_that_holds_objects_is_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, {}, {}], object), allow_pickle=True)
    with pytest.raises(LengthsError, match=r"numpy\.save"):
        read_lengths(tmp_path / "a.npy")


def header_alone(file: Path) -> None:
    with file.open("wb") as opened:
        said = {"descr": "<i8", "fortran_order": False, "shape": (1 << 46,)}
        np.lib.format.write_array_header_1_0(opened, said)


def long(file: Path) -> None:
    file.touch()
    os.truncate(file, MAX_FILE_BYTES + 1)


DAMAGE = {
    "a FIFO": (os.mkfifo, "not a regular file"),
    "a folder": (Path.mkdir, "directory"),
    "a loop": (lambda file: file.symlink_to(file.name), "symbolic links"),
    "a device": (lambda file: file.symlink_to("/dev/zero"), "not a regular file"),
    "a header alone": (header_alone, ""),
    "an archive that is none": (lambda file: file.write_bytes(b"PK\x03\x04" * 9), "zip"),
    "a header that is none": (lambda file: file.write_bytes(b"\x93NUMPY\x01\x00\x02\x00{("), ""),
    "empty": (Path.touch, ""),
    "too long": (long, f"{MAX_FILE_BYTES} at most"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_file_that_is_none_is_told_by_name(tmp_path: Path, how: str) -> None:
    damage, said = DAMAGE[how]
    damage(tmp_path / "a.npy")
    with pytest.raises(LengthsError, match=rf"a.npy: .*{said}.*; write it with numpy\.save"):
        read_lengths(tmp_path / "a.npy")


class Strange(Texts):
    grown = torch.ones(3, requires_grad=True)

    @property
    def broken(self) -> Any:
        raise OSError("no such shard")

    def asks(self, more: int) -> Any:
        raise AssertionError("it has no such argument")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("broken", "broken: OSError: no such shard"),
        ("asks", "asks: TypeError: .*more"),
        ("grown", "grown: RuntimeError: .*grad"),
    ],
)
def test_a_dataset_that_raises_is_told(source: str, said: str) -> None:
    with pytest.raises(LengthsError, match=said):
        KnownLengths().buckets(Strange(), BucketOptions(boundaries=EDGES, lengths=source), unasked)


def test_what_was_kept_and_cannot_be_is_measured_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = BucketOptions(boundaries=EDGES)
    KnownLengths(tmp_path).buckets(Texts(), asked, lambda: np.array([4, 5, 6]))
    [file] = tmp_path.iterdir()
    for wrong in ([4, 5], [4, 5, -6], [4.0, 5.0, 6.0]):
        np.save(file, wrong)
        found = KnownLengths(tmp_path).buckets(Texts(), asked, lambda: np.array([4, 5, 6]))
        assert found.lengths.tolist() == [4, 5, 6]
        assert f"are measured again: {file}" in caplog.text
        caplog.clear()
        assert np.load(file).tolist() == [4, 5, 6], "it is right from then on"


def test_what_was_measured_is_kept_for_the_jobs_other_processes(tmp_path: Path) -> None:
    asked, passes = BucketOptions(boundaries=EDGES), []

    def measure() -> Any:
        passes.append(1)
        return np.array([4, 5, 6])

    folder = tmp_path / "checkpoints"
    first, texts = KnownLengths(folder), Texts()
    assert first.buckets(texts, asked, measure).lengths.tolist() == [4, 5, 6]
    assert first.buckets(texts, asked, measure).lengths.tolist() == [4, 5, 6]
    assert len(passes) == 1
    assert KnownLengths(folder).buckets(Texts(), asked, measure).lengths.tolist() == [4, 5, 6]
    assert len(passes) == 1, "another process found the file"
    [file] = folder.iterdir()
    file.write_bytes(file.read_bytes()[:40])
    assert KnownLengths(folder).buckets(Texts(), asked, measure).lengths.tolist() == [4, 5, 6]
    assert len(passes) == 2, "a damaged file is measured again"
    changed = Texts()
    changed.lengths.append(2)
    KnownLengths(folder).buckets(changed, asked, measure)
    assert len(passes) == 3, "other data have other lengths"


def test_a_folder_that_cannot_be_written_costs_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    known = KnownLengths(tmp_path / "file" / "below")
    asked = BucketOptions(boundaries=EDGES)
    assert len(known.buckets(Texts(), asked, lambda: np.array([1, 2, 3])).lengths) == 3
    assert "are not kept" in caplog.text
