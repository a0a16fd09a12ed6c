"""Where a sample's way is cut between data workers and the program, over a link that binds.

    python -m benchmarks.cuts --json

JPEG files are decoded, cropped and turned by a data worker, and made floats and normalised: four
times as many bytes. ``jittered`` changes brightness and contrast as floats in between, so that a
batch has more values than its coding can shorten; ``plain`` does not. Modes: ``whole batch`` as it
is, ``coded`` as data workers send it by default (`penstock.data.serving.link_coding`), ``tail
local``, where the program makes the floats (``PENSTOCK_DATA_CUT``), and ``decided``, where nobody
says anything and the training process finds out (`penstock.data.consuming.cut_chooser`).

``far`` has no link that binds: to open a file takes the data worker 5 ms, as if its storage were
far away, and the training process none. Modes: ``whole batch``, ``read local``, where it has the
files from the training process, and ``decided``. All modes of a case give the program the same
bits. They take turns; rates are medians over ``--rounds``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from PIL import Image

from benchmarks import programs
from benchmarks.coding import GIGABIT, TOKEN, WORKER, linked
from benchmarks.goals import Goal, at_least, report
from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.throughput.limits.cut import READ_LOCAL

FAR: Final = "far"
TAIL_MODES: Final = ("whole batch", "coded", "tail local", "decided")
READ_MODES: Final = ("whole batch", "read local", "decided")
CASES: Final = ("plain", "jittered", FAR)
OPEN_SECONDS: Final = 0.005
FAR_WORKER: Final = f"""
import builtins, io, os, time
plain, far = builtins.open, os.environ["FAR_FOLDER"]
def slowly(file, *more, **named):
    if str(file).startswith(far):
        time.sleep({OPEN_SECONDS})
    return plain(file, *more, **named)
builtins.open = io.open = slowly
{WORKER}"""
BATCH: Final = 64
FILES: Final = 64
SKIPPED: Final = 12
COUNTED: Final = 24
DECIDES_SECONDS: Final = 90.0
"""Until it is decided, at most; windows of some seconds are looked at."""
UNBOUND: Final = 0.0
STAYS: Final = "to_floats"
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
_SCALE: Final = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


def write_pictures(folder: Path) -> None:
    """JPEG files of 256 by 192."""
    source = np.random.default_rng(5)
    for number in range(FILES):
        coarse = source.integers(0, 256, (24, 32, 3), np.uint8)
        smooth = coarse.repeat(8, 0).repeat(8, 1).astype(np.int16)
        noise = source.integers(-9, 10, smooth.shape, np.int16)
        picture = Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))
        picture.save(folder / f"{number}.jpg", quality=85)


def crop(picture: Image.Image) -> Image.Image:
    """A place of 160 by 160 drawn at random."""
    left, top = random.randrange(97), random.randrange(33)
    return picture.crop((left, top, left + 160, top + 160))


def flip(picture: Image.Image) -> Image.Image:
    """Mirrored in one of two cases."""
    mirrored = Image.Transpose.FLIP_LEFT_RIGHT
    return picture.transpose(mirrored) if random.random() < 0.5 else picture


def to_floats(picture: Image.Image) -> np.ndarray:
    """As ToTensor has it."""
    floats: np.ndarray = np.asarray(picture).transpose(2, 0, 1).astype(np.float32)
    floats /= np.float32(255)
    return floats


def jitter(floats: np.ndarray) -> np.ndarray:
    """Another contrast and brightness for each picture and colour."""
    scale = np.random.uniform(0.8, 1.2, (3, 160, 1)).astype(np.float32)
    jittered: np.ndarray = floats * scale
    return jittered


def normalise(floats: np.ndarray) -> np.ndarray:
    """As Normalize has it."""
    normalised: np.ndarray = (floats - _MEAN) / _SCALE
    return normalised


class Compose:
    """As torchvision has it."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        """Through all, one after the other."""
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Pictures:
    """A folder of pictures, as ImageFolder has it."""

    def __init__(self, folder: Path, case: str, samples: int) -> None:
        self._paths = sorted(folder.glob("*.jpg"))
        self._samples = samples
        floats = [to_floats, jitter] if case == "jittered" else [to_floats]
        self.transform = Compose([crop, flip, *floats, normalise])

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Any:
        """A picture and its class."""
        with Image.open(self._paths[index % len(self._paths)]) as opened:
            picture = opened.convert("RGB")
        return self.transform(picture), index % 10


def epoch(case: str, mode: str, bytes_per_second: float, folder: Path) -> dict[str, Any]:
    """One epoch in one mode."""
    os.environ.pop(names.DATA_CUT, None)
    if mode != "decided":
        os.environ[names.DATA_CUT] = {"tail local": STAYS, READ_LOCAL: READ_LOCAL}.get(mode, "")
    consumer = Consumer(token=TOKEN, share_memory=False)
    variables = {**os.environ, names.LINK_CODING: "0" if mode == "whole batch" else "1"}
    variables["FAR_FOLDER"] = str(folder)
    if case == FAR:
        bytes_per_second = UNBOUND
    with linked(consumer.address, bytes_per_second) as address:
        program = FAR_WORKER if case == FAR else WORKER
        command = [sys.executable, "-c", program, address, TOKEN]
        with subprocess.Popen(command, env=variables) as worker:
            try:
                return _epoch(consumer, Pictures(folder, case, 100_000 * BATCH), mode)
            finally:
                programs.end(worker)
                consumer.close()
                os.environ.pop(names.DATA_CUT, None)


def _epoch(consumer: Consumer, pictures: Pictures, mode: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not consumer.workers:
        if time.monotonic() > deadline:
            raise RuntimeError("no data worker came")
        time.sleep(0.01)
    deadline = time.monotonic() + DECIDES_SECONDS
    loader = Loader(pictures, BATCH, seed=1, consumer=consumer)
    digest, counted, received, begun = hashlib.sha256(), 0, 0, 0.0
    for number, (batch, _) in enumerate(loader):
        if number < SKIPPED:
            digest.update(batch.tobytes())
        settled = mode != "decided" or loader._chooser.is_settled or time.monotonic() > deadline
        if begun:
            counted += 1
        elif number >= SKIPPED and settled:
            begun, received = time.monotonic(), consumer.counts.received_bytes
        if counted == COUNTED:
            break
    return {
        "rate": COUNTED / (time.monotonic() - begun),
        "wire": (consumer.counts.received_bytes - received) / COUNTED,
        "cut": loader._chooser.cut,
        "digest": digest.hexdigest(),
    }


def main() -> int:
    """Measure all modes of both cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES), help="of these, separated by commas")
    parser.add_argument("--gigabits", type=float, default=1.0, help="a second, of the link")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source, load = random.Random(options.seed), [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_pictures(folder)
        for case in options.cases.split(","):
            modes = READ_MODES if case == FAR else TAIL_MODES
            found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
            for _ in range(options.rounds):
                for mode in source.sample(modes, len(modes)):
                    found[mode].append(epoch(case, mode, options.gigabits * GIGABIT, folder))
            rates = {mode: median(one["rate"] for one in found[mode]) for mode in modes}
            rows += [
                {
                    "case": case,
                    "mode": mode,
                    "batches_per_second": round(rates[mode], 2),
                    "megabytes_a_batch": round(median(one["wire"] for one in found[mode]) / 1e6, 2),
                    "cut_by_itself": ", ".join(one["cut"] for one in found[mode]),
                }
                for mode in modes
            ]
            digests = {one["digest"] for of in found.values() for one in of}
            cut = READ_LOCAL if case == FAR else "tail local"
            best = max(rates["whole batch"], rates.get("coded", 0.0))
            goals += [
                at_least(f"{case}: {cut} by whole batch", 1.5, rates[cut] / rates["whole batch"]),
                at_least(f"{case}: decided by the better whole one", 0.95, rates["decided"] / best),
                at_least(f"{case}: modes with the same bits", 1, 1 / len(digests)),
            ]
    load.append(os.getloadavg()[0])
    result = {"seed": options.seed, "load": load, "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
