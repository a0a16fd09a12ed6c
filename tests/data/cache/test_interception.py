"""Programs that know nothing of the cache read the same bits through it."""

# ruff: noqa: PTH123, SIM115, SIM117 - what open() itself gives is what is looked at

from __future__ import annotations

import builtins
import contextlib
import io
import json
import mmap
import os
import pathlib
import pickle
import random
import sqlite3
import sys
import textwrap
import timeit
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.data.cache.interception import Interception, install, installed, uninstall
from penstock.data.cache.program import files as program_files
from tests.data.cache.daemons import Daemon, daemon, place

PLAIN = builtins.open


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cached")
    text = "one\ntwo\r\nthree ä ö\rfour\n" * 500
    (made / "text.txt").write_text(text, encoding="utf-8", newline="")
    (made / "bytes.bin").write_bytes(random.Random(1).randbytes(200_000))
    (made / "empty.bin").write_bytes(b"")
    (made / "a.json").write_text(json.dumps({"a": list(range(1000))}))
    np.save(made / "a.npy", np.arange(30_000, dtype=np.int32).reshape(100, 300))
    np.savez(made / "a.npz", a=np.arange(10), b=np.ones((3, 4)))
    with zipfile.ZipFile(made / "a.zip", "w") as packed:
        packed.writestr("inner.txt", "inner" * 100)
    (made / "a.pickle").write_bytes(pickle.dumps({"x": [1, 2, 3]}))
    return made


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Daemon]:
    with daemon(place(), folder, memory=8 << 20) as one:
        yield one


@pytest.fixture
def cached(running: Daemon, folder: Path) -> Iterator[Interception]:
    yield install(running.place, [str(folder)])
    uninstall()


def picture(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for name, mode in (("a.png", "RGB"), ("a.jpg", "RGB"), ("a.bmp", "RGB")):
        pixels = np.random.default_rng(1).integers(0, 255, (64, 48, 3), np.uint8)
        if not (folder / name).exists():
            image.fromarray(pixels, mode).save(folder / name)
    return folder


def pil(folder: Path) -> Any:
    image = pytest.importorskip("PIL.Image")
    found = []
    for name in ("a.png", "a.jpg", "a.bmp"):
        with image.open(folder / name) as opened:
            found.append(np.asarray(opened.convert("RGB")).tobytes())
        found.append(image.open(str(folder / name)).size)
    return found


def lines(folder: Path, **options: Any) -> Any:
    with open(folder / "text.txt", **options) as file:
        return [file.readline(), file.readlines(), file.read()]


def jumps(folder: Path) -> Any:
    found: list[Any] = []
    with open(folder / "bytes.bin", "rb") as file:
        found.append(file.read(10))
        found.append((file.seek(-100, os.SEEK_END), file.read(), file.tell()))
        found.append((file.seek(1000), file.peek(4)[:4], file.read1(5000), file.tell()))
        into = bytearray(70_000)
        found.append((file.readinto(into), bytes(into), file.seek(3, os.SEEK_CUR)))
        found.append((file.seek(300_000), file.read(10)))
        found += [file.name, file.mode, file.closed, file.readable(), file.seekable()]
        found += [file.writable(), type(file).__name__]
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(OSError, match="Invalid argument"):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read()
    return found


def mapped(folder: Path) -> Any:
    with open(folder / "bytes.bin", "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view[5:10], file.read(3), os.fstat(file.fileno()).st_size


def by_descriptor(folder: Path) -> Any:
    with open(folder / "bytes.bin", "rb") as file:
        return os.read(file.fileno(), 5), file.read(5)


def errors(folder: Path) -> Any:
    found = []
    for name, mode in (("none", "rb"), (".", "rb"), ("a.json", "rq"), ("a.json", "")):
        with pytest.raises((OSError, ValueError)) as error:
            open(folder / name, mode)
        found.append((error.type, str(error.value)))
    return found


def torch_load(folder: Path) -> Any:
    torch = pytest.importorskip("torch")
    for name, zipped in (("zip.pt", True), ("old.pt", False)):
        if not (folder / name).exists():
            value = {"w": torch.arange(10_000), "b": torch.ones(3)}
            torch.save(value, folder / name, _use_new_zipfile_serialization=zipped)
    loaded = [torch.load(folder / name) for name in ("zip.pt", "old.pt")]
    return [(one["w"].numpy().tobytes(), one["b"].tolist()) for one in loaded]


READS: dict[str, Callable[[Path], Any]] = {
    "pathlib": lambda folder: (
        (folder / "bytes.bin").read_bytes(),
        (folder / "text.txt").read_text(encoding="utf-8"),
        pathlib.Path(folder, "empty.bin").read_bytes(),
    ),
    "PIL": pil,
    "json": lambda folder: json.loads((folder / "a.json").read_text()),
    "json file": lambda folder: json.load(open(folder / "a.json")),
    "np.load": lambda folder: np.load(folder / "a.npy").tolist(),
    "np.load npz": lambda folder: {key: v.tolist() for key, v in np.load(folder / "a.npz").items()},
    "np.load mapped": lambda folder: np.load(folder / "a.npy", mmap_mode="r").tolist(),
    "np.memmap": lambda folder: np.memmap(folder / "bytes.bin", np.uint8, "r").tobytes(),
    "np.fromfile": lambda folder: [
        np.fromfile(folder / "bytes.bin", np.uint16).tolist(),
        np.fromfile(str(folder / "bytes.bin"), ">i4", 7, offset=3).tolist(),
        np.fromfile(folder / "bytes.bin", np.uint8, 10**6).tolist(),
        np.fromfile(folder / "bytes.bin", np.uint8, 0).tolist(),
        np.fromfile(folder / "bytes.bin", np.uint8, offset=200_000).tolist(),
        np.fromfile(folder / "bytes.bin", "S3", 50, offset=7).tolist(),
        np.fromfile(folder / "bytes.bin", "M8[s]", 2, offset=7).tobytes(),
        np.fromfile(folder / "bytes.bin", [("a", "<i2"), ("b", "u1", 3)], 20).tobytes(),
        np.fromfile(folder / "bytes.bin", np.dtype((np.int16, 5)), 6).tolist(),
        np.fromfile(folder / "bytes.bin", np.uint8, 5).flags.writeable,
        np.fromfile(folder / "empty.bin").tolist(),
    ],
    "torch.load": torch_load,
    "pickle": lambda folder: pickle.loads((folder / "a.pickle").read_bytes()),
    "zipfile": lambda folder: zipfile.ZipFile(folder / "a.zip").read("inner.txt"),
    "lines": lambda folder: lines(folder, encoding="utf-8"),
    "universal newlines off": lambda folder: lines(folder, encoding="utf-8", newline=""),
    "latin": lambda folder: lines(folder, encoding="latin-1", errors="ignore", newline="\n"),
    "unbuffered": lambda folder: open(folder / "bytes.bin", "rb", buffering=0).read(),
    "small buffer": lambda folder: list(open(folder / "text.txt", "rb", buffering=7)),
    "jumps": jumps,
    "mapped": mapped,
    "descriptor": by_descriptor,
    "errors": errors,
    "bytes path": lambda folder: open(os.fsencode(folder / "a.json"), "rb").read(),
    "relative": lambda folder: open(os.path.relpath(folder / "a.json")).read(),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", READS)
def test_the_bits_are_the_same(name: str, running: Daemon, folder: Path) -> None:
    if name == "PIL":
        picture(folder)
    reading = READS[name]
    expected = reading(folder)
    install(running.place, [str(folder)])
    try:
        assert open is not PLAIN
        assert reading(folder) == expected, "from storage"
        assert reading(folder) == expected, "from memory"
    finally:
        uninstall()
    assert open is PLAIN
    assert io.open is PLAIN


def test_reads_are_seen_and_mappings_are_counted(
    cached: Interception, running: Daemon, folder: Path
) -> None:
    before = running.stat(folder)
    for _ in range(10):
        np.load(folder / "a.npy")
        (folder / "a.json").read_text()
        np.fromfile(folder / "bytes.bin", np.uint8)
    np.memmap(folder / "bytes.bin", np.uint8, "r")
    sqlite3.connect(folder / "data.sqlite").close()
    sqlite3.connect(database=folder / "data.sqlite").close()
    cached.client.send_notes()
    running.wait_for(folder, seen=before["seen"] + 30, unseen=before["unseen"] + 3)
    assert running.stat(folder)["misses"] <= before["misses"] + 3


def test_of_a_file_only_what_is_asked_for_is_read(
    cached: Interception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is larger than all copies may be is NumPy's own to read."""
    read: list[int] = []
    plain = program_files.CachedFile.readinto

    def readinto(self: program_files.CachedFile, buffer: Any) -> int:
        read.append(len(buffer))
        return plain(self, buffer)

    monkeypatch.setattr(program_files.CachedFile, "readinto", readinto)
    expected = (folder / "bytes.bin").read_bytes()
    read.clear()
    found = np.fromfile(folder / "bytes.bin", np.uint16, 10, offset=100)
    assert found.tobytes() == expected[100:120]
    assert read == [20]
    monkeypatch.setattr(program_files, "MOST_BYTES", 19)
    assert np.fromfile(folder / "bytes.bin", np.uint16, 10, offset=100).tolist() == found.tolist()
    assert np.fromfile(folder / "bytes.bin", np.uint8).tobytes() == expected
    assert read == [20]


def test_what_is_written_is_read(cached: Interception, folder: Path) -> None:
    for number in range(20):
        with open(folder / "changing.txt", "w") as file:
            file.write(f"{number}")
        os.utime(folder / "changing.txt", ns=(number, number))
        assert (folder / "changing.txt").read_text() == f"{number}"
        with open(folder / "changing.txt", "r+") as file:
            assert file.read() == f"{number}"
    with open(folder / "new.txt", "x") as file:
        file.write("new")


def test_a_reader_at_the_end_sees_what_is_appended(cached: Interception, folder: Path) -> None:
    (folder / "log.txt").write_bytes(b"first")
    with open(folder / "log.txt", "rb") as file:
        assert file.read() == b"first"
        with open(folder / "log.txt", "ab") as more:
            more.write(b" second")
        assert file.read() == b" second"
        assert file.tell() == 12
        assert (file.seek(0), file.read()) == (0, b"first second")


def test_a_file_that_cannot_be_read_raises_as_ever(cached: Interception, folder: Path) -> None:
    closed = folder / "closed.bin"
    closed.write_bytes(b"secret")
    (folder / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        open(folder / "loop")
    closed.chmod(0)
    if os.geteuid():
        with pytest.raises(PermissionError):
            open(closed)
    closed.unlink()


@pytest.mark.parametrize("written", ["{}/../{}/a.json", "{}//a.json", "{}/./a.json"])
def test_a_path_may_be_written_in_any_way(written: str, cached: Interception, folder: Path) -> None:
    path = f"{folder.parent}/{written.format(folder.name, folder.name)}"
    assert cached.below(path) == (str(folder), "a.json")


def test_what_only_looks_as_if_it_were_below_is_not(cached: Interception, folder: Path) -> None:
    for path in (f"{folder}/../other", f"{folder}x/a", f"{folder}", "/", "", 3, None, b"/etc"):
        assert cached.below(path) is None


def test_paths_through_links_are_those_of_the_cache(
    running: Daemon, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(folder)
    one = Interception(running.place, [str(tmp_path / "link")])
    assert one.below(str(folder / "a.json")) == (str(tmp_path / "link"), "a.json")
    assert one.below(str(tmp_path / "link" / "a.json")) == (str(tmp_path / "link"), "a.json")


MODULES = {
    "cv2": """
        import numpy as np
        IMREAD_COLOR, IMREAD_LOAD_GDAL = 1, 8
        read = []
        def imread(filename, flags=IMREAD_COLOR):
            read.append(filename)
            return imdecode(np.fromfile(filename, np.uint8), flags)
        def imdecode(content, flags):
            return content[::-1] + flags
    """,
    "h5py": """
        class File:
            def __init__(self, name, mode="r"):
                self.name, self.mode = name, mode
    """,
    "lmdb": """
        def open(path, readonly=False):
            return path, readonly
    """,
}


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Libraries that are not installed here, as far as their readers matter."""
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("early", [True, False])
def test_readers_in_c_are_replaced_whenever_they_are_imported(
    early: bool, libraries: None, running: Daemon, folder: Path
) -> None:
    import importlib

    if early:
        importlib.import_module("cv2")
    one = install(running.place, [str(folder)])
    try:
        cv2 = importlib.import_module("cv2")
        found = cv2.imread(str(folder / "bytes.bin"), 2)
        assert cv2.read == []
        assert cv2.imread(str(folder / "bytes.bin"), flags=8).any()
        assert len(cv2.read) == 1, "what cannot be decoded from memory"
        before = running.stat(folder)["unseen"]
        opened = importlib.import_module("h5py").File(str(folder / "a.h5"), "r")
        assert (opened.name, opened.mode) == (str(folder / "a.h5"), "r")
        lmdb = importlib.import_module("lmdb")
        assert lmdb.open(str(folder / "a.lmdb"), readonly=True) == (str(folder / "a.lmdb"), True)
        one.client.send_notes()
        running.wait_for(folder, unseen=before + 2)
    finally:
        uninstall()
    assert (found == cv2.imread(str(folder / "bytes.bin"), 2)).all()
    assert len(cv2.read) == 2, "what was replaced is put back"


def test_torchvision_decodes_from_memory(
    running: Daemon, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    package = tmp_path / "torchvision"
    (package / "io").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "io" / "__init__.py").write_text("from .image import read_file, read_image\n")
    (package / "io" / "image.py").write_text(
        textwrap.dedent("""
            import torch
            read = []
            def read_file(path):
                read.append(path)
                return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8)
            def read_image(path):
                return read_file(path) + 1
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    install(running.place, [str(folder)])
    try:
        import torchvision.io

        path = str(folder / "bytes.bin")
        assert torchvision.io.image.read == []
        whole = torchvision.io.read_file(path) if early_patched(torchvision) else None
        found = torchvision.io.read_image(path)
        assert torchvision.io.image.read == []
        if whole is not None:
            assert torch.equal(whole + 1, found)
        assert bytes((found - 1).numpy()) == (folder / "bytes.bin").read_bytes()
    finally:
        uninstall()
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


def early_patched(torchvision: Any) -> bool:
    return torchvision.io.read_file is torchvision.io.image.read_file


@given(calls=st.lists(st.tuples(st.sampled_from("rsetlbw"), st.integers(0, 300)), max_size=30))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_sequence_of_calls_is_answered_alike(
    calls: list[tuple[str, int]], cached: Interception, folder: Path
) -> None:
    path = folder / "text.txt"

    def perform(file: Any) -> list[Any]:
        found: list[Any] = []
        for call, number in calls:
            match call:
                case "r":
                    found.append(file.read(number))
                case "s":
                    found.append(file.seek(number * 50))
                case "e":
                    found.append(file.seek(-number, os.SEEK_END))
                case "t":
                    found.append(file.tell())
                case "l":
                    found.append(file.readline())
                case "b":
                    into = bytearray(number)
                    found.append((file.readinto(into), into))
                case "w":
                    found.append(file.read())
        return found

    with PLAIN(path, "rb") as plain, open(path, "rb") as other:
        assert type(other) is type(plain)
        assert perform(other) == perform(plain)


def test_an_open_outside_the_paths_costs_a_fraction_of_an_open(cached: Interception) -> None:
    def nothing(*_: Any) -> None:
        return None

    intercepted, outside = builtins.open, "/etc/passwd"
    cell = dict(zip(intercepted.__code__.co_freevars, intercepted.__closure__, strict=True))
    cell["plain"].cell_contents = nothing
    with_it, without, plain = [], [], []
    try:
        for _ in range(15):  # in turns: what else the machine does slows all of them down
            with_it.append(timeit.timeit(lambda: intercepted(outside, "rb"), number=2000))
            without.append(timeit.timeit(lambda: nothing(outside, "rb"), number=2000))
            plain.append(timeit.timeit(lambda: PLAIN(outside, "rb").close(), number=2000))
    finally:
        cell["plain"].cell_contents = PLAIN
    assert min(with_it) - min(without) < 0.25 * min(plain)


def test_who_keeps_many_files_open_does_not_keep_their_copies(
    cached: Interception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_files, "MOST_BYTES", 1_000_000)
    expected = (folder / "bytes.bin").read_bytes()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open(folder / "bytes.bin", "rb")) for _ in range(12)]
        for file in opened:
            assert file.read(100) == expected[:100]
        assert sum(program_files._copies.values()) == 1_000_000
        for file in opened:
            assert file.read() == expected[100:]
    assert program_files._copies == {}


def test_nothing_is_replaced_where_nothing_is_asked_for() -> None:
    from penstock.data.cache.interception import install_from

    assert install_from({}) is None
    assert installed() is None


def test_what_is_read_by_a_descriptor_is_counted(
    running: Daemon, folder: Path, cached: Interception, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = running.stat(folder)["unseen"]
    name, content = str(folder / "bytes.bin"), (folder / "bytes.bin").read_bytes()
    monkeypatch.chdir(folder)
    for written in (name, "bytes.bin", os.fsencode(name), folder / "bytes.bin"):
        descriptor = os.open(written, os.O_RDONLY)
        assert os.read(descriptor, 10) == content[:10]
        os.close(descriptor)
    with contextlib.suppress(FileNotFoundError):
        os.open(folder / "nothing", os.O_RDONLY)
    for flags in (os.O_WRONLY, os.O_RDWR):
        os.close(os.open(name, flags))
    os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    os.close(os.open(__file__, os.O_RDONLY))
    with open(name, "rb", opener=os.open) as file:  # once
        assert file.read() == content
    cached.client.send_notes()
    running.wait_for(folder, unseen=before + 5)
