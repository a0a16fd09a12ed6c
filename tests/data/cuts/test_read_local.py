"""Files that data workers have from the program's process: the same batches, and no other file."""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.cache import interception
from penstock.data.consuming.consumer import Consumer
from penstock.data.cuts import reading
from penstock.data.cuts.reading import ReadLocalPipeline, folders_of, read_local, survey_reading
from penstock.data.errors import FrameError, NotCutError
from penstock.data.pipeline import Pipeline
from penstock.data.queue.served_files import ServedFiles
from penstock.data.serving.asked_files import MOST_TRIES, AskedFiles, read_there
from penstock.data.transport import messages
from penstock.data.transport.messages import PART_BYTES
from penstock.throughput.decision.cut_choice import (
    CutChoice,
    Phase,
    Reading,
    Window,
    choose_reading,
    watch,
)
from penstock.throughput.limits.cut import READ_LOCAL
from tests.data.planes import TOKEN, WORKER, consumer, end, eventually, freeze
from tests.fork_server import start

ELSEWHERE = (
    """
import builtins, io, os
plain, folder = builtins.open, os.environ["LACKS"]
def lacking(file, *more, **named):
    if str(file).startswith(folder):
        raise FileNotFoundError(2, "No such file or directory", file)
    return plain(file, *more, **named)
builtins.open = io.open = lacking
"""
    + WORKER
)
"""A data worker whose pod has not the volume that the files are on."""


class Files:
    """Of bytes; a sample is what is in one, and what is drawn."""

    def __init__(self, folder: Path, count: int, size: int = 1000) -> None:
        self.paths = [folder / f"{number % 3}" / f"{number}.bin" for number in range(count)]
        source = np.random.default_rng(3)
        for path in self.paths:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(source.bytes(size))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with self.paths[index].open("rb") as file:
            content = np.frombuffer(file.read(), np.uint8)
        return content * np.uint8(random.randrange(1, 9))


class Worked(Files):
    """Takes a while, so that it pays to have others do it."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        time.sleep(0.02)
        return sample


@contextmanager
def lacking(of: Consumer, folder: Path) -> Iterator[None]:
    made = start(["-c", ELSEWHERE, TOKEN, of.address, ""], env={**os.environ, "LACKS": str(folder)})
    try:
        eventually(lambda: of.workers, 60)
        yield
    finally:
        end(made)


def loader(dataset: Any, of: Consumer | None) -> Loader:
    return Loader(dataset, 4, seed=1, consumer=of)


@pytest.mark.slow
def test_a_data_worker_without_the_files_makes_the_same_batches_of_those_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Files(tmp_path, 60, size=PART_BYTES // 4 + 17)
    alone = [freeze(batch) for batch in loader(dataset, None)]
    monkeypatch.setenv(names.DATA_CUT, READ_LOCAL)
    found: list[Any] = []
    with consumer(share_memory=False) as of, lacking(of, tmp_path):
        for batch in loader(dataset, of):
            if len(found) == 2:
                eventually(lambda: of.counts.remote.batches >= 3, 60)
            found.append(freeze(batch))
        assert of.counts.cut == READ_LOCAL
    assert found == alone
    assert "is not cut" not in caplog.text


@pytest.mark.slow
def test_nobody_asked_and_the_training_process_reads_for_a_data_worker_that_cannot(
    tmp_path: Path,
) -> None:
    dataset = Worked(tmp_path, 4000)
    batches = loader(dataset, None)
    with consumer(share_memory=False) as of, lacking(of, tmp_path):
        served, alone = iter(loader(dataset, of)), iter(batches)
        for _ in range(900):
            assert freeze(next(served)) == freeze(next(alone))
            if of.counts.remote.batches > 8:
                break
        assert of.counts.remote.batches > 8
        assert of.counts.cut == READ_LOCAL


def asked_of(served: ServedFiles) -> tuple[AskedFiles, Any, list[Any]]:
    """A data worker's side that is answered at once, and all that it asked for."""
    files, sent = AskedFiles(), []

    def send(kind: int, header: Any) -> None:
        assert kind == messages.READ
        sent.append(header)
        found = served.read(*header)
        path, offset, _ = header
        files.put(path, offset, found.total, found.error, found.version, memoryview(found.part))

    return files, send, sent


def test_what_a_thread_opens_comes_from_there_and_what_is_outside_does_not(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "a.txt").write_text("zwölf\nboxer\n", encoding="utf-8")
    (there / "large").write_bytes(bytes(2 * PART_BYTES + 5))
    (there / "empty").touch()
    (here / "b.txt").write_text("b")
    served = ServedFiles()
    served.allow([str(there)])
    files, send, sent = asked_of(served)
    with read_there(files, send, (str(there),), str(tmp_path)):
        with open(there / "a.txt", encoding="utf-8") as file:  # noqa: PTH123 - as programs do
            assert file.readlines() == ["zwölf\n", "boxer\n"]
        assert (there / "large").read_bytes() == bytes(2 * PART_BYTES + 5)
        assert (there / "empty").read_bytes() == b""
        with open("there/a.txt", "rb") as file:  # noqa: PTH123 - relative to the program's folder
            assert file.name == "there/a.txt"
            file.seek(-1, os.SEEK_END)
            assert file.read() == b"\n"
            with pytest.raises(OSError):
                file.fileno()
        asked = len(sent)
        assert (here / "b.txt").read_text() == "b"
        (there / "new").write_text("written here")
        assert len(sent) == asked
        with pytest.raises(FileNotFoundError) as error:
            (there / "missing").read_bytes()
        assert error.value.filename == str(there / "missing")
    asked = len(sent)
    assert (there / "a.txt").read_bytes()
    assert len(sent) == asked


def test_only_files_below_what_the_loader_reads_are_served(tmp_path: Path) -> None:
    root, secret = tmp_path / "data", tmp_path / "secret"
    root.mkdir()
    secret.write_text("secret")
    (root / "link").symlink_to(secret)
    os.mkfifo(root / "pipe")
    (root / "a").write_text("abc")
    served = ServedFiles()
    assert served.read(str(root / "a"), 0, 10).error == errno.EACCES, "nothing is read here"
    served.allow([str(root)])
    assert served.read(str(root / "a"), 1, 10)[:3] == (b"bc", 3, 0)
    for path in (secret, root / "link", root / ".." / "secret", root / "pipe", root):
        assert served.read(str(path), 0, 10).error == errno.EACCES
    assert served.read(str(root / "b"), 0, 10).error == errno.ENOENT
    for asked in (("", 0, 1), (5, 0, 1), ("a\0b", 0, 1), ("/a", -1, 1), ("/a", 0, PART_BYTES + 1)):
        with pytest.raises(FrameError):
            served.read(*asked)


def replaced(path: Path, content: bytes) -> None:
    """As most programs and `kubectl cp` do it: another file takes the name."""
    new = path.with_name("new")
    new.write_bytes(content)
    new.rename(path)


def overwritten(path: Path, content: bytes) -> None:
    """In place: the same file, of the same length."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 10_000_000, before + 10_000_000))  # the clock may not have ticked


@pytest.mark.parametrize("change", [replaced, overwritten])
@pytest.mark.parametrize("times", [1, MOST_TRIES])
def test_what_changes_between_two_parts_is_never_mixed(
    tmp_path: Path, change: Callable[[Path, bytes], None], times: int
) -> None:
    path = tmp_path / "large"
    versions = [bytes([number]) * (3 * PART_BYTES) for number in range(times + 1)]
    path.write_bytes(versions[0])
    served = ServedFiles()
    served.allow([str(tmp_path)])
    files, send, sent = asked_of(served)

    def changing(kind: int, header: Any) -> None:
        if header[1] == PART_BYTES and len(versions) > 1:
            del versions[0]
            change(path, versions[0])
        send(kind, header)

    if times < MOST_TRIES:
        assert files.read(changing, str(path)) == versions[-1]
        assert len(sent) == 2 + 3
    else:
        with pytest.raises(OSError, match="changed while it was read") as error:
            files.read(changing, str(path))
        assert (error.value.errno, error.value.filename) == (errno.ESTALE, str(path))
        assert len(sent) == 2 * MOST_TRIES, "it gave up in time"


def test_a_file_that_is_written_to_while_one_part_is_read_is_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    served = ServedFiles()
    served.allow([str(tmp_path)])
    plain = os.pread

    def pread(file: int, size: int, offset: int) -> bytes:
        content = plain(file, size, offset)
        overwritten(path, b"after!")
        monkeypatch.setattr(os, "pread", plain)
        return content

    monkeypatch.setattr(os, "pread", pread)
    assert served.read(str(path), 0, 10) == (b"", 0, errno.ESTALE, "")
    files, send, sent = asked_of(served)
    monkeypatch.setattr(os, "pread", pread)
    assert files.read(send, str(path)) == b"after!"
    assert len(sent) == 2


def test_a_part_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    served = ServedFiles()
    served.allow([str(tmp_path)])

    def asked() -> list[int]:
        names = ("a", "missing", ".", "a")
        return [served.read(str(tmp_path / name), 0, 3).error for name in names]

    def failing(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    descriptors = Path("/proc/self/fd")
    before = sorted(one.name for one in descriptors.iterdir())
    assert asked() == [0, errno.ENOENT, errno.EACCES, 0]
    monkeypatch.setattr(os, "pread", failing)
    assert asked() == [errno.EIO, errno.ENOENT, errno.EACCES, errno.EIO]
    assert sorted(one.name for one in descriptors.iterdir()) == before


def test_a_connection_that_ends_is_an_error_of_reading() -> None:
    files = AskedFiles()
    with pytest.raises(OSError, match="did not answer"):
        files.read(lambda kind, header: files.close(), "/data/a")


def test_what_is_read_is_found_by_making_one_batch(tmp_path: Path) -> None:
    dataset = Files(tmp_path, 9)
    pipeline = Pipeline(dataset, list)
    reading, roots = survey_reading(pipeline, 1, [0, 1, 2, 3])
    assert roots == (str(tmp_path),)
    assert reading.read_bytes == 4000
    assert 4000 <= reading.batch_bytes < 4200
    cut = read_local(pipeline, roots)
    assert isinstance(cut, ReadLocalPipeline)
    assert freeze(cut.make(1, [0, 5])) == freeze(pipeline.make(1, [0, 5]))
    with pytest.raises(NotCutError, match="opens no file"):
        survey_reading(Pipeline([1, 2], list), 1, [0])
    assert folders_of(["/a/x", "/b/y", "/b/z"]) == ("/a", "/b")


WAITING = Window(
    seconds=10.0,
    taken=40,
    waited_seconds=8.0,
    received_bytes=40_000_000,
    remote_batches=40,
    remote_seconds=9.8,
    data_workers=1,
    cores=2.0,
    workers=0,
    remote_blocked_seconds=9.0,
)
CHEAP = Reading(blocked_seconds=0.002, cpu_seconds=0.02, read_bytes=1e6, batch_bytes=1e6)


def test_where_data_workers_wait_for_files_that_are_near_here_they_are_read_here() -> None:
    asking = watch(CutChoice(), WAITING)
    assert asking.phase is Phase.ASKING_READING
    choice = choose_reading(asking, WAITING, CHEAP)
    assert (choice.phase, choice.cut) == (Phase.CHANGING, READ_LOCAL)
    assert choice.promised > 2 * choice.before
    trying = watch(choice, WAITING)
    back = watch(trying, replace(WAITING, taken=50))
    assert (back.phase, back.cut) == (Phase.DONE, ""), "half of the promise is missing"
    assert watch(trying, replace(WAITING, taken=180)).cut == READ_LOCAL


def test_where_reading_is_as_dear_here_they_go_on_and_are_not_asked_again() -> None:
    asking = watch(CutChoice(), WAITING)
    found = choose_reading(asking, WAITING, replace(CHEAP, blocked_seconds=0.225))
    assert (found.phase, found.cut) == (Phase.WATCHING, "")
    assert watch(found, WAITING).phase is Phase.WATCHING


def test_data_workers_that_lack_the_files_are_told_apart_from_those_that_compute() -> None:
    lacking = replace(
        WAITING, remote_batches=0, remote_seconds=0.0, remote_blocked_seconds=0.0, failed=3
    )
    asking = watch(CutChoice(), lacking)
    assert asking.phase is Phase.ASKING_READING
    slow = Reading(blocked_seconds=0.002, cpu_seconds=0.2, read_bytes=1e6, batch_bytes=1e6)
    choice = choose_reading(asking, replace(lacking, data_workers=4), slow)
    assert choice.cut == READ_LOCAL
    assert "lack the files" in choice.why
    for other in (
        replace(WAITING, remote_blocked_seconds=1.0),
        replace(WAITING, waited_seconds=0.1),
        replace(WAITING, data_workers=0),
        replace(lacking, failed=2),
    ):
        assert watch(CutChoice(), other).phase is not Phase.ASKING_READING


@given(
    st.floats(0, 10),
    st.floats(0, 10),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.integers(0, 100),
    st.integers(1, 64),
    st.integers(0, 8),
)
def test_reading_here_is_never_chosen_without_a_promise(
    blocked: float, cpu: float, read: float, size: float, made: int, data_workers: int, workers: int
) -> None:
    window = replace(WAITING, remote_batches=made, data_workers=data_workers, workers=workers)
    choice = CutChoice(Phase.ASKING_READING, before=4.0, reading_asked=True)
    found = choose_reading(choice, window, Reading(blocked, cpu, read, size))
    assert found.phase in (Phase.CHANGING, Phase.WATCHING)
    assert not found.cut or found.promised >= 1.1 * found.before


def test_a_file_beside_the_root_does_not_serve_the_whole_machine(tmp_path: Path) -> None:
    assert folders_of(["/sample.bin"]) == ()
    assert folders_of(["/sample.bin", "/data/a.bin"]) == ("/data",)
    (tmp_path / "root").symlink_to("/")
    files = ServedFiles()
    files.allow(["/", str(tmp_path / "root")])
    assert files.read("/etc/passwd", 0, 10).error == errno.EACCES


def test_keys_and_mounted_secrets_below_a_folder_of_samples_are_not_served(tmp_path: Path) -> None:
    for name in ("data/one.bin", ".ssh/id", "secret/..2026/token"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"abc")
    (tmp_path / "secret/token").symlink_to(tmp_path / "secret/..2026/token")
    served = ServedFiles()
    served.allow([str(tmp_path), "/proc"])
    assert served.read(str(tmp_path / "data/one.bin"), 0, 8).part == b"abc"
    for name in (".ssh/id", "secret/token"):
        assert served.read(str(tmp_path / name), 0, 8).error == errno.EACCES
    assert served.read("/proc/self/environ", 0, 8).error == errno.EACCES


def test_what_replaces_open_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (builtins, io):
        monkeypatch.setattr(module, "open", open)  # put back at last, whatever is on top of it
    (tmp_path / "data").touch()
    with reading._opened() as paths:
        interception.install("@nowhere", [str(tmp_path / "cached")])
        replaced = builtins.open
        (tmp_path / "data").open().close()
    assert builtins.open is io.open is replaced
    assert paths == [str(tmp_path / "data")]
    (tmp_path / "data").open().close()
    assert paths == [str(tmp_path / "data")], "nothing is watched any more"
    interception.uninstall()
