"""The benchmark of predictions: its programs work, and it compares what it says it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks import stalls
from benchmarks.slowed_disk import can_slow, slowed_disk
from benchmarks.stalls import Configuration
from penstock.throughput.loop.prediction import predict
from penstock.throughput.profiles.profile import Profile, Storage
from tests.throughput.programs import a_profile


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(stalls.KINDS))
def test_its_programs_train_and_say_how_fast(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = stalls.command

    def short(*arguments: Any) -> list[str]:
        return [*plain(*arguments), "--batches", "5"]

    monkeypatch.setattr(stalls, "command", short)
    found = stalls.run(tmp_path, kind, Configuration(1, 1, 0.5))
    assert 0 < found["rate"] <= 16 / (stalls.KINDS[kind] / 1000)
    assert 0 <= found["stalled"] <= 1


@pytest.mark.parametrize(("off", "code"), [(1.0, 0), (1.2, 1)])
def test_an_error_beyond_the_goal_is_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], off: float, code: int
) -> None:
    def profiled(folder: Path, kind: str, there: Configuration) -> Profile:
        resources = replace(a_profile().resources, cores=there.cores, workers=there.workers)
        return a_profile(resources=resources)

    def run(folder: Path, kind: str, there: Configuration) -> dict[str, float]:
        resources = replace(a_profile().resources, cores=there.cores, workers=there.workers)
        return {"rate": off * predict(a_profile(), resources).rate}

    monkeypatch.setattr(stalls, "profiled", profiled)
    monkeypatch.setattr(stalls, "run", run)
    monkeypatch.setattr(stalls, "can_slow", lambda _: True)
    monkeypatch.setattr("sys.argv", ["stalls", "--json", "--rounds", "1"])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert stalls.main() == code
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["rows"]) == 33
    assert [one["spread"] for one in printed["yardstick"]] == [0, 0, 0]
    assert [len(one["measured"]) for one in printed["yardstick"]] == [1, 1, 1]
    assert printed["goals"][2]["ok"] == (code == 0)


def test_a_slowed_disk_is_asked_about_where_files_are_read() -> None:
    calibrated = Configuration(2, 1, 1.0)
    others = stalls.held_out(calibrated, (4e6,))
    slowed = [one for one in others if one.storage]
    assert slowed == [Configuration(2, 1, 0.75, 4e6)]
    storage = Storage(20e3, total_bytes=5e6)
    found = stalls.asked(a_profile(storage=storage), calibrated, slowed[0])
    assert (found.storage_bytes_per_second, found.cache_bytes) == (4e6, 0.75 * 5e6)


def test_a_slowed_disk_is_as_slow_as_it_says() -> None:
    folder = Path(__file__).parent  # on a disk, as temporary folders need not be
    if not can_slow(folder):
        pytest.skip("slowing a disk takes root and cgroup blkio")
    with TemporaryDirectory(dir=folder) as name, slowed_disk(folder, 4e6) as joined:
        path = Path(name) / "content"
        path.write_bytes(os.urandom(2_000_000))
        drop = f"import os; f = os.open({str(path)!r}, os.O_RDONLY); os.fsync(f); "
        drop += "os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED); import time; "
        drop += "a = time.time(); os.read(f, 1 << 22); print(time.time() - a)"
        seconds = float(subprocess.check_output([*joined, sys.executable, "-c", drop]))
    assert seconds > 0.3  # half a second's bytes, of which a first tenth of a second comes at once
