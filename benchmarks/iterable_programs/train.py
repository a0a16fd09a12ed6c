"""A program that streams its samples, as people write them: WebDataset or Hugging Face.

It knows nothing of who feeds it. Each epoch it prints what it saw: how many samples, how many
different ones, and a digest of their order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader


class Slowly:
    """A transform that takes its time, as decoding does."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: Any) -> Any:
        time.sleep(self.seconds)
        return sample


def tar_stream(folder: Path, seconds: float) -> Any:
    """Tar files whose samples are shuffled in a buffer, batched by the dataset itself."""
    import webdataset

    paths = sorted(str(path) for path in folder.glob("*.tar"))
    stream = webdataset.WebDataset(paths, shardshuffle=False, nodesplitter=webdataset.split_by_node)
    return (
        stream.shuffle(64, seed=1).decode().to_tuple("npy", "cls").map(Slowly(seconds)).batched(8)
    )


def hugging_face_stream(folder: Path, seconds: float) -> Any:
    """Parquet files, streamed and shuffled in a buffer."""
    import datasets

    files = sorted(str(path) for path in folder.glob("*.parquet"))
    cache = str(folder / "cache")
    stream: Any = datasets.load_dataset(
        "parquet", data_files=files, split="train", streaming=True, cache_dir=cache
    )
    return stream.shuffle(seed=1, buffer_size=64).map(Slowly(seconds))


def values_of(batches: Iterable[Any]) -> Iterable[list[int]]:
    """The numbers of the samples of each batch."""
    for batch in batches:
        values = batch["value"] if isinstance(batch, dict) else batch[1]
        yield [int(value) for value in values]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["tar", "hugging-face"], required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.005)
    options = parser.parse_args()
    torch.manual_seed(1)
    if options.kind == "tar":
        dataset = tar_stream(options.data, options.seconds)
        loader = DataLoader(dataset, batch_size=None, num_workers=options.workers)
    else:
        dataset = hugging_face_stream(options.data, options.seconds)
        loader = DataLoader(dataset, batch_size=8, num_workers=options.workers)
    for epoch in range(options.epochs):
        if options.kind == "hugging-face":
            dataset.set_epoch(epoch)
        began, seen, order = time.perf_counter(), [], hashlib.sha256()
        for values in values_of(loader):
            seen += values
            order.update(str(values).encode())
        row = {
            "epoch": epoch,
            "samples": len(seen),
            "different": len(set(seen)),
            "order": order.hexdigest()[:16],
            "seconds": round(time.perf_counter() - began, 3),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
