"""One rank that takes steps of like length, with a checkpoint: it may be killed at any time.

    python -m benchmarks.buckets_programs.rank LENGTHS RANKS WIDTH LONGEST BATCH SEED FOLDER RANK

Its "model" is the list of samples that it has seen, written together with the loader's state in one
atomic step. Nobody waits for anybody: the order is a function of lengths, seed and epoch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from penstock.data import Loader
from penstock.data.ledger import Buckets

STEP_SECONDS = 0.02


def as_it_is(samples: list[int]) -> list[int]:
    """A batch is its samples' indices."""
    return samples


def main(arguments: list[str]) -> None:
    """One epoch, from the checkpoint if there is one."""
    file, folder, rank = Path(arguments[0]), Path(arguments[6]), int(arguments[7])
    ranks, width, longest, batch, seed = map(int, arguments[1:6])
    lengths = np.load(file)
    loader = Loader(
        range(len(lengths)),
        batch,
        seed=seed,
        collate=as_it_is,
        index=rank,
        count=ranks,
        buckets=Buckets.of(lengths, range(width, longest + 1, width)),
    )
    checkpoint = folder / f"rank-{rank}.json"
    seen: list[int] = []
    steps = 0
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        loader.load_state_dict(saved["loader"])
        seen, steps = saved["seen"], saved["steps"]
    for samples in loader:
        seen += samples
        steps += 1
        content = {"loader": loader.state_dict(), "seen": seen, "steps": steps}
        fresh = checkpoint.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.replace(checkpoint)
        time.sleep(STEP_SECONDS)
    (folder / f"done-{rank}.json").write_text(json.dumps({"seen": seen, "steps": steps}))


if __name__ == "__main__":
    main(sys.argv[1:])
