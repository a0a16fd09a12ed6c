"""The file of a profile, when its disk is full, its end never comes, or two write it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.data.profiling import profile_file
from penstock.data.profiling.record_files import RecordFile, read_records
from penstock.throughput.errors import ProfileError
from tests.throughput.programs import a_profile


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may be longer than a few bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_a_disk_is_full_the_profile_before_stays(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    profile_file.write(file, a_profile())
    with full_disk(), pytest.raises(OSError, match="File too large"):
        profile_file.write(file, a_profile(program="other.py"))
    assert profile_file.read(file) == a_profile()
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_after_a_torn_record_a_process_writes_no_more(tmp_path: Path) -> None:
    """A batch that is missing between two others would count as a long one."""
    record = RecordFile(tmp_path, 1)
    with full_disk():
        for number in range(20):
            record.write({"k": "got", "number": number})
            if sum(path.stat().st_size for path in tmp_path.iterdir()) >= 100:
                break  # the last line is torn
    record.write({"k": "got", "number": 20})  # there is room again
    record.close()
    found = [one["number"] for _, one in read_records(tmp_path)]
    assert found == list(range(len(found)))
    assert 0 < len(found) < 20


def test_whoever_reads_while_it_is_written_reads_a_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    profile_file.write(file, a_profile())
    long = "a" * 1000

    def write() -> None:
        for _ in range(100):
            profile_file.write(file, a_profile(program=long))
            profile_file.write(file, a_profile())

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            assert profile_file.read(file).program in ("train.py", long)
        writing.result()


def test_what_is_written_to_a_link_is_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "p.json"
    link.symlink_to(tmp_path / "there" / "real.json")
    profile_file.write(link, a_profile())
    assert link.is_symlink()
    assert profile_file.read(tmp_path / "there" / "real.json") == a_profile()


def test_a_file_without_an_end_is_no_profile() -> None:
    with pytest.raises(ProfileError, match=r"/dev/zero: more than .* bytes are no profile"):
        profile_file.read(Path("/dev/zero"))


def test_a_profile_may_be_written_to_a_device() -> None:
    profile_file.write(Path("/dev/null"), a_profile())
    assert Path("/dev/null").is_char_device()
