"""A data worker's work beside a training process, of which that is given nothing.

For each byte that comes through a pipe, the pictures of a step are made and encoded, as a data
worker does it for ``--way stage``. What a training process loses to it, with what it needs in
memory, is lost to the machine: caches, memory and clock that both cores share.
"""

from __future__ import annotations

import argparse
import os

import torch

from benchmarks.encoding.model import BATCH, Pictures, collated, encode


def main() -> None:
    """Until the pipe has no other end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--told", type=int, required=True, help="the pipe's end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pictures = Pictures(options.steps * BATCH)

    def make(step: int) -> None:
        first = step % options.steps * BATCH
        encode(collated([pictures[at] for at in range(first, first + BATCH)]))

    make(0)
    print("ready", flush=True)
    done = 0
    while os.read(options.told, 1):
        make(done)
        done += 1


if __name__ == "__main__":
    main()
