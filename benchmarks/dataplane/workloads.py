"""The four input pipelines of `benchmarks.loader`: what real ones spend their time on, made up.

All are map-style datasets of NumPy samples with a cost that does not depend on the disk.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH = {"jpeg": 32, "float": 32, "audio": 16, "text": 64}


class Jpeg:
    """Decode a JPEG file of 500x375, crop, resize to 224x224, flip; uint8."""

    def __init__(self) -> None:
        from PIL import Image

        y, x = np.mgrid[0:375, 0:500]
        waves = [
            np.sin(x / f) * 90 + np.cos(y / g) * 30 + 128 for f, g in ((9, 5), (21, 13), (5, 31))
        ]
        noise = np.random.default_rng(0).normal(0, 8, (375, 500, 3))
        file = io.BytesIO()
        picture = np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(file, "JPEG", quality=90)
        self.data = file.getvalue()

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        image = Image.open(io.BytesIO(self.data)).convert("RGB")
        left, top = np.random.randint(0, 100), np.random.randint(0, 80)
        image = image.crop((left, top, left + 290, top + 290)).resize((224, 224))
        pixels = np.asarray(image)
        return (pixels[:, ::-1] if index % 2 else pixels).copy(), index % 10


class Float:
    """Normalise and jitter a picture of 224x224 to float32: large samples, cheap to make."""

    def __init__(self) -> None:
        self.picture = np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        pixels = self.picture.astype(np.float32) / np.float32(255)
        pixels -= pixels.mean((0, 1))
        pixels /= pixels.std((0, 1)) + np.float32(1e-6)
        return pixels * np.float32(1 + np.random.rand() / 10), index % 10


class Audio:
    """A log spectrogram of four seconds at 16 kHz."""

    def __init__(self) -> None:
        self.wave = np.random.default_rng(0).normal(0, 1, 64_000).astype(np.float32)
        self.window = np.hanning(400).astype(np.float32)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        wave = np.roll(self.wave, np.random.randint(1000))
        frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160] * self.window
        return np.log1p(np.abs(np.fft.rfft(frames, 512))).astype(np.float32), index % 10


class Text:
    """Split a text into words, look them up and pad: small samples in pure Python."""

    def __init__(self) -> None:
        chance = np.random.default_rng(0)
        self.words = ["".join(chance.choice(list("abcdefgh"), 5)) for _ in range(5000)]
        self.ids = {word: number for number, word in enumerate(self.words)}
        self.text = " ".join(chance.choice(self.words, 400))

    def __getitem__(self, index: int) -> tuple[Any, int]:
        tokens = [self.ids.get(word.lower().strip(".,"), 0) for word in self.text.split()]
        row = np.zeros(512, np.int64)
        row[: len(tokens)] = tokens
        return row, index % 10


KINDS: dict[str, Callable[[], Any]] = {"jpeg": Jpeg, "float": Float, "audio": Audio, "text": Text}


def collate(samples: list[tuple[Any, int]]) -> dict[str, Any]:
    """The same batch for every system."""
    return {
        "x": np.stack([sample for sample, _ in samples]),
        "y": np.array([label for _, label in samples]),
    }
