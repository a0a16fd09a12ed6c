"""One rank of a small transformer that trains on texts of different lengths, over gloo."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from penstock.data import Loader
from penstock.data.ledger import Buckets
from penstock.sim.sharing.steps import LONGEST, lengths_of

WORDS = 1000
WIDTH = 64


class Texts:
    """Random words; a sample knows its index."""

    def __init__(self, lengths: np.ndarray) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        drawn = torch.Generator().manual_seed(index)
        return index, torch.randint(1, WORDS, (int(self._lengths[index]),), generator=drawn)


def padded(samples: list[tuple[int, torch.Tensor]]) -> tuple[list[int], torch.Tensor]:
    """Indices, and words of shape ``(samples, longest)``, 0 where there are none."""
    indices, texts = zip(*samples, strict=True)
    return list(indices), nn.utils.rnn.pad_sequence(list(texts), batch_first=True)


class Classifier(nn.Module):
    """Two layers, a mean, and two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classes = nn.Linear(WIDTH, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of shape ``(samples, 2)``."""
        blank = words == 0
        found = self.layers(self.words(words), src_key_padding_mask=blank)
        scores: torch.Tensor = self.classes(found.masked_fill(blank[..., None], 0).mean(1))
        return scores


def main() -> None:
    """Train for one epoch after a warm-up step; print seconds and the samples seen."""
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "port", "samples", "seed", "width"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{options.port}",
        rank=options.rank,
        world_size=options.world,
    )
    lengths = lengths_of(options.seed, options.samples)
    buckets = None
    if options.width:
        buckets = Buckets.of(lengths, range(options.width, LONGEST + 1, options.width))
    loader: Any = Loader(
        Texts(lengths),
        16,
        seed=options.seed,
        collate=padded,
        index=options.rank,
        count=options.world,
        buckets=buckets,
    )
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def train(words: torch.Tensor, indices: list[int]) -> None:
        labels = torch.tensor([index % 2 for index in indices])
        nn.functional.cross_entropy(model(words), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    train(torch.ones(16, 64, dtype=torch.int64), [0] * 16)
    seen: list[int] = []
    distributed.barrier()
    begun = time.monotonic()
    for indices, words in loader:
        train(words, indices)
        seen += indices
    distributed.barrier()
    print(json.dumps({"seconds": time.monotonic() - begun, "seen": seen}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
