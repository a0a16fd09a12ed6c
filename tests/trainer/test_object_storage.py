"""Checkpoints in object storage, and storage that refuses: the training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.trainer import elastic
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError, read
from penstock.trainer.object_storage import ObjectStorage
from penstock.trainer.snapshot.memory import SnapshotMemory
from tests.data.planes import eventually

fsspec = pytest.importorskip("fsspec")
URL = "PENSTOCK_CHECKPOINT_URL"


class Refusing(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # has no types
    """Object storage that answers 403, or hangs, for as long as a test says so."""

    protocol = "refusing"
    store: dict[str, Any] = {}  # noqa: RUF012  (as in the class above)
    pseudo_dirs: list[str] = [""]  # noqa: RUF012  (as above)
    refuses = False
    free = threading.Event()
    free.set()

    @classmethod
    def _judge(cls) -> None:
        assert cls.free.wait(60)
        if cls.refuses:
            raise PermissionError("403: AccessDenied: s3:PutObject on bucket/run")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._judge()
        super().makedirs(path, exist_ok)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._judge()
        return super().ls(path, detail, **options)


@pytest.fixture(autouse=True)
def storage() -> Iterator[type[Refusing]]:
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    Refusing.store.clear()
    Refusing.pseudo_dirs[:] = [""]
    yield Refusing
    Refusing.refuses = False
    Refusing.free.set()


def names_in(url: str) -> list[str]:
    found, folder = fsspec.core.url_to_fs(url)
    return sorted(name.rsplit("/", 1)[-1] for name in found.ls(folder, detail=False))


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((50,), float(step))}


def behind(folder: Path, url: str, **options: Any) -> CheckpointDir:
    storage = ObjectStorage(url, 2, (0.05,), **options)
    return CheckpointDir(folder, 2, 20, memory=SnapshotMemory(), storage=storage)


def train(folder: Path, stop_after: int = 99) -> list[int]:
    model, numbers = torch.nn.Linear(4, 1), []
    session = elastic.session(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset_size=40,
        global_batch=4,
        epochs=1,
        checkpoint_dir=folder,
        checkpoint_every_steps=1,
    )
    with session:
        for step in session:
            numbers.append(step.number)
            for micro in step:
                micro.backward(model(torch.ones(len(micro), 4)).square().mean())
            step.commit()
            if len(numbers) == stop_after:
                assert session._checkpoints is not None
                session._checkpoints.wait()
                break
    return numbers


@pytest.mark.parametrize("scheme", ["file", "refusing"])
def test_a_session_elsewhere_goes_on_from_object_storage(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{scheme}://{tmp_path}/bucket/run"
    monkeypatch.setenv(URL, url)
    assert train(tmp_path / "one", 6) == list(range(6))
    assert names_in(url)
    newest = int(names_in(url)[-1][5:17])
    assert newest >= 5, "what waited gave way to what is newer"
    assert train(tmp_path / "two") == list(range(newest, 10)), "another machine, another disk"
    assert names_in(url)[-1] == "step-000000000010.penstock", "the trained model"
    assert len(names_in(url)) <= 3


def test_storage_that_answers_403_is_named_once_and_tried_again(
    tmp_path: Path, storage: type[Refusing], caplog: pytest.LogCaptureFixture
) -> None:
    storage.refuses = True
    folder = behind(tmp_path, "refusing://bucket/run")
    for step in (1, 2, 3):
        folder.save(step, state(step))
        eventually((tmp_path / f"step-{step:012d}.penstock").exists)
    eventually(folder.troubles)
    [trouble] = folder.troubles()
    assert trouble.reason == "CheckpointsNotWritten"
    assert "no checkpoint is copied to refusing://bucket/run: 403: AccessDenied" in trouble.message
    assert caplog.text.count("AccessDenied") == 1
    storage.refuses = False
    folder.wait()
    assert folder.troubles() == ()
    assert names_in("refusing://bucket/run") == ["step-000000000003.penstock"]


def test_a_training_goes_on_while_storage_refuses_and_when_it_does_at_the_start(
    tmp_path: Path,
    storage: type[Refusing],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(URL, "refusing://bucket/run")
    monkeypatch.setattr("penstock.trainer.elastic.open_folder", behind_of(tmp_path))
    storage.refuses = True
    threading.Timer(3, lambda: setattr(storage, "refuses", False)).start()
    assert train(tmp_path / "disk") == list(range(10))
    assert "no checkpoint is taken from refusing://bucket/run: 403: AccessDenied" in caplog.text
    assert "no checkpoint is copied to refusing://bucket/run: 403: AccessDenied" in caplog.text
    assert names_in("refusing://bucket/run")[-1] == "step-000000000010.penstock"


def behind_of(tmp_path: Path) -> Callable[[Path, int, bool], CheckpointDir]:
    return lambda folder, keep, is_sharded: behind(folder, "refusing://bucket/run")


def test_storage_that_hangs_holds_nothing_up(tmp_path: Path, storage: type[Refusing]) -> None:
    storage.free.clear()
    folder = behind(tmp_path, "refusing://bucket/run", copy_seconds=0.1)
    for step in (1, 2):
        folder.save(step, state(step))
        eventually((tmp_path / f"step-{step:012d}.penstock").exists)
    eventually(folder.troubles)
    assert "no answer within 0 s" in folder.troubles()[0].message
    assert not ObjectStorage("refusing://bucket/run", copy_seconds=0.1).fetch(1, tmp_path / "x")
    storage.free.set()
    folder.wait()
    assert names_in("refusing://bucket/run")[-1] == "step-000000000002.penstock"


def test_a_model_that_is_on_disk_alone_is_an_error_at_the_end(
    tmp_path: Path, storage: type[Refusing]
) -> None:
    storage.refuses = True
    folder = behind(tmp_path, "refusing://bucket/run")
    folder._write_seconds = 0.5
    folder.save(1, state(1))
    with pytest.raises(CheckpointError, match=r"model is on disk alone: .* 403: AccessDenied"):
        folder.wait()
    assert read(folder.list()[0].path)["step"] == 1


def test_a_torn_copy_gives_way_to_what_is_on_disk(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    folder = behind(tmp_path / "one", url)
    folder.save(7, state(7), wait=True)
    [copy] = (tmp_path / "bucket").iterdir()
    copy.write_bytes(copy.read_bytes()[:-9])
    other = behind(tmp_path / "two", url)
    CheckpointDir(tmp_path / "two", memory=SnapshotMemory()).save(3, state(3), wait=True)
    restored = other.stored.restore()
    assert restored is not None
    assert restored.step == 3


def test_a_url_without_a_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, "s3://bucket/run")
    monkeypatch.delenv("PENSTOCK_CHECKPOINT_DIR", raising=False)
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=f"{URL}: s3://bucket/run; .* give checkpoint_dir"):
        elastic.session(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset_size=4,
            global_batch=4,
            epochs=1,
        )


def test_what_is_said_of_a_url_has_no_credentials() -> None:
    url = "nosuch://me:secret@bucket/run?sig=secret"
    storage = ObjectStorage(url)
    said = storage._said(f"cannot reach {url}")
    assert "nosuch://***@bucket/run" in said
    assert "secret" not in said
