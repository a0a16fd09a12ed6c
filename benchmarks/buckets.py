"""Steps of samples of like length, beside steps as they come: tf.data service's Fig. 11.

    python -m benchmarks.buckets --json

A step takes as long as its longest sample on its slowest rank. Lengths are drawn from a named
distribution, since everything depends on it: lognormal with mean and deviation of the logarithm of
4.6 and 0.9, cut to 4 and 512. The paper's models M5 to M8 have the paper's ranks and widths of
buckets (SoCC 23, section 4.4); their lengths are not published. ``speedup`` is the time of an epoch
without buckets by that with them, at a cost that is linear in the padded length; ``real`` the share
of tokens that are no padding; ``slowest`` the tokens of a step's slowest rank by the mean of all. A
small transformer is trained by two real processes over gloo as well, with and without in turns.

``--peers tfdata`` has the real tf.data service form its coordinated reads of the same lengths,
buckets and ranks: padding on endless data, a dataset with an end, and a rank that is killed.
``--plot FILE`` draws Fig. 11: the published speed-ups beside ours.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from benchmarks import bucket_peers
from benchmarks.goals import Goal, at_least, at_most, report
from benchmarks.programs import answer_of
from penstock.data.ledger import BucketOrder, Buckets, SampleOrder
from penstock.sim.sharing.steps import (
    BATCH,
    DEVIATION,
    LONGEST,
    MEAN,
    MODELS,
    SHORTEST,
    Model,
    lengths_of,
    measured,
)

SAMPLES: Final = 200_000
EPOCHS: Final = 2
RANKS: Final = 2
"""Of the real training."""
TRAINED: Final = 1024
REAL_WIDTH: Final = 64
LIMIT_SECONDS: Final = 300.0


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


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw Fig. 11: bars of the published speed-ups and of ours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(rows))
    named = (("published", -0.2, "#9a9a9a"), ("speedup", 0.2, "#1f6f8b"))
    for key, offset, colour in named:
        label = "published" if key == "published" else "here, at a linear cost"
        bars = axes.bar(
            places + offset, [row[key] for row in rows], 0.38, color=colour, label=label
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(places, [f"as {row['model']}\n{row['ranks']} ranks" for row in rows])
    axes.set(ylabel="time without buckets by time with")
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="of the real ranks")
    parser.add_argument("--peers", choices=["none", "tfdata"], default="none")
    parser.add_argument("--plot", type=Path, help="draw Fig. 11 (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    load, begun = [os.getloadavg()[0]], time.monotonic()
    rows = [row_of(model, options.seed) for model in MODELS]
    real = real_row(options.seed, options.rounds)
    peers: dict[str, list[dict[str, Any]]] = {}
    peer_goals: list[Goal] = []
    if options.peers != "none":
        shapes = sorted({(model.ranks, model.width) for model in MODELS})
        peers, peer_goals = bucket_peers.compare(
            lengths_of(options.seed, SAMPLES), shapes, LONGEST, options.seed
        )
    if options.plot is not None:
        plot(rows, options.plot)
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
        *peer_goals,
    ]
    result = {
        "seed": options.seed,
        "load": load,
        "lengths": f"lognormal({MEAN}, {DEVIATION}), {SHORTEST} to {LONGEST}",
        "seconds": round(time.monotonic() - begun, 1),
        "rows": rows,
        "real": [real],
        **peers,
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
