"""The memory of a cache: pieces that never overlap, and an index that never gives another file."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.data.cache.index import WAYS, Index, index_bytes, part_of, place_of
from penstock.data.cache.node.arena import RETIRED_SECONDS, Arena, Extents
from penstock.data.cache.node.checks import FOLDER_SECONDS, PublicFolders, readable_by_all
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.met import MetFiles
from penstock.data.cache.node.shelves import LEAST_PART_BYTES, Held, Shelves
from penstock.data.cache.policy import Key, Verdict, key_of
from penstock.data.cache.program.mapped import MappedPath
from tests.data.cache.daemons import until

SIZE = 64


class Pieces(RuleBasedStateMachine):
    """Extents against a row of bytes that say who has them."""

    def __init__(self) -> None:
        super().__init__()
        self.extents = Extents(SIZE)
        self.taken: dict[int, int] = {}

    @rule(size=st.integers(1, 20))
    def take(self, size: int) -> None:
        place = self.extents.take(size)
        if place is None:
            free = "".join(" x"[self.owned(at)] for at in range(SIZE))
            assert " " * size not in free
            return
        assert not any(self.owned(at) for at in range(place, place + size))
        assert place + size <= SIZE
        self.taken[place] = size

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.taken:
            place = data.draw(st.sampled_from(sorted(self.taken)))
            self.extents.give_back(place, self.taken.pop(place))

    def owned(self, at: int) -> bool:
        return any(start <= at < start + size for start, size in self.taken.items())

    @invariant()
    def neighbours_are_joined(self) -> None:
        for end, start in zip(self.extents._ends, self.extents._starts[1:], strict=False):
            assert end < start


TestPieces = Pieces.TestCase


def test_an_arena_takes_no_more_memory_than_it_may() -> None:
    arena = Arena(100)
    assert arena.take(60, 60, 0.0) == 0
    assert arena.take(30, 20, 0.0) is None
    assert arena.take(20, 20, 0.0) == 60
    arena.retire(0, 60, 0.0)
    assert arena.take(50, 0, RETIRED_SECONDS) is None, "somebody may still be copying it"
    assert arena.take(50, 0, RETIRED_SECONDS + 1) == 0, "where something lay before"
    assert arena.touched == 80
    arena.close()


def test_an_arena_gives_its_memory_back_by_the_part() -> None:
    arena = Arena(100)
    places = [arena.take(size, 1000, 0.0) for size in (60, 60, 300)]
    assert [part_of(place or 0) for place in places] == [(0, 0), (1, 0), (2, 0)]
    assert arena.parts() == {2: 300, 1: 60, 0: 60}
    assert not arena.give_back_empty()
    arena.view(place_of(1, 0), 60)[:] = b"x" * 60
    view = arena.view(place_of(1, 0), 60)
    arena.retire(place_of(1, 0), 60, 0.0)
    assert arena.give_back_empty()
    assert arena.parts() == {2: 300, 0: 60}
    assert arena.descriptor(1) is None
    assert bytes(view) == b"x" * 60, "who has it has it"
    assert arena.take(70, 1000, 0.0) == place_of(3, 0), "a number is used once"
    arena.close()


def test_an_index_finds_what_was_added_and_no_other_version() -> None:
    index = Index(bytearray(index_bytes(1 << 20)))
    keys = [Key(5, inode, 100, -7) for inode in range(100)]
    for place, key in enumerate(keys):
        assert index.add(key, place)
    for place, key in enumerate(keys):
        found = index.find(key)
        assert found is not None
        assert found[1] == place
        assert index.still(found[0], key, place)
        for other in (key._replace(changed_ns=0), key._replace(size=1), key._replace(device=6)):
            assert index.find(other) is None
        assert index.find(key.range(1)) is None
    index.remove(keys[3])
    assert index.find(keys[3]) is None
    assert index.find(keys[4]) is not None


def test_an_entry_that_is_half_written_is_none() -> None:
    memory = bytearray(index_bytes(1 << 20))
    index, key = Index(memory), Key(1, 2, 3, 4)
    index.add(key, 5)
    found = index.find(key)
    assert found is not None
    at = found[0]
    for byte in range(32, 48):  # the place, the range, and the checksum
        memory[at + byte] ^= 0xFF
        assert index.find(key) is None
        memory[at + byte] ^= 0xFF
    assert index.find(key) == found


def test_a_file_without_a_place_in_the_index_is_not_in_it() -> None:
    index = Index(bytearray(index_bytes(1)))
    added = [index.add(Key(1, inode, 1, 1), inode) for inode in range(64 * WAYS * 2)]
    assert 0 < added.count(True) <= 64 * WAYS
    for inode, one in enumerate(added):
        assert (index.find(Key(1, inode, 1, 1)) is not None) is one


def granted(contents: Contents, path: str, part: int | None = None) -> int:
    shared = contents.shared(path, part)
    assert shared is not None
    return shared


@pytest.mark.slow
def test_readers_never_get_bytes_of_another_file(tmp_path: Path) -> None:
    """Files change, are read in and given up while others copy them from the shared memory."""
    path, now = str(tmp_path), [0.0]
    contents = Contents(40_000, (path,), clock=lambda: now[0])
    versions: dict[Key, bytes] = {}
    ending, wrong, right = threading.Event(), [], [0]

    def copy() -> None:
        mapped = MappedPath(granted(contents, path), contents.largest)
        while not ending.is_set():
            for key, expected in list(versions.items())[-6:]:
                part = mapped.lacks(key)
                if part is not None:
                    mapped.add(part, granted(contents, path, part))
                found = mapped.read(key)
                if found is not None:
                    right[0] += 1
                    if found != expected:
                        wrong.append(key)

    readers = [threading.Thread(target=copy) for _ in range(2)]
    for reader in readers:
        reader.start()
    rng = random.Random(1)
    try:
        for number in range(300):
            now[0] += 1  # after three of them a place is used again
            file = tmp_path / f"{rng.randrange(4)}.bin"
            content = bytes([number % 256]) * rng.randrange(5000, 9000)
            file.write_bytes(content)
            with file.open("rb") as opened:
                key = key_of(file.stat())
                versions[key] = content
                verdict, held = contents.meet(key, path, True)
                if verdict is Verdict.ADMIT:
                    assert held is not None
                    assert contents.read_in(held, opened.fileno())
                    assert bytes(held.view) == content
                    contents.release(held)
        until(lambda: right[0] > 0)
    finally:
        ending.set()
        for reader in readers:
            reader.join()
    assert wrong == []


def test_memory_goes_to_who_waits_most_and_no_file_in_use_does(tmp_path: Path) -> None:
    """Two paths of 30 files, and room for 20 in parts of three."""
    now, size, paths = [0.0], 80_000, ("/computes", "/waits")
    contents = Contents(20 * size, paths, clock=lambda: now[0])
    made = {}
    for number in range(60):
        file = tmp_path / f"{number}"
        file.write_bytes(bytes([number]) * size)
        made[file] = paths[number // 30], key_of(file.stat())

    def epoch(wanted: str) -> int:
        found = 0
        for file, (path, key) in made.items():
            now[0] += 0.01
            if path == wanted:
                found += keep(contents, file, path, key)
        return found

    def say(path: str, elapsed: float) -> None:
        spent = {"storage_bytes": 30 * size, "storage_us": 1_000_000}
        contents.note_times(path, path, {**spent, "elapsed_us": int(elapsed * 1e6)})

    def held(path: str) -> int:
        return int(contents.report()[path]["held_bytes"]) // size

    assert epoch("/computes") == 0
    assert held("/computes") == 20
    say("/computes", 100)
    assert epoch("/waits") == 0
    assert held("/waits") == 0, "nobody has given anything up yet"
    used = contents.find(made[tmp_path / "0"][1], "/computes")
    assert used is not None
    now[0] += 10
    say("/waits", 1.2)
    assert held("/computes") == 20, "a quota alone changes nothing"
    epoch("/waits")
    assert held("/computes") == 3, "the part with the file that is in use"
    assert held("/waits") == 17
    assert epoch("/waits") == 17
    assert bytes(used.view) == bytes([0]) * size
    contents.release(used)
    now[0] += 10
    epoch("/waits")
    assert (held("/computes"), held("/waits")) == (0, 20)
    assert contents.report()["/waits"]["quota_bytes"] == 20 * size
    assert (epoch("/waits"), epoch("/computes")) == (20, 0)


def keep(contents: Contents, file: Path, path: str, key: Key) -> bool:
    """Read a file as the daemon does; whether it was there, and its bytes are right."""
    verdict, held = contents.meet(key, path, True)
    if held is None:
        return False
    with file.open("rb") as opened:
        if verdict is Verdict.ADMIT:
            assert contents.read_in(held, opened.fileno())
        opened.seek(0)
        assert bytes(held.view) == opened.read()
    contents.release(held)
    return verdict is Verdict.HIT


def test_a_file_that_was_given_its_old_time_again_is_another_version(tmp_path: Path) -> None:
    """As rsync does with --times --inplace."""
    file = tmp_path / "file"
    file.write_bytes(b"before")
    before = file.stat()
    changed = [key_of(before)]

    def rewritten() -> bool:  # the kernel's clock may stand still for some milliseconds
        with file.open("r+b") as opened:
            opened.write(b"behind")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed.append(key_of(file.stat()))
        return changed[-1] != changed[0]

    until(rewritten)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_folder_that_was_closed_is_not_public_for_long(tmp_path: Path) -> None:
    now = [0.0]
    folders = PublicFolders(lambda: now[0])
    (tmp_path / "a").mkdir(mode=0o755)
    (tmp_path / "a" / "file").write_bytes(b"x")
    (tmp_path / "a" / "file").chmod(0o644)
    assert readable_by_all(str(tmp_path), "a/file", folders)
    (tmp_path / "a").chmod(0o700)
    now[0] = FOLDER_SECONDS + 1
    assert not readable_by_all(str(tmp_path), "a/file", folders)
    (tmp_path / "a").chmod(0o755)
    assert not readable_by_all(str(tmp_path), "a/file", folders), "not asked for each file"
    now[0] *= 3
    assert readable_by_all(str(tmp_path), "a/file", folders)


def test_a_file_that_changes_while_it_is_read_in_is_not_kept(tmp_path: Path) -> None:
    contents = Contents(1000, ("/a",))
    file = tmp_path / "file"
    file.write_bytes(b"before")
    key = key_of(file.stat())
    verdict, held = contents.meet(key, "/a", True)
    assert verdict is Verdict.ADMIT
    assert held is not None
    with file.open("r+b") as opened:
        opened.write(b"behind the cache's back")
        opened.flush()
        assert not contents.read_in(held, opened.fileno())
    assert contents.find(key, "/a") is None
    assert contents.report()["/a"]["held_bytes"] == 0


def test_a_file_that_cannot_be_read_is_not_kept() -> None:
    contents = Contents(1000, ("/a",))
    _, held = contents.meet(Key(1, 1, 10, 0), "/a", True)
    assert held is not None
    assert not contents.read_in(held, -1)
    assert contents.meet(Key(1, 1, 10, 0), "/a", True)[0] is Verdict.ADMIT


def test_without_memory_for_a_path_its_files_are_read_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents, key = Contents(1000, ("/a",)), Key(1, 1, 10, 0)

    def refuse(*_: object) -> None:
        raise OSError("no more descriptors")

    with monkeypatch.context() as without:
        without.setattr(Shelves, "of", refuse)
        assert contents.meet(key, "/a", False) == (Verdict.PASS, None)
    assert contents.report()["/a"]["held_bytes"] == 0
    assert contents.meet(key, "/a", False)[0] is Verdict.ADMIT


def test_who_could_not_read_a_file_gives_up_none_that_was_admitted_again() -> None:
    contents, key = Contents(1000, ("/a",)), Key(1, 1, 10, 0)
    _, first = contents.meet(key, "/a", True)
    contents.drop("/a")
    verdict, second = contents.meet(key, "/a", True)
    assert verdict is Verdict.ADMIT
    assert first is not None
    assert second is not None
    contents.abandon(first)
    assert contents.meet(key, "/a", True) == (Verdict.WAIT, None)
    assert contents.report()["/a"]["held_bytes"] == 10
    contents.abandon(second)
    assert contents.report()["/a"]["held_bytes"] == 0


@pytest.mark.parametrize("paths", [1, 2, 16])
def test_the_indexes_of_many_paths_are_within_a_bound(paths: int) -> None:
    capacity = 1 << 30
    shelves = Shelves(capacity, paths)
    names = [str(number) for number in range(paths)]
    all_ = [shelves.of(name, public) for name in names for public in (True, False)]
    together = sum(len(one.index_memory.memory) for one in all_)
    least = index_bytes(1)  # of those that not all may read, and of the rounding
    assert together <= 2 * index_bytes(capacity) + 2 * paths * least
    for name in names:
        shelves.close(name)


class Parts(RuleBasedStateMachine):
    """Files in the parts of a path's arena, against all that is held."""

    def __init__(self) -> None:
        super().__init__()
        self.shelves = Shelves(1, 1)
        self.shelf = self.shelves.of("/a", True)
        self.held: list[Held] = []
        self.gone: list[Held] = []
        self.made = 0

    @rule(size=st.integers(1, LEAST_PART_BYTES))
    def read_in(self, size: int) -> None:
        self.made += 1
        place = self.shelf.arena.take(size, 1 << 30, 0.0)
        assert place is not None
        self.held.append(Held(Key(1, self.made, size, 0), self.shelf, place))

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        if self.held:
            data.draw(st.sampled_from(self.held)).use()

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        used = [one for one in self.held + self.gone if one.users]
        if used:
            data.draw(st.sampled_from(used)).release(0.0)

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.held:
            one = data.draw(st.sampled_from(self.held))
            self.held.remove(one)
            one.give_up(0.0)
            self.gone.append(one)

    def teardown(self) -> None:
        self.shelves.close("/a")

    @rule()
    def give_back(self) -> None:
        self.shelves.give_back_empty()

    @invariant()
    def a_part_is_given_whose_files_nobody_reads(self) -> None:
        inside: dict[int, list[Held]] = {}
        used = {part_of(one.place)[0] for one in self.held + self.gone if one.users}
        for one in self.held:
            inside.setdefault(part_of(one.place)[0], []).append(one)
        found = self.shelves.lots("/b")
        assert {lot.number for lot in found} == inside.keys() - used
        for lot, keys in found.items():
            files = inside[lot.number]
            assert set(keys) == {one.key for one in files}
            assert lot.held == sum(one.key.length for one in files)
        assert self.shelves.lots("/a") == {}
        assert self.shelf._files.keys() == inside.keys() | used, "nothing is kept for ever"


TestParts = Parts.TestCase
TestParts.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("count", [1, 1000, 50_000])
def test_different_files_are_counted_within_two_per_cent(count: int) -> None:
    met = MetFiles(0.0)
    for _ in range(2):
        for inode in range(count):
            met.add(Key(64769, 1_000_000 + 7 * inode, 110_000, 1_700_000_000_000_000_000 + inode))
    assert met.count == pytest.approx(count, rel=0.02)
    assert met.total_bytes == pytest.approx(110_000 * count, rel=0.02)


def test_of_files_larger_than_the_cache_ranges_are_kept_or_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Contents(1 << 20, ("/a",), 64 << 20).largest == 1 << 20
    small = Contents(1000, ("/a",))
    assert small.largest == 1000
    for number in (1, 2):
        key = Key(1, number, 5000, 0, 1)
        assert small.meet(key, "/a", True) == (Verdict.PASS, None)
    assert caplog.text.count("/a: a cache of so little memory keeps nothing") == 1
