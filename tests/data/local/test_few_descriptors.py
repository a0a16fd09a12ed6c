"""A process that may have few files open: what is there goes on, and nothing is left behind."""

from __future__ import annotations

import subprocess
import textwrap

import pytest

from tests import fork_server

COMMON = textwrap.dedent(
    """
    import os, resource, signal, time
    import psutil
    import torch
    from torch.utils.data import Dataset
    from penstock.data.torch_loading.torch_loader import DataLoader

    def open_files():
        return len(os.listdir("/proc/self/fd")) - 1

    def allow(count):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))

    class Numbers(Dataset):
        def __len__(self):
            return 400
        def __getitem__(self, index):
            time.sleep(0.001)
            return torch.tensor([index, os.getpid()] + [0] * 2000)
    """
)
START = """
allow(open_files() + 12)
for _ in range(3):
    try:
        iter(DataLoader(Numbers(), num_workers=20))
    except OSError as error:
        print(error.strerror)
    deadline = time.monotonic() + 40
    while psutil.Process().children():
        assert time.monotonic() < deadline, "workers are left"
        time.sleep(0.05)
allow(1000)
batches = DataLoader(Numbers(), batch_size=4, num_workers=2)
assert [int(one[0]) for batch in batches for one in batch] == list(range(400))
"""
REPLACE = """
got, killed = [], set()
for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, timeout=40):
    got += batch[:, 0].tolist()
    if len(killed) < 2 and len(got) >= 40 and (maker := int(batch[0, 1])) not in killed:
        allow(3)
        os.kill(maker, signal.SIGKILL)
        killed.add(maker)
assert len(killed) == 2
assert got == list(range(400)), got
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(["-c", COMMON + script], timeout=55)


def test_workers_that_cannot_all_be_started_leave_none_behind() -> None:
    done = run(START)
    assert (done.returncode, done.stdout) == (0, "Too many open files\n" * 3), done.stderr[-3000:]


def test_an_epoch_goes_on_without_a_worker_that_cannot_be_started_again() -> None:
    done = run(REPLACE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("cannot be started again") == 2


KEEP = """
class Large(Numbers):
    def __getitem__(self, index):
        return torch.full(({numbers},), float(index))

allow(open_files() + 60)
kept = [list(DataLoader(Large(), batch_size=2, num_workers=2, timeout=40)) for _ in range(2)]
for epoch in kept:
    assert [float(row[-1]) for batch in epoch for row in batch] == list(range(400))
"""


@pytest.mark.parametrize("numbers", [3000, 20_000], ids=["12-kB", "80-kB"])
def test_a_program_may_keep_more_batches_than_it_may_have_open_files(numbers: int) -> None:
    done = run(KEEP.format(numbers=numbers))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "local worker" not in done.stderr  # none was lost
