"""The file of a whole model: streamed, whole or passed over, and for any number of partitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec
from penstock.parameter_server.arrays import sizes_of
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFiles, Saved
from tests.trainer.small_disk import read_only, small_disk

DATA = DataSpec(dataset_size=100, global_batch=10, epochs=2, slots_per_step=1)


def model(partitions: int = 8, kind: OptimizerKind = OptimizerKind.ADAGRAD) -> ModelSpec:
    return ModelSpec(
        spaces=(
            SpaceSpec(dim=3, tables=(TableSpec(name="a", rows=17), TableSpec(name="b", rows=4))),
            SpaceSpec(dim=1, tables=(TableSpec(name="c", rows=2),)),
        ),
        dense=(DenseSpec(name="w", shape=(5, 3)),),
        optimizer=OptimizerSpec(kind=kind, learning_rate=0.1),
        partitions=partitions,
    )


def trained(spec: ModelSpec) -> Store:
    store = Store(spec, range(spec.partitions))
    store.initialise()
    chance = np.random.default_rng(0)
    for slot in range(4):
        rows = np.sort(chance.permutation(21)[:9])
        gradients = [(0, rows, chance.standard_normal((9, 3), np.float32))]
        store.push(slot, gradients, chance.standard_normal(15, np.float32))
    return store


def save(files: ModelFiles, store: Store) -> Saved:
    partitions = (store.partition(p) for p in range(store.spec.partitions))
    return files.write(store.applied, store.pushes, partitions)


def whole(store: Store) -> list[NDArray[np.float32]]:
    return [
        *(store.pull(n, np.arange(space.rows)) for n, space in enumerate(store.spec.spaces)),
        store.begin(),
    ]


def same(one: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_model_comes_back_as_it_was_with_what_it_has_seen(tmp_path: Path) -> None:
    spec = model()
    store = trained(spec)
    files = ModelFiles(tmp_path, spec, DATA)
    assert files.newest() is None
    saved = save(files, store)
    assert saved.slots == 4
    newest = files.newest()
    assert newest == saved
    file = files.open(newest)
    assert (list(file.applied), file.pushes) == ([(0, 4)], 4)
    for partition in range(spec.partitions):
        flat = [array.ravel() for array in store.partition(partition)]
        assert same(file.partition(partition), flat)


@settings(max_examples=40, deadline=None)
@given(there=st.integers(1, 30), here=st.integers(1, 30), kind=st.sampled_from(list(OptimizerKind)))
def test_a_checkpoint_of_another_number_of_partitions_is_divided_anew(
    tmp_path_factory: pytest.TempPathFactory, there: int, here: int, kind: OptimizerKind
) -> None:
    folder = tmp_path_factory.mktemp("model")
    store = trained(model(there, kind))
    saved = save(ModelFiles(folder, store.spec, DATA), store)
    other = Store(model(here, kind), range(here))
    file = ModelFiles(folder, other.spec, DATA).open(saved)
    for partition in range(here):
        other.set_partition(partition, file.partition(partition))
    assert same(whole(other), whole(store))
    for one in (other, store):  # the optimizer's state came along
        one.push(9, [(0, np.arange(21), np.ones((21, 3), np.float32))], np.ones(15, np.float32))
    assert same(whole(other), whole(store))


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_is_passed_over_for_the_one_before_it(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = trained(model())
    files = ModelFiles(tmp_path, store.spec, DATA)
    good = save(files, store)
    store.push(7, [], None)
    bad = save(files, store)
    assert files.newest() == bad
    content = bytearray(bad.path.read_bytes())
    content[len(content) // 2] ^= 1
    bad.path.write_bytes({"cut": content[:-40], "flip": content, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert files.newest() == good
    assert str(bad.path) in caplog.text


def test_a_save_that_fails_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    store = trained(model())
    files = ModelFiles(tmp_path, store.spec, DATA, keep=2)
    good = save(files, store)
    with pytest.raises(CheckpointError, match="3 partitions of 8 were given"):
        files.write(RangeSet([(0, 9)]), 9, (store.partition(p) for p in range(3)))
    with pytest.raises(CheckpointError, match=r"partition 1 has arrays of \[9, 9"):
        files.write(RangeSet([(0, 9)]), 9, (store.partition(0) for _ in range(8)))
    assert list(tmp_path.glob("slots-*")) == [good.path]


def test_only_the_newest_stay(tmp_path: Path) -> None:
    store = trained(model())
    files = ModelFiles(tmp_path, store.spec, DATA, keep=2)
    for slot in range(10, 14):
        store.push(slot, [], None)
        save(files, store)
    assert [saved.slots for saved in files.list()] == [8, 7]
    with pytest.raises(ValueError, match="keep: 0"):
        ModelFiles(tmp_path, store.spec, DATA, keep=0)


def test_damaged_files_that_saw_more_push_out_nothing_newer(tmp_path: Path) -> None:
    store = trained(model())
    files = ModelFiles(tmp_path, store.spec, DATA, keep=2)
    good = save(files, store)
    damaged = [tmp_path / f"slots-{slots:012d}.penstock" for slots in (20, 30, 40)]
    for path in damaged:
        path.write_bytes(good.path.read_bytes()[:-1])
    store.push(10, [], None)
    newer = save(files, store)
    assert files.newest() == newer
    assert sorted(tmp_path.glob("slots-*")) == sorted([good.path, newer.path, *damaged])


def test_another_model_and_other_data_are_refused_by_name(tmp_path: Path) -> None:
    store = trained(model())
    saved = save(ModelFiles(tmp_path, store.spec, DATA), store)
    other = store.spec.model_dump()
    other["dense"] = [{"name": "v", "shape": [5, 3]}]
    with pytest.raises(CheckpointError, match="another model: now parameter"):
        ModelFiles(tmp_path, ModelSpec.model_validate(other), DATA).open(saved)
    data = DATA.model_copy(update={"seed": 7})
    with pytest.raises(CheckpointError, match="seed is 7 now and 0 in it"):
        ModelFiles(tmp_path, store.spec, data).open(saved)
    faster = store.spec.model_dump()
    faster["optimizer"]["learning_rate"] = 0.5
    assert ModelFiles(tmp_path, ModelSpec.model_validate(faster), DATA).open(saved).pushes == 4


@pytest.mark.parametrize("content", [b"", b"PNSTKPS1", b"x" * 100, b"PNSTKPS1" + b"\xff" * 90])
def test_what_is_no_checkpoint_is_said(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "slots-000000000001.penstock"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(path)):
        ModelFiles(tmp_path, model(), DATA).open(Saved(path, 1))


def test_another_version_is_said(tmp_path: Path) -> None:
    store = trained(model())
    saved = save(files := ModelFiles(tmp_path, store.spec, DATA), store)
    saved.path.write_bytes(saved.path.read_bytes().replace(b"PNSTKPS1", b"PNSTKPS4", 1))
    with pytest.raises(CheckpointError, match="of format 4, and this release reads 1: take the"):
        files.open(saved)


def test_a_disk_that_became_read_only_is_no_wrong_folder(tmp_path: Path) -> None:
    store = trained(model())
    with small_disk(tmp_path / "disk", 512) as disk:
        files = ModelFiles(disk, store.spec, DATA)
        with read_only(disk), pytest.raises(CheckpointError, match="Read-only file system"):
            files.check_folder()
        saved = save(files, store)
        with read_only(disk):
            files.check_folder()
            assert files.newest() == saved
            with pytest.raises(OSError, match="Read-only file system"):
                save(files, store)


def test_sizes_are_those_of_the_store() -> None:
    for kind in OptimizerKind:
        spec = model(5, kind)
        store = Store(spec, range(5))
        for partition in range(5):
            sizes = [array.size for array in store.partition(partition)]
            assert sizes == sizes_of(spec, partition)
