"""Large files are kept in ranges: read in part, kept in part, and their bits are their own."""

from __future__ import annotations

import io
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.data.cache import interception
from penstock.data.cache.client import NOTHING, Answer
from penstock.data.cache.policy import RANGE_BYTES, Key, MinIOPolicy, Verdict, key_of
from penstock.data.cache.program.files import CachedFile
from penstock.data.cache.program.ranges import MUCH, Wanted
from tests.data.cache.daemons import Daemon, daemon, place

MIB = RANGE_BYTES


class RangedCache(RuleBasedStateMachine):
    """The policy, of files that are longer and shorter than the largest that is kept whole."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = MinIOPolicy(5 * MIB, largest=MIB)
        self.files: dict[int, tuple[int, int]] = {}  # size and version
        self.held: set[Key] = set()

    @rule(inode=st.integers(0, 2), size=st.integers(1, 9), version=st.integers(0, 2))
    def write(self, inode: int, size: int, version: int) -> None:
        self.files[inode] = size * MIB // 2, version

    @rule(inode=st.integers(0, 2), number=st.integers(-1, 6), whole=st.booleans())
    def meet(self, inode: int, number: int, whole: bool) -> None:
        size, version = self.files.setdefault(inode, (3 * MIB // 2, 0))
        key = Key(1, inode, size, version, 0 if whole else number)
        stale = {one for one in self.held if one.inode == inode and one[:4] != key[:4]}
        room = 5 * MIB - sum(one.length for one in self.held - stale)
        meeting = self.policy.meet(key, "a")
        assert set(meeting.given_up) == stale
        self.held -= stale
        if key in self.held:
            assert meeting.verdict is Verdict.HIT
            return
        there = size <= MIB if not key.number else size > MIB and 0 < number <= -(-size // MIB)
        fits = there and key.length <= room
        assert meeting.verdict is (Verdict.ADMIT if fits else Verdict.PASS)
        if fits:
            assert self.policy.note_read(key)
            self.held.add(key)

    @rule(inode=st.integers(0, 2))
    def abandon(self, inode: int) -> None:
        for key in [one for one in self.held if one.inode == inode][:1]:
            self.policy.abandon(key)
            self.held.discard(key)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        self.policy.check_invariants()
        assert self.policy.held_bytes == sum(one.length for one in self.held)
        assert set(self.policy.keys_of("a")) == self.held


TestRangedCache = RangedCache.TestCase


class SomeRanges:
    """A source that has some of a file's ranges, from a little before a place or all of it."""

    def __init__(self, content: bytes, numbers: set[int], lead: int) -> None:
        self.content = content
        self.numbers = numbers
        self.lead = lead
        self.from_storage = 0

    def in_ranges(self, size: int) -> bool:
        return True

    def fetch(self, descriptor: int) -> Answer:
        raise AssertionError("it is kept in ranges")

    def fetch_range(self, descriptor: int, wanted: Wanted) -> Answer:
        start = (wanted.number - 1) * MIB
        assert start <= wanted.at < start + MIB
        if wanted.number not in self.numbers:
            return NOTHING
        start = max(start, wanted.at - self.lead)
        return Answer(self.content[start : wanted.number * MIB], start=start)

    def note_unseen(self) -> None:
        raise AssertionError("it was seen")

    def note_storage(self, size: int, begun: float, of_range: bool) -> None:
        assert of_range
        self.from_storage += size


@pytest.fixture(scope="module")
def large() -> Iterator[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        content = random.Random(1).randbytes(3 * MIB + 12345)
        path = Path(folder, "large.tar")
        path.write_bytes(content)
        yield str(path), content


sizes = st.integers(0, 20_000) | st.integers(0, 3 * MIB)
steps = st.one_of(
    st.tuples(st.just("read"), sizes),
    st.tuples(st.just("readinto"), sizes),
    st.tuples(st.just("seek"), st.integers(0, 4 * MIB)),
    st.tuples(st.just("seek back"), sizes),
    st.tuples(st.just("readall"), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(steps, max_size=12),
    st.sets(st.integers(1, 4)),
    st.sampled_from([0, 1000, MIB]),
    st.sampled_from([4096, 131072]),
)
def test_whichever_ranges_there_are_a_program_reads_the_file(
    large: tuple[str, bytes],
    all_steps: list[tuple[str, int]],
    numbers: set[int],
    lead: int,
    block: int,
) -> None:
    path, content = large
    source = SomeRanges(content, numbers, lead)
    with (
        open(path, "rb", block) as plain,  # noqa: PTH123 - what it is compared with
        io.BufferedReader(CachedFile(path, source), block) as ours,
    ):
        for step, number in all_steps:
            for_all = []
            for file in (plain, ours):
                if step == "read":
                    found: object = file.read(number)
                elif step == "readinto":
                    buffer = bytearray(number)
                    found = file.readinto(buffer), bytes(buffer)
                elif step == "seek":
                    found = file.seek(number)
                elif step == "seek back":
                    found = file.seek(-min(number, file.tell()), os.SEEK_CUR)
                else:
                    found = file.read()
                for_all.append((found, file.tell()))
            assert for_all[0] == for_all[1]
    assert numbers != {1, 2, 3, 4} or not source.from_storage


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Daemon, Path]]:
    """A cache of 4 MiB that keeps files of up to 1 MiB whole, and this program uses it."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "data"
    folder.mkdir()
    with daemon(place(), folder, memory=4 * MIB, more=["--largest", "1MiB"]) as one:
        interception.install(one.place, [str(folder)])
        try:
            yield one, folder
        finally:
            interception.uninstall()


def notes() -> None:
    one = interception.installed()
    assert one is not None
    one.client.send_notes()


def test_of_a_file_that_is_larger_than_the_cache_a_part_is_kept(kept: tuple[Daemon, Path]) -> None:
    one, folder = kept
    content = random.Random(2).randbytes(6 * MIB + 5)
    (folder / "large.tar").write_bytes(content)
    for _ in range(3):
        assert (folder / "large.tar").read_bytes() == content
    notes()
    one.wait_for(folder, held_bytes=4 * MIB, miss_bytes=4 * MIB + 3 * (2 * MIB + 5))
    assert one.stat(folder)["hit_bytes"] == 8 * MIB
    changed = content[: 3 * MIB] + bytes(MIB) + content[4 * MIB :]
    (folder / "large.tar").write_bytes(changed)
    assert (folder / "large.tar").read_bytes() == changed
    with (folder / "large.tar").open("r+b") as file:
        file.truncate(5)
    assert (folder / "large.tar").read_bytes() == changed[:5]
    one.wait_for(folder, held_bytes=5)


def test_who_reads_a_little_here_and_there_has_kept_what_it_comes_back_to(
    kept: tuple[Daemon, Path],
) -> None:
    one, folder = kept
    content = random.Random(3).randbytes(6 * MIB)
    (folder / "records").write_bytes(content)
    places = [number * MIB + 1000 for number in (3, 1, 4)]
    for held in (0, 3, 3):
        with (folder / "records").open("rb", buffering=4096) as file:
            for at in places:
                file.seek(at)
                assert file.read(100) == content[at : at + 100]
        notes()
        one.wait_for(folder, held_bytes=held * MIB)
    assert one.stat(folder)["miss_bytes"] == 3 * 4096 + 3 * MIB
    assert one.stat(folder)["hits"] == 3
    with (folder / "records").open("rb", buffering=4096) as file:
        file.seek(5 * MIB)
        assert file.read(MUCH) == content[5 * MIB : 5 * MIB + MUCH]
    one.wait_for(folder, held_bytes=4 * MIB)


def test_files_that_are_not_for_all_are_kept_in_ranges_too(kept: tuple[Daemon, Path]) -> None:
    one, folder = kept
    content = random.Random(4).randbytes(2 * MIB)
    (folder / "own.tar").write_bytes(content)
    (folder / "own.tar").chmod(0o600)
    key = key_of((folder / "own.tar").stat())
    for _ in range(2):
        assert (folder / "own.tar").read_bytes() == content
    one.wait_for(folder, held_bytes=2 * MIB, hits=2, misses=2)
    opened = interception.installed()
    assert opened is not None
    mapped = opened.client._mapped_path(str(folder))
    assert mapped is not None
    assert mapped.read(key.range(1)) is None, "it goes through the socket"
