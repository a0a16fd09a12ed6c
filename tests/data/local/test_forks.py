"""Forks: of the training program, of its local workers; whoever forks keeps sockets open."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.torch_loading.torch_loader import DataLoader
from tests import fork_server
from tests.data.planes import eventually

FORK_AT = 4


class Forking(torch_data.Dataset[torch.Tensor]):
    """One sample leaves a process behind, as a library with a server of its own does."""

    def __init__(self, said: Path) -> None:
        self.said = said

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == FORK_AT and not self.said.exists():
            if (child := os.fork()) == 0:
                time.sleep(600)
                os._exit(0)
            self.said.write_text(str(child))
        return torch.tensor([index, os.getpid()])


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Path]:
    """Where a process that is left behind is written down; it is killed."""
    path = tmp_path / "child"
    yield path
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_a_worker_is_missed_whose_own_child_keeps_its_connection_open(said: Path) -> None:
    got, killed = [], 0
    batches: Any = iter(DataLoader(Forking(said), batch_size=1, num_workers=1, timeout=40))
    for batch in batches:
        got.append(int(batch[0, 0]))
        if said.exists() and not killed:
            killed = int(batch[0, 1])
            os.kill(killed, signal.SIGKILL)
    assert killed
    assert got == list(range(100))


PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    import torch
    from torch.utils.data import Dataset
    from penstock.data.torch_loading.torch_loader import DataLoader
    class Pids(Dataset):
        def __len__(self):
            return 100_000
        def __getitem__(self, index):
            time.sleep(0.001)
            return os.getpid()
    if __name__ == "__main__":
        workers = 1 if sys.argv[1] == "forkserver" else 2  # each of those loads PyTorch
        pids, helper = set(), 0
        for batch in DataLoader(
            Pids(), batch_size=1, num_workers=workers, multiprocessing_context=sys.argv[1]
        ):
            pids.add(int(batch))
            if len(pids) == workers and not helper:
                helper = os.fork()
                if not helper:
                    time.sleep(600)
                    os._exit(0)
                print(helper, *pids, flush=True)
    """
)


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_they_end_with_a_program_that_has_left_a_child_behind(context: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    program = fork_server.start([str(script), context], stdout=subprocess.PIPE)
    assert program.stdout is not None
    try:
        helper, *workers = map(int, program.stdout.readline().split())
        lives = [psutil.Process(pid) for pid in workers]
    finally:
        program.kill()
        program.wait(20)
        program.stdout.close()
    try:
        eventually(lambda: not any(one.is_running() for one in lives), 30)
    finally:
        os.kill(helper, signal.SIGKILL)


HANDLING = textwrap.dedent(
    """
    import os, signal, sys
    import torch
    from torch.utils.data import Dataset
    from penstock.data.torch_loading.torch_loader import DataLoader
    class Pids(Dataset):
        def __len__(self):
            return 200
        def __getitem__(self, index):
            return torch.tensor([index, os.getpid()])
    def save(*_):
        print("checkpoint of", os.getpid(), flush=True)
    signal.signal(signal.SIGTERM, save)
    got = []
    for batch in DataLoader(Pids(), batch_size=1, num_workers=2):
        got.append(int(batch[0, 0]))
        if len(got) == 20:
            os.killpg(0, signal.SIGTERM)
    assert got == list(range(200)), got
    print("all there of", os.getpid())
    """
)


def test_a_signal_to_the_process_group_is_handled_by_the_program_alone() -> None:
    done = fork_server.run(["-c", HANDLING], timeout=50, start_new_session=True)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.split()[0] == "checkpoint"
    assert first.split()[-1] == last.split()[-1]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_fork_of_the_program_does_not_end_its_workers(persistent: bool) -> None:
    loader: Any = DataLoader(
        Numbers(), batch_size=1, num_workers=2, persistent_workers=persistent, timeout=40
    )
    batches, got, makers = iter(loader), [], set()
    while (batch := next(batches, None)) is not None:  # nobody else refers to the iterator
        got.append(int(batch[0, 0]))
        makers.add(int(batch[0, 1]))
        if len(got) % 50 == 0:
            if (child := os.fork()) == 0:
                del batches, loader
                gc.collect()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    assert got == list(range(200))
    assert len(makers) == 2


def test_a_fork_of_the_program_may_iterate_a_loader_with_persistent_workers() -> None:
    loader = DataLoader(
        Numbers(), batch_size=50, num_workers=2, persistent_workers=True, timeout=20
    )
    wanted = [batch[:, 0].tolist() for batch in loader]
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = int([batch[:, 0].tolist() for batch in loader] != wanted)
            loader._penstock.local.stop()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [batch[:, 0].tolist() for batch in loader] == wanted


class Blocks(torch_data.Dataset[torch.Tensor]):
    """Large samples; with ``first``, a batch that was there before the workers were forked."""

    def __init__(self, first: torch.Tensor | None = None) -> None:
        self.first = first
        self.mapped = -1

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.first is None:
            return torch.full((64 << 10,), float(index))
        return torch.tensor([float(self.first.sum()), self.mapped, os.getpid()])


def look_at_memory(worker: int) -> None:
    """In a worker, before anything is asked of it."""
    torch_data.get_worker_info().dataset.mapped = len(mapped_blocks())


def mapped_blocks() -> list[str]:
    """Blocks of batches: memory of a cache has a longer name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if line.endswith("/memfd:penstock (deleted)")]


def test_workers_may_read_a_batch_of_another_loader() -> None:
    first = next(iter(DataLoader(Blocks(), batch_size=4, num_workers=2)))
    wanted = float(first.sum())
    for _ in range(3):
        got = torch.cat(list(DataLoader(Blocks(first), batch_size=4, num_workers=2, timeout=40)))
        assert got[:, 0].tolist() == [wanted] * 40
        assert float(os.getpid()) not in got[:, 2].tolist()


def test_a_fork_of_the_program_may_read_a_batch_and_free_it() -> None:
    """What is freed there must not be the memory of something that has its address since."""
    batches = list(DataLoader(Blocks(), batch_size=4, num_workers=2))
    wanted = [batch[:, -1].tolist() for batch in batches]
    if (child := os.fork()) == 0:
        code = 1
        try:
            others = [mmap.mmap(-1, 1 << 20) for _ in range(40)]  # where there is room
            read = [batch[:, -1].tolist() for batch in batches]
            del batches
            gc.collect()
            for other in others:
                other.write(bytes(1 << 20))
            code = int(read != wanted)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_workers_keep_no_memory_of_batches_that_are_over() -> None:
    loader = DataLoader(Blocks(), batch_size=4, num_workers=2)
    batches = list(loader)
    first = batches[0]
    del batches
    gc.collect()
    assert len(mapped_blocks()) > 2, "blocks are kept for the next epoch"
    options: Any = {"worker_init_fn": look_at_memory, "timeout": 40}
    got = torch.cat(list(DataLoader(Blocks(first), batch_size=4, num_workers=2, **options)))
    assert got[:, 1].tolist() == [1.0] * 40, "that of the batch which they have"


class Numbers(torch_data.Dataset[torch.Tensor]):
    """Samples that tell who made them."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.tensor([index, os.getpid()])
