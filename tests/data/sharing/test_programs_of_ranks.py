"""``penstock run --share --nproc-per-node 2``: the ranks of an unmodified program, as processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import patient

SCRIPT = textwrap.dedent(
    """
    import json, os, sys
    import torch
    from torch import distributed
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    class Pictures(Dataset):
        def __init__(self, device):
            self.device = device  # as programs have it, and no two ranks have the same
        def __len__(self):
            return 203
        def __getitem__(self, index):
            return torch.rand(3) + index, index

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    pictures = Pictures(f"cuda:{rank}")
    sampler = DistributedSampler(pictures)
    loader, evaluation = DataLoader(pictures, 16, sampler=sampler), DataLoader(pictures, 16)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = []
        for batch, indices in loader:
            seen += indices.tolist()
            distributed.all_reduce(batch.mean())
        epochs.append(seen)
        if rank == 0:  # nobody else does
            assert sum(len(indices) for _, indices in evaluation) == 203
    with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
        json.dump(epochs, file)
    """
)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="share-"))  # short, as names of sockets have to be
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["free", "common"])
def test_two_ranks_have_every_sample_once_in_each_epoch(folder: Path, order: str) -> None:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-c", "import sys; from penstock.cli.main import main; main()"]
    options = ("--share", "search", "--share-order", order, "--data-workers", "1")
    command += ["run", *options, "--nproc-per-node", "2", "--", str(script), str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        seen = list(itertools.chain(*(one[epoch] for one in ranks)))
        assert set(seen) == set(range(203))
        assert len(seen) <= 204, "more than a DistributedSampler repeats"
