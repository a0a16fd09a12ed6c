"""A training program whose stalls are known: so much reading, computing, collating, and training.

It knows nothing of Penstock. Reading is a sleep, computing a loop on the clock of its thread, and
training a sleep, as on an accelerator. Every batch brings along when each of its parts began and
ended; at the end the program lays them over the times for which it waited, and prints for each
batch the seconds by cause. What a part took beyond what was planted is time without a core.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

FETCH, DECODE, AUGMENT, COLLATE = range(4)
CAUSES = ("fetch", "decode", "augment", "collate")
Part = tuple[float, float, float, float]
"""A cause, when it began and ended, and the seconds of it that were planted."""


def burn(seconds: float) -> None:
    """Compute for so many seconds of this thread's CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Computes:
    """A transform of a known cost."""

    def __init__(self, cause: int, seconds: float) -> None:
        self.__name__ = CAUSES[cause]
        self._cause = cause
        self._seconds = seconds

    def __call__(self, parts: list[Part]) -> list[Part]:
        """Samples differ by up to a fifth."""
        begun = time.monotonic()
        seconds = self._seconds * random.uniform(0.8, 1.2)
        burn(seconds)
        return [*parts, (self._cause, begun, time.monotonic(), seconds)]


class Compose:
    """As torchvision's, which is not needed for this."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        """Each after the other."""
        for transform in self.transforms:
            value = transform(value)
        return value


class Planted(Dataset):
    """Samples that are nothing but what they cost."""

    def __init__(self, fetch: float, decode: float, augment: float, samples: int) -> None:
        self._fetch = fetch
        self._samples = samples
        costs = ((DECODE, decode), (AUGMENT, augment))
        self.transform = Compose([Computes(cause, cost) for cause, cost in costs if cost])

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> list[Part]:
        begun = time.monotonic()
        parts: list[Part] = []
        if self._fetch:
            time.sleep(self._fetch)
            parts.append((FETCH, begun, time.monotonic(), self._fetch))
        done: list[Part] = self.transform(parts)
        return done


class Collates:
    """The parts of all samples, after work of a known cost."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, samples: Sequence[list[Part]]) -> torch.Tensor:
        """Rows are parts; a row of its own is the collating."""
        begun = time.monotonic()
        burn(self._seconds)
        rows = [part for sample in samples for part in sample]
        rows.append((COLLATE, begun, time.monotonic(), self._seconds))
        return torch.tensor(rows, dtype=torch.float64)


def waited_for(parts: Sequence[Part], begin: float, end: float) -> dict[str, float]:
    """Seconds by cause of a wait for the batch of these parts; they sum to the wait.

    Between two parts of a batch there is nothing to do: what lies there, but for microseconds, is
    time without a core, and counts to the part that follows.
    """
    found: dict[str, float] = {}
    inside = 0.0
    last = parts[0][1]
    for cause, _, ended, planted in parts:
        begun, last = last, ended
        common = min(ended, end) - max(begun, begin)
        if common <= 0:
            continue
        inside += common
        own = common * min(1.0, planted / (ended - begun))
        name = CAUSES[int(cause)]
        found[name] = found.get(name, 0.0) + own
        found["too few cores"] = found.get("too few cores", 0.0) + common - own
    found["rest"] = end - begin - inside
    return found


def main() -> None:
    """Train for some batches."""
    parser = argparse.ArgumentParser()
    for name in ("fetch", "decode", "augment", "collate", "step"):
        parser.add_argument(f"--{name}-ms", type=float, default=0.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = {name: value / 1000 for name, value in vars(options).items() if name.endswith("_ms")}
    dataset = Planted(
        seconds["fetch_ms"],
        seconds["decode_ms"],
        seconds["augment_ms"],
        options.batches * options.batch_size,
    )
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        num_workers=options.workers,
        collate_fn=Collates(seconds["collate_ms"]),
    )
    taken: list[tuple[torch.Tensor, float, float]] = []
    asked = time.monotonic()
    for batch in loader:
        taken.append((batch, asked, time.monotonic()))
        time.sleep(seconds["step_ms"])
        asked = time.monotonic()
    batches = [
        {
            "asked": asked,
            "returned": returned,
            "causes": waited_for([tuple(row) for row in batch.tolist()], asked, returned),
        }
        for batch, asked, returned in taken
    ]
    print(json.dumps(batches), flush=True)


if __name__ == "__main__":
    main()
