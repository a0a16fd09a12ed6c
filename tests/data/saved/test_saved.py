"""Batches that are saved and loaded again: the same bits, in order, or a name and a reason."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import data as torch_data

import penstock.data
from penstock.data import Loader, saved
from penstock.data.errors import SavedError
from penstock.data.saved import BatchWriter, files
from penstock.data.saved.files import get_index
from penstock.data.transport.batch_codec import pack
from tests.data.planes import Noise, eventually, same


class Pair(NamedTuple):
    left: Any
    right: Any


def bits(batches: Any) -> list[Any]:
    packed = [pack(batch) for batch in batches]
    return [(one.structure, [bytes(memoryview(part)) for part in one.parts]) for one in packed]


KINDS: list[Any] = [
    {"image": np.arange(48, dtype=np.float32).reshape(2, 3, 8), "label": [1, 2.5, True, None]},
    (torch.rand(4, 3, 5), torch.arange(7000), torch.zeros(0, 3), torch.ones(9).bfloat16()),
    torch.arange(12.0).reshape(3, 4).T,
    np.asfortranarray(np.arange(20_000.0).reshape(100, 200)),
    Pair(np.array(["a", "bc"]), np.array(["2026-01-01"], "M8[D]")),
    {"complex": np.full((2, 2), 1 + 2j), "scalar": np.float16(1.5), "text": "ä", "big": 1 << 90},
    np.array(7),
    [],
]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def noise() -> Loader:
    return Loader(Noise(60), batch_size=5, seed=3)


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    made = saved.save(KINDS, tmp_path / "some" / "where")
    assert len(made) == len(KINDS)
    assert bits(made) == bits(KINDS) == bits(made), "in each epoch"
    assert type(made[4]) is Pair


def test_random_batches_stay_what_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = saved.save(noise(), tmp_path)
    assert same(list(made), list(noise()))
    found = [one.getMessage() for one in caplog.records if "augmentation" in one.getMessage()]
    assert len(found) == 1
    assert "random augmentation does not change any more" in found[0]


def test_many_files_are_one_sequence(tmp_path: Path) -> None:
    batches = [np.full(2000, number) for number in range(50)]
    made = saved.save(batches, tmp_path, shard_bytes=40_000)
    assert len(names(tmp_path)) > 10
    assert bits(made) == bits(batches)
    assert bits(made[10:30:3]) == bits(batches[10:30:3])
    assert bits([made[-1], made[17], made[3]]) == bits([batches[-1], batches[17], batches[3]])
    assert len(made[45:][:3]) == 3
    with pytest.raises(IndexError):
        made[50]


def test_a_batch_may_be_written_to_and_the_next_epoch_is_as_it_was(tmp_path: Path) -> None:
    made = saved.save([torch.ones(5000)], tmp_path)
    made[0].mul_(7)
    assert made[0].sum() == 5000


def test_pytorchs_loaders_and_ours_take_saved_batches(tmp_path: Path) -> None:
    batches = [(torch.full((40, 40), float(number)), number) for number in range(12)]
    made = saved.save(batches, tmp_path, shard_bytes=20_000)
    assert bits(pickle.loads(pickle.dumps(made))) == bits(batches)
    for loader in (
        torch_data.DataLoader(made, batch_size=None),
        torch_data.DataLoader(made, batch_size=None, num_workers=2),
        penstock.data.DataLoader(made, batch_size=None, num_workers=1),
    ):
        found = list(loader)
        assert [number for _, number in found] == list(range(12))
        assert all(bool((image == number).all()) for image, number in found)
    order = torch.Generator().manual_seed(1)
    shuffled = torch_data.DataLoader(made, batch_size=None, shuffle=True, generator=order)
    assert sorted(number for _, number in shuffled) == list(range(12))


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    batches = [np.full(3000, number) for number in range(40)]
    made = saved.save(batches, tmp_path, shard_bytes=30_000)
    right: list[bool] = []

    def read(step: int) -> None:
        right.append(all(made[at * step % 40][0] == at * step % 40 for at in range(80)))

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert right == [True] * 4


# ---------------------------------------------------------------------- bad input


def test_what_cannot_be_saved_without_pickle_is_refused_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(SavedError, match=r"batch 2 cannot be saved: .*object"):
        saved.save([1, 2, object()], tmp_path)
    with pytest.raises(SavedError, match="2 batches are saved, and not all"):
        saved.load(tmp_path)


def test_there_has_to_be_something_to_load(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SavedError, match="no batches were saved there"):
            saved.load(folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SavedError, match=r"file: .*exists"):
        saved.save([1], tmp_path / "file")


def test_shards_have_a_least_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shard_bytes: 7; must be at least"):
        saved.save([1], tmp_path, shard_bytes=7)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("batches-*"))


def damage_end(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def damage_body(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def damage_head(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(b"another program's" + content[17:])


DAMAGE = {
    "cut": lambda file: os.truncate(file, file.stat().st_size - 1),
    "longer": lambda file: os.truncate(file, file.stat().st_size + 1),
    "gone": lambda file: file.unlink(),
    "another table": damage_end,
    "another batch": damage_body,
    "another program's": damage_head,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "empty": lambda file: os.truncate(file, 0),
    "a FIFO": lambda file: (file.unlink(), os.mkfifo(file)),
    "a loop": lambda file: (file.unlink(), file.symlink_to(file.name)),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, how: str) -> None:
    batches = [np.full(2000, number) for number in range(9)]
    saved.save(batches, tmp_path, shard_bytes=40_000)
    DAMAGE[how](shards(tmp_path)[1])
    found: list[Any] = []
    with pytest.raises(SavedError, match=re.escape(str(tmp_path / "batches-0000000003.bin"))):
        found.extend(saved.load(tmp_path))
    assert bits(found) == bits(batches[: len(found)]), "what came before is right"


@pytest.mark.parametrize("how", ["a FIFO", "a loop", "a folder"])
def test_what_is_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, how: str) -> None:
    saved.save([1, 2], tmp_path / "whole")
    loaded = saved.load(tmp_path / "whole")
    [shard] = shards(tmp_path / "whole")
    DAMAGE[how](shard)
    with pytest.raises(SavedError, match=re.escape(str(shard))):
        loaded[0]
    with BatchWriter(tmp_path / "begun") as writer:
        writer.add(1)
    [shard] = shards(tmp_path / "begun")
    DAMAGE[how](shard)
    with BatchWriter(tmp_path / "begun") as writer, pytest.raises(SavedError, match="begun/batch"):
        writer.add(1)
    for folder in (tmp_path / "whole", tmp_path / "begun"):
        DAMAGE[how](folder / "index.json")
        with pytest.raises(SavedError, match=r"index\.json"):
            saved.load(folder)
        with pytest.raises(SavedError, match=r"index\.json"):
            BatchWriter(folder)


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(SavedError, match="null"):
        saved.load("a\0b")
    with pytest.raises(SavedError, match="null"):
        BatchWriter("a\0b")


def test_a_file_of_other_batches_is_refused_by_name(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("two", 2.0)):
        saved.save([np.full(500, value)] * 4, tmp_path / name)
    shutil.copy(shards(tmp_path / "two")[0], shards(tmp_path / "one")[0])
    with pytest.raises(SavedError, match=r"one/batches-0000000000.bin: .*is another's"):
        list(saved.load(tmp_path / "one"))


def test_a_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    saved.save([1, 2], tmp_path)
    shutil.copy(shards(tmp_path)[0], tmp_path / "batches-0000000007.bin")
    with pytest.raises(SavedError, match=r"batches-0000000007.bin: .*foreign"):
        saved.load(tmp_path)


def test_an_index_that_was_changed_is_refused_by_name(tmp_path: Path) -> None:
    saved.save([1, 2], tmp_path)
    index = tmp_path / "index.json"
    index.write_text(index.read_text().replace('"batches": 2', '"batches": 1'))
    with pytest.raises(SavedError, match=r"index.json: it was changed"):
        saved.load(tmp_path)


# ---------------------------------------------------------------------- cut short, and on


def test_a_loader_that_breaks_is_gone_on_with(tmp_path: Path) -> None:
    whole = [np.full(2000, number) for number in range(20)]

    def breaks() -> Iterator[Any]:
        yield from whole[:13]
        raise OSError("the disk of the pictures")

    with pytest.raises(OSError, match="pictures"):
        saved.save(breaks(), tmp_path, shard_bytes=40_000)
    index = get_index(tmp_path)
    assert index is not None
    assert index.batches == 13, "nothing that was made is lost"
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(SavedError, match="13 batches are saved, and not all"):
        saved.load(tmp_path)
    source = index.source
    with BatchWriter(tmp_path, source) as writer:
        for batch in whole:
            writer.add(batch)
        writer.finish()
    assert bits(saved.load(tmp_path)) == bits(whole)


def test_saving_is_not_gone_on_with_by_other_batches(tmp_path: Path) -> None:
    with BatchWriter(tmp_path) as writer:
        for number in range(5):
            writer.add(np.full(10, number))
    with BatchWriter(tmp_path) as writer:
        writer.add(np.full(10, 0))
        with pytest.raises(SavedError, match="batch 1 is another than the one that was saved"):
            writer.add(np.full(10, 7))
    with pytest.raises(SavedError, match=r"it has batches of .*save to another folder"):
        BatchWriter(tmp_path, {"dataset": "Sounds"})
    with BatchWriter(tmp_path) as writer:
        writer.add(np.full(10, 0))
        with pytest.raises(SavedError, match="this one had 1"):
            writer.finish()
    index = get_index(tmp_path)
    assert index is not None
    assert index.batches == 5


def test_our_loader_does_not_make_again_what_is_saved(tmp_path: Path) -> None:
    class Counting(Noise):
        asked: list[int] = []  # noqa: RUF012 - of this class, in this process

        def __getitem__(self, index: int) -> Any:
            self.asked.append(index)
            return super().__getitem__(index)

    def loader() -> Loader:
        return Loader(Counting(60), batch_size=5, seed=3)

    source = saved.writing.describe(loader())
    with BatchWriter(tmp_path, source, expected=12) as writer:
        for batch in list(loader())[:8]:
            writer.add(batch)
    Counting.asked.clear()
    made = saved.save(loader(), tmp_path)
    assert len(Counting.asked) == 5 * (12 - 7), "the last that was saved, and the rest"
    assert same(list(made), list(noise()))
    Counting.asked.clear()
    saved.save(loader(), tmp_path)
    assert Counting.asked == [], "what is complete is left as it is"


def test_two_do_not_save_to_one_folder_at_once(tmp_path: Path) -> None:
    with (
        BatchWriter(tmp_path),
        pytest.raises(SavedError, match="another process saves batches there"),
    ):
        BatchWriter(tmp_path)
    BatchWriter(tmp_path).close()


KILLED = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from penstock.data import Loader, saved
    from tests.data.planes import Noise
    folder, pause = Path(sys.argv[1]), float(sys.argv[2])
    saved.save(Loader(Noise(600, pause), batch_size=5, seed=3), folder, shard_bytes=60_000)
    print("saved", flush=True)
    """
)


@pytest.mark.slow
def test_kill_9_at_any_moment_costs_what_was_being_written_and_nothing_else(
    tmp_path: Path,
) -> None:
    for wanted in (1, 4, 9):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), "0.002"])
        try:

            def enough(least: int = wanted, of: subprocess.Popen[bytes] = process) -> bool:
                assert of.poll() is None, "it has ended by itself"
                # A new file is being written, whose name is not one that counts.
                return len(shards(tmp_path)) > least and bool(list(tmp_path.glob("*.bin.tmp")))

            eventually(enough, 30)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        index = get_index(tmp_path)
        assert index is not None
        assert 0 < index.batches < 120
        with pytest.raises(SavedError, match="and not all"):
            saved.load(tmp_path)
    # As if it had been killed between a file's renaming and the index that names it.
    (tmp_path / f"batches-{index.batches:010d}.bin").write_bytes(b"not named by the index")
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "0"], check=True, timeout=50)
    made = saved.load(tmp_path)
    assert not list(tmp_path.glob("*.tmp"))
    assert same(list(made), list(Loader(Noise(600), batch_size=5, seed=3)))


# ---------------------------------------------------------------------- no room


class Full:
    """A disk that is full after so many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        write = files.NewFile._write

        def bounded(file: files.NewFile, part: Any) -> None:
            if len(part) > self.room:
                write(file, memoryview(part)[: self.room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(part)
            write(file, part)

        monkeypatch.setattr(files.NewFile, "_write", bounded)


@pytest.mark.parametrize("room", [0, 1000, 30_000, 64_500, 100_000, 170_000, 318_000])
def test_a_full_disk_is_told_and_nothing_half_written_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    batches = [np.full(2000, number) for number in range(20)]
    full = Full(monkeypatch, room)
    with pytest.raises(SavedError, match=r"are missing; .* batches are saved and stay"):
        saved.save(batches, tmp_path, shard_bytes=60_000)
    assert not list(tmp_path.glob("*.tmp"))
    index = get_index(tmp_path)
    assert (index.batches if index is not None else 0) in (0, 4, 8, 12, 16, 20)
    full.room = 1 << 40
    assert bits(saved.save(batches, tmp_path, shard_bytes=60_000)) == bits(batches)


def test_how_much_is_missing_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2 << 20))
    Full(monkeypatch, 9 << 20)
    with pytest.raises(SavedError) as raised:
        saved.save([np.zeros(1 << 17)] * 20, tmp_path, shard_bytes=4 << 20)
    text = str(raised.value)
    assert "8 batches are saved and stay" in text
    assert (
        "about 12.0 MiB are still to be written and 2.0 MiB are free: 10.0 MiB are missing" in text
    )
    assert "20 batches like the first need about 19.0 MiB more, and 2.0 MiB are free" in caplog.text


LIMITED = textwrap.dedent(
    """
    import resource, sys
    import numpy as np
    from penstock.data import saved
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        saved.save([np.full(2000, number) for number in range(40)], sys.argv[1])
    except saved.SavedError as error:
        print(error)
    """
)


def test_a_limit_of_files_sizes_is_told(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "a file may have at most 195.3 KiB here" in found.stdout
    assert "smaller shards" in found.stdout
    assert names(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 200_000
