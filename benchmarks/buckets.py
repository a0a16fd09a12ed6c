"""Steps of samples of like length, beside steps as they come: tf.data service's Fig. 11.

    python -m benchmarks.buckets --json

A step takes as long as its longest sample on its slowest rank. Lengths are drawn from a named
distribution, since everything depends on it: lognormal with mean and deviation of the logarithm of
4.6 and 0.9, cut to 4 and 512. The paper's models M5 to M8 have the paper's ranks and widths of
buckets (SoCC 23, section 4.4); their lengths are not published. ``speedup`` is the time of an epoch
without buckets by that with them, at a cost that is linear in the padded length; ``real`` the share
of tokens that are no padding; ``slowest`` the tokens of a step's slowest rank by the mean of all. A
small transformer is trained by two real processes over gloo as well, with and without in turns.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.goals import Goal, at_least, at_most, report
from benchmarks.programs import answer_of
from penstock.data.ledger import BucketOrder, Buckets, SampleOrder, Slot

LONGEST: Final = 512
SHORTEST: Final = 4
MEAN: Final = 4.6
DEVIATION: Final = 0.9
SAMPLES: Final = 200_000
BATCH: Final = 32
EPOCHS: Final = 2
RANKS: Final = 2
"""Of the real training."""
TRAINED: Final = 1024
REAL_WIDTH: Final = 64
LIMIT_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Model:
    """One of the paper's: its ranks, the width of its buckets, and what was published."""

    name: str
    ranks: int
    width: int
    published: float


MODELS: Final = (
    Model("M5", 64, 64, 1.62),
    Model("M6", 8, 128, 1.53),
    Model("M7", 64, 64, 3.5),
    Model("M8", 4, 128, 2.15),
)


def lengths_of(seed: int, count: int) -> NDArray[np.int64]:
    """Of so many samples."""
    drawn = np.exp(np.random.default_rng(seed).normal(MEAN, DEVIATION, count))
    return np.clip(drawn, SHORTEST, LONGEST).astype(np.int64)


@dataclass(frozen=True)
class Epoch:
    """What an epoch of an order comes to, in padded tokens."""

    steps: int
    time: float
    real: float
    slowest: float
    seen: int
    distinct: int


def measured(order: SampleOrder, lengths: NDArray[np.int64], epoch: int) -> Epoch:
    """All ranks pad their own batch to its longest sample, and wait for the slowest."""
    cost, tokens, padded, slowest, seen = 0.0, 0, 0, [], []
    for step in range(order.steps_per_epoch):
        parts = [order.samples(Slot(epoch, step, rank)) for rank in range(order.slots_per_step)]
        parts = [part for part in parts if len(part)]
        own = [len(part) * int(lengths[part].max()) for part in parts]
        real = [int(lengths[part].sum()) for part in parts]
        cost += max(own)
        tokens += sum(real)
        padded += sum(own)
        slowest.append(max(own) / fmean(own))
        seen += parts
    everything = np.concatenate(seen)
    return Epoch(
        order.steps_per_epoch,
        cost,
        tokens / padded,
        fmean(slowest),
        len(everything),
        len(np.unique(everything)),
    )


def row_of(model: Model, seed: int) -> dict[str, Any]:
    """One model, with buckets and without."""
    lengths = lengths_of(seed, SAMPLES)
    shape = (SAMPLES, BATCH * model.ranks, model.ranks, EPOCHS, seed)
    plain = measured(SampleOrder(*shape), lengths, 0)
    buckets = Buckets.of(lengths, range(model.width, LONGEST + 1, model.width))
    order = BucketOrder(*shape, buckets=buckets)
    found = [measured(order, lengths, epoch) for epoch in range(EPOCHS)]
    wrong = sum(one.seen != SAMPLES or one.distinct != SAMPLES for one in found)
    return {
        "model": model.name,
        "ranks": model.ranks,
        "buckets_of": model.width,
        "speedup": round(plain.time / median(one.time for one in found), 2),
        "published": model.published,
        "steps": found[0].steps,
        "steps_without": plain.steps,
        "real": round(fmean(one.real for one in found), 3),
        "real_without": round(plain.real, 3),
        "slowest": round(fmean(one.slowest for one in found), 3),
        "epochs_with_lost_or_repeated": wrong,
    }


def trained(seed: int, width: int) -> tuple[float, list[int]]:
    """Seconds of an epoch of two real ranks, and the samples that they saw."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = [sys.executable, "-m", "benchmarks.buckets_programs.train", "--world", str(RANKS)]
    common += ["--port", str(port), "--samples", str(TRAINED), "--seed", str(seed)]
    with ThreadPoolExecutor(RANKS) as ranks:
        answers = list(
            ranks.map(
                lambda rank: answer_of(
                    [*common, "--width", str(width), "--rank", str(rank)], LIMIT_SECONDS
                ),
                range(RANKS),
            )
        )
    return max(one["seconds"] for one in answers), [i for one in answers for i in one["seen"]]


def real_row(seed: int, rounds: int) -> dict[str, Any]:
    """Two ranks over gloo, with buckets and without in turns."""
    seconds: dict[int, list[float]] = {0: [], REAL_WIDTH: []}
    wrong = 0
    for _ in range(rounds):
        for width, found in seconds.items():
            time_taken, seen = trained(seed, width)
            found.append(time_taken)
            wrong += sorted(seen) != list(range(TRAINED))
    plain, bucketed = median(seconds[0]), median(seconds[REAL_WIDTH])
    return {
        "model": "small transformer, real",
        "ranks": RANKS,
        "buckets_of": REAL_WIDTH,
        "speedup": round(plain / bucketed, 2),
        "seconds": round(bucketed, 1),
        "seconds_without": round(plain, 1),
        "epochs_with_lost_or_repeated": wrong,
    }


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="of the real ranks")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    load, begun = [os.getloadavg()[0]], time.monotonic()
    rows = [row_of(model, options.seed) for model in MODELS]
    real = real_row(options.seed, options.rounds)
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_least("least speed-up", 1.5, min(row["speedup"] for row in rows)),
        at_least("mean speed-up", 2.2, round(fmean(row["speedup"] for row in rows), 2)),
        at_most("more steps", 0.01, max(row["steps"] / row["steps_without"] - 1 for row in rows)),
        at_least(
            "least share of real tokens, buckets of 64",
            0.8,
            min(row["real"] for row in rows if row["buckets_of"] == 64),
        ),
        at_most("slowest rank by the mean", 1.02, max(row["slowest"] for row in rows)),
        at_least("speed-up of two real ranks", 1.5, real["speedup"]),
        at_most(
            "epochs with lost or repeated samples",
            0,
            sum(row["epochs_with_lost_or_repeated"] for row in (*rows, real)),
        ),
    ]
    result = {
        "seed": options.seed,
        "load": load,
        "lengths": f"lognormal({MEAN}, {DEVIATION}), {SHORTEST} to {LONGEST}",
        "seconds": round(time.monotonic() - begun, 1),
        "rows": rows,
        "real": [real],
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
