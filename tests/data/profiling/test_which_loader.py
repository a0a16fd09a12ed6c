"""Which loader of which process is profiled: the one that is trained on, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.profiling.test_profile import profile_in, run_program

SHARED = """
import multiprocessing, subprocess, sys, tempfile, time
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, seconds, size=400):
        self.seconds, self.size = seconds, size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((4,), float(index))

class Trained(Rows):
    pass

class Held(Rows):
    pass

def train(loader, group=False, epochs=2):
    model = torch.nn.Linear(4, 1)
    if group:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for _ in range(epochs):
        for rows in loader:
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()
            time.sleep(0.002)
    return model
"""

VALIDATES_FIRST = (
    SHARED
    + """
if __name__ == "__main__":
    optimizer = torch.optim.SGD(torch.nn.Linear(4, 1).parameters(), 1e-6)
    held = DataLoader(Held(0.0005, 720), batch_size=8, num_workers=int(sys.argv[1]))
    for _ in range(2):
        for batch, rows in enumerate(held):  # as Trainer.evaluate asks for them: with gradients
            with torch.no_grad():
                time.sleep(0.02 * (batch % 7 == 0))
        train(DataLoader(Trained(0.003), batch_size=8, num_workers=int(sys.argv[1])))
    print("done")
"""
)

IN_A_FORK = (
    SHARED
    + """
def work():
    train(DataLoader(Trained(0.003), batch_size=8, num_workers=1))

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    print("done", process.exitcode)
"""
)

SPAWNED_RANKS = (
    SHARED
    + """
def work(rank, init):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    train(DataLoader(Trained(0.006 * rank), batch_size=8), group=True, epochs=3)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"file://{folder}/group",), nprocs=2)
    print("done")
"""
)

HELPED = (
    SHARED
    + """
if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    train(DataLoader(Trained(0.003), batch_size=8))
    print("done")
"""
)

FORK_SERVER = (
    SHARED
    + """
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=print)
    process.start()
    process.join()
    held = DataLoader(Held(0.0), batch_size=8, num_workers=1, multiprocessing_context=context)
    next(iter(held))
    train(
        DataLoader(
            Trained(0.003), batch_size=8, num_workers=1, multiprocessing_context=context,
            persistent_workers=True,
        ),
        epochs=3,
    )
    print("done")
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        pytest.param(VALIDATES_FIRST, ["0"], id="a validation comes first"),
        pytest.param(VALIDATES_FIRST, ["1"], id="a validation with a worker comes first"),
        pytest.param(IN_A_FORK, [], id="it trains in a process that was forked"),
        pytest.param(HELPED, [], id="a process that imports PyTorch ends before"),
        pytest.param(FORK_SERVER, [], id="workers of a fork server"),
    ],
)
def test_the_loader_that_is_trained_on_is_profiled(
    tmp_path: Path, program: str, arguments: list[str]
) -> None:
    done = run_program(tmp_path, program, *arguments, options=[])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("done")
    found = profile_in(tmp_path)
    assert found.keys["dataset"] == "Trained"
    assert found.blocked_seconds > 0.0025, "it sleeps 3 ms a sample"


@pytest.mark.slow
def test_ranks_that_are_known_by_their_process_group_alone_are_ranks(tmp_path: Path) -> None:
    done = run_program(tmp_path, SPAWNED_RANKS, options=[])
    assert done.returncode == 0, done.stderr
    found = profile_in(tmp_path)
    assert found.processes == 2
    assert found.blocked_seconds > 0.005, "rank 1 sleeps 6 ms a sample, and rank 0 none"
    assert any("ranks differ: rank 1 waits" in note for note in found.notes), found.notes
    assert not any("other loaders" in note for note in found.notes), found.notes
