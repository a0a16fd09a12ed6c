"""What memory costs that is new, and a worker that keeps what it frees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.data.profiling import new_memory, record_files, thread_counts
from penstock.data.profiling.maker_hooks import LOADER, Makers
from penstock.data.profiling.new_memory import cost_of_new
from penstock.data.profiling.retained_memory import LOOKS, RetainedMemory, largest_of
from penstock.throughput.observations.session import Phase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def test_new_memory_costs_something() -> None:
    found = cost_of_new()
    assert 0 < found.shared_byte < 1e-6
    assert 0 < found.shared_byte_freed < 1e-6
    assert 0 < found.page < 1e-3


def test_a_system_without_shared_memory_says_nothing_of_it(monkeypatch: Any) -> None:
    def refused(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(new_memory.os, "memfd_create", refused)
    found = cost_of_new()
    assert (found.shared_byte, found.shared_byte_freed) == (0.0, 0.0)
    assert found.page > 0


def test_pages_that_are_filled_are_counted() -> None:
    before = thread_counts.faults()
    np.ones(64 << 20, np.uint8)
    assert thread_counts.faults() - before > 10, "in large pages, where the system has them"


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (None, 0),
        ([np.zeros(10, np.uint8), np.zeros(30, np.uint8)], 30),
        ({"a": (np.zeros(10, np.uint8),), "b": "a long text is not an array"}, 10),
        ([], 0),
    ],
)
def test_the_largest_tensor_of_a_batch(batch: Any, size: int) -> None:
    assert largest_of(batch) == size


KEEPS = """
import sys
import numpy as np
from penstock.data.profiling.thread_counts import faults
from penstock.data.profiling.retained_memory import RetainedMemory

def samples():
    before = faults()
    for _ in range(20):
        a = np.ones(300_000, np.uint8)
        b = a + 1
        del a, b
    return faults() - before

samples()
plain = samples()
RetainedMemory().keep([np.empty(5_000_000, np.uint8)])
samples()
print(plain, samples())
"""


def test_a_worker_whose_memory_is_kept_fills_no_new_pages() -> None:
    libc = subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, check=False)
    if libc.returncode:
        pytest.skip("needs glibc")
    code = KEEPS.replace("RetainedMemory().keep([np.empty(5_000_000, np.uint8)])", "")
    never = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    done = subprocess.run([sys.executable, "-c", KEEPS], capture_output=True, text=True, check=True)
    plain, kept = (int(one) for one in done.stdout.split())
    assert plain > 1000, "each block is 73 pages"
    assert kept < plain / 10
    assert int(never.stdout.split()[1]) > 1000


def test_batches_are_counted_from_the_first_that_is_made_so() -> None:
    memory = RetainedMemory()
    assert memory.batches == 0
    for number in (1, 2, 3):
        memory.keep([np.zeros(10)])
        assert memory.batches == number
        assert memory.cost is not None
    for _ in range(LOOKS):
        memory.keep([np.zeros(10)])
    assert memory.cost is None, "enough is known"


def test_a_worker_keeps_its_memory_from_the_batch_after_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import default_collate
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    class Watched(_MapDatasetFetcher):
        """The class that is hooked, so that the plain one stays as it is."""

    monkeypatch.setenv(LOADER, "17:3")
    Makers(tmp_path).install(Watched, lambda: SimpleNamespace(id=0))
    worker = Watched(np.zeros((8, 10)), True, default_collate, False)
    worker.fetch([0, 1])
    record_files.begin(Phase.RETAINED, tmp_path, "17", 4)
    worker.fetch([0, 1])
    record_files.begin(Phase.RETAINED, tmp_path, "17", 3)
    for _ in range(3):
        worker.fetch([0, 1])
    made = [one for _, one in record_files.read_records(tmp_path) if one["k"] == "made"]
    assert [one["w"] for one in made] == [0, 0, 0, 1, 2], "another loader's is not its own"
    assert [bool(one["y"]) for one in made] == [False, False, False, True, True]
    assert all(cost > 0 for cost in made[-1]["y"])
