"""The input pipelines of `benchmarks.feed`: map-style PyTorch datasets, as programs have them.

Each sample is (tensor, number of the process that made it).
"""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Dataset

from benchmarks.dataplane.workloads import Text as TextSamples

EPOCH_SAMPLES: Final = 1 << 24
"""So many that no epoch ends while it is measured."""
PIXELS: Final = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SMALL_BYTES: Final = 64 << 10
SMALL_BATCH, TEXT_BATCH = 64, 64
PICTURE_BYTES: Final = 3 * PIXELS * PIXELS * 4


class Endless(Dataset[tuple[torch.Tensor, int]]):
    """A dataset whose epochs do not end."""

    def __len__(self) -> int:
        return EPOCH_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.make(index), os.getpid()

    def make(self, index: int) -> torch.Tensor:
        """The sample of that index."""
        raise NotImplementedError


class Jpeg(Endless):
    """Read a JPEG file, decode it, crop, flip and normalise: float32 of 3 x 224 x 224.

    With torchvision's transforms where it is installed, otherwise the same by Pillow and PyTorch.
    """

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))
        self.transform = _torchvision_transform()

    def make(self, index: int) -> torch.Tensor:
        from PIL import Image

        image = Image.open(self.files[index % len(self.files)]).convert("RGB")
        if self.transform is not None:
            done: torch.Tensor = self.transform(image)
            return done
        side = random.randint(min(image.size) // 2, min(image.size))
        left = random.randint(0, image.width - side)
        top = random.randint(0, image.height - side)
        image = image.resize(
            (PIXELS, PIXELS), Image.Resampling.BILINEAR, (left, top, left + side, top + side)
        )
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)


class Ready(Endless):
    """Pictures that are there already; a wait before each, as for storage far away."""

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self.picture = torch.rand(3, PIXELS, PIXELS)
        self.wait_seconds = wait_seconds

    def make(self, index: int) -> torch.Tensor:
        if self.wait_seconds:
            time.sleep(self.wait_seconds)
        return self.picture


class Text(Endless):
    """Split a text into words and look them up: 512 numbers."""

    def __init__(self) -> None:
        self.samples = TextSamples()

    def make(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.samples[index][0])


class Small(Endless):
    """Samples of which a batch is 64 KB."""

    def __init__(self) -> None:
        self.sample = torch.ones(SMALL_BYTES // SMALL_BATCH // 4)

    def make(self, index: int) -> torch.Tensor:
        return self.sample


KINDS: Final = ("jpeg", "ready", "sleep", "text", "small")


def batch_samples(kind: str, options: argparse.Namespace) -> int:
    """How many samples a batch of this pipeline has."""
    if kind in ("ready", "sleep"):
        return max(1, round(options.batch_mb * 1e6 / PICTURE_BYTES))
    return {"jpeg": int(options.jpeg_batch), "text": TEXT_BATCH, "small": SMALL_BATCH}[kind]


def batch_bytes(kind: str, samples: int) -> int:
    """The bytes of a batch of so many samples."""
    sample = {"text": 512 * 8, "small": SMALL_BYTES // SMALL_BATCH}
    return samples * sample.get(kind, PICTURE_BYTES)


def make_dataset(kind: str, samples: int, folder: Path, sleep_seconds: float) -> Endless:
    """The pipeline of that name; ``sleep_seconds`` is the wait of a whole batch."""
    if kind == "jpeg":
        return Jpeg(folder)
    if kind in ("ready", "sleep"):
        return Ready(sleep_seconds / samples if kind == "sleep" else 0.0)
    return {"text": Text, "small": Small}[kind]()


def write_pictures(folder: Path, count: int, seed: int) -> None:
    """JPEG files of 500 x 375 and some 100 KB, as photographs have."""
    from PIL import Image

    chance = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture = np.full((375, 500, 3), 128.0)
        for cells, power in ((4, 60), (16, 35), (64, 20), (500, 11)):
            coarse = chance.normal(128, power, (max(2, cells * 3 // 4), cells, 3)).clip(0, 255)
            fine = Image.fromarray(coarse.astype(np.uint8)).resize((500, 375))
            picture += np.asarray(fine, np.float64) - 128
        image = Image.fromarray(picture.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:05}.jpg", quality=92)


def has_torchvision() -> bool:
    """Whether torchvision is installed."""
    return _torchvision_transform() is not None


def _torchvision_transform() -> Any:
    try:
        from torchvision.transforms import v2
    except ImportError:
        return None
    return v2.Compose(
        [
            v2.RandomResizedCrop(PIXELS, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )
