"""Write a small folder of JPEG files in the layout of ImageNet: one folder per class.

The pictures are waves under noise, of the size that ImageNet's have on average (500 x 375, some
100 KB); direction and colour of the waves are the class, so that there is something to learn. It
stands in for the real data set, which cannot be handed out here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375


def make_picture(label: int, classes: int, chance: np.random.Generator) -> Image.Image:
    """One picture of a class."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    angle = np.pi * label / classes
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) / 9 + chance.uniform(0, 2 * np.pi))
    colour = 60 * np.cos(2 * np.pi * (label / classes + np.arange(3) / 3))
    coarse = chance.normal(128, 25, (HEIGHT // 12, WIDTH // 12, 3)).clip(0, 255).astype(np.uint8)
    ground = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT)), np.float64)
    pixels = ground + wave[..., None] * 40 + colour + chance.normal(0, 14, (HEIGHT, WIDTH, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_pictures(folder: Path, classes: int, count: int, seed: int) -> None:
    """Write so many training pictures of each class, and a quarter as many for validation."""
    chance = np.random.default_rng(seed)
    for part, number in (("train", count), ("val", max(1, count // 4))):
        for label in range(classes):
            target = folder / part / f"class{label:04}"
            target.mkdir(parents=True, exist_ok=True)
            for which in range(number):
                picture = make_picture(label, classes, chance)
                picture.save(target / f"{which:06}.jpg", quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("build/imagenet"))
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--images", type=int, default=200, help="for training, of each class")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_pictures(options.data, options.classes, options.images, options.seed)
    print(f"{options.classes} classes of {options.images} pictures in {options.data}")


if __name__ == "__main__":
    main()
