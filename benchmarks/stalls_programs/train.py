"""A small training program whose input is real work: files, decoding, transforms.

It knows nothing of Penstock. ``--cached`` is the share of the files that stay in memory, as in a
cache that replaces nothing; the others are dropped from the page cache after each use, so that the
next is a read from the disk. It begins so, whatever another program has left in memory.
``--step-ms`` is what an accelerator takes for a batch, during which the host sleeps. At the end it
prints its speed in steady state, without the first batches of its loader's window, as one JSON
object.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

FILES = 256
REPEATS = 16
"""An epoch reads each file so often: of 16 batches, most waiting would be at its ends."""
_WORD = re.compile(r"[a-z]+|\d+")


def write_files(folder: Path, kind: str) -> None:
    """The dataset, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.default_rng(5)
    for index in range(FILES):
        path = folder / f"{index:04}.{kind}"
        if path.exists():
            continue
        if kind == "jpeg":
            coarse = source.integers(0, 256, (24, 24, 3), np.uint8)
            size = int(source.integers(220, 420))  # pictures differ in size, as pictures do
            Image.fromarray(coarse).resize((size, size)).save(path, "jpeg", quality=90)
        elif kind == "arrays":
            np.save(path.open("wb"), source.integers(0, 256, (160, 160, 3), np.uint8))
        else:
            words = [
                "".join(chr(97 + one) for one in source.integers(0, 26, 6)) for _ in range(200)
            ]
            count = int(source.integers(1500, 3000))
            path.write_text(" ".join(words[int(one)] for one in source.integers(0, 200, count)))
        with path.open("rb") as file:
            os.fsync(file.fileno())  # what is not on the disk is not dropped from memory


def forget(path: Path, *, really: bool = True) -> None:
    """Drop a file from the page cache, or only pay for asking to.

    In a program that drops nothing it is the kernel that has this work, and at other times: so what
    is kept must not be cheaper by it.
    """
    with path.open("rb", buffering=0) as file:
        advice = os.POSIX_FADV_DONTNEED if really else os.POSIX_FADV_NORMAL
        os.posix_fadvise(file.fileno(), 0, 0, advice)


class Compose:
    """As torchvision's, which is not needed for this."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        """Each after the other."""
        for transform in self.transforms:
            value = transform(value)
        return value


def crop(picture: Image.Image) -> Image.Image:
    """A random square, resized."""
    size = int(torch.randint(150, min(picture.size), (1,)))
    left = int(torch.randint(0, picture.width - size + 1, (1,)))
    top = int(torch.randint(0, picture.height - size + 1, (1,)))
    return picture.resize((128, 128), box=(left, top, left + size, top + size))


def flip(values: np.ndarray) -> np.ndarray:
    """Every other one."""
    return values[:, ::-1] if torch.rand(()) < 0.5 else values


def normalise(values: np.ndarray) -> torch.Tensor:
    """As floats, channels first."""
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1))).float().div_(255)


def blur(values: np.ndarray) -> np.ndarray:
    """Five points."""
    floats: np.ndarray = values.astype(np.float32)
    for axis in (0, 1):
        floats = (np.roll(floats, 1, axis) + floats + np.roll(floats, -1, axis)) / 3
    return floats


def tokens(text: str) -> torch.Tensor:
    """Hashes of words, cut to one length."""
    found = [hash(word) % 50_000 for word in _WORD.findall(text)]
    return torch.tensor((found + [0] * 1024)[:1024])


class Files(Dataset):
    """Samples in files."""

    def __init__(self, folder: Path, kind: str, cached: float = 1.0) -> None:
        self.paths = sorted(folder.glob(f"*.{kind}"))
        self.kept = round(cached * len(self.paths))
        self.kind = kind
        for number, path in enumerate(self.paths):
            path.read_bytes()
            forget(path, really=number >= self.kept)
        stages: dict[str, list[Callable[[Any], Any]]] = {
            "jpeg": [crop, np.asarray, flip, normalise],
            "arrays": [blur, flip, normalise],
            "text": [str.lower, tokens],
        }
        self.transform = Compose(stages[kind])

    def __len__(self) -> int:
        return REPEATS * len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        number = index % len(self.paths)
        content = self.paths[number].read_bytes()
        forget(self.paths[number], really=number >= self.kept)
        if self.kind == "jpeg":
            return self.transform(Image.open(io.BytesIO(content)).convert("RGB"))
        if self.kind == "arrays":
            return self.transform(np.load(io.BytesIO(content)))
        return self.transform(content.decode())


def main() -> None:
    """Train for some batches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kind", choices=("jpeg", "arrays", "text"), required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--cached", type=float, default=1.0)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--batches", type=int, default=150)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    write_files(options.folder, options.kind)
    loader = DataLoader(
        Files(options.folder, options.kind, options.cached),
        batch_size=16,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    skipped = 4 * options.workers + 4
    taken, begun, waited = 0, 0.0, 0.0
    while taken < skipped + options.batches:
        asked = time.perf_counter()
        for _ in loader:
            now = time.perf_counter()
            waited += now - asked
            time.sleep(options.step_ms / 1000)
            taken += 1
            asked = time.perf_counter()
            if taken == skipped:
                begun, waited = asked, 0.0
            if taken == skipped + options.batches:
                break
    seconds = asked - begun
    rate, stalled = 16 * options.batches / seconds, waited / seconds
    print(json.dumps({"rate": rate, "stalled": stalled}), flush=True)


if __name__ == "__main__":
    main()
