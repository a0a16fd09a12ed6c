"""Datasets of pictures that are decoded, cropped, turned, made floats and jittered."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.data.test_stages import Compose


def decode(index: int) -> Image.Image:
    pixels = np.random.default_rng(index).integers(0, 256, (20, 24, 3), np.uint8)
    return Image.fromarray(pixels)


def crop(picture: Image.Image) -> Image.Image:
    left = random.randrange(8)
    return picture.crop((left, 2, left + 16, 18))


def to_array(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture)[:, ::-1] if np.random.rand() < 0.5 else np.asarray(picture)


def to_tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32) / 255)


class Jitter:
    """Draws from PyTorch's generator and Python's."""

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        return picture * torch.rand(1) + random.random() - picture.mean()


class Pictures:
    """As a folder of pictures has them; draws before and after its transforms too."""

    def __init__(self, transforms: list[Any] | None = None) -> None:
        self.transform = Compose(list(TRANSFORMS) if transforms is None else transforms)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        before = random.random()
        picture = self.transform(decode(index))
        return {"picture": picture, "drawn": (before, np.random.rand(), float(torch.rand(())))}


class Decoded:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return decode(index)


TRANSFORMS: list[Any] = [crop, to_array, to_tensor, Jitter()]


def collate(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples)
