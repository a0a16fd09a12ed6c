"""A program that loads a folder of pictures as torchvision's ImageFolder does.

    python -m benchmarks.cache_programs.folder FOLDER EPOCHS

Says the CPU seconds of each epoch and a digest of all pictures, as one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from penstock.data.cache.interception import install_from
from penstock.data.pipeline import Pipeline

BATCH = 16


def load(path: str) -> Any:
    """As torchvision's `pil_loader`."""
    with open(path, "rb") as file:  # noqa: PTH123 - as torchvision does
        return Image.open(file).convert("RGB")


class Pictures:
    """As an ImageFolder: `loader` is called with a path."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(str(file) for file in Path(folder).iterdir())
        self.loader = load

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.loader(self.files[index])


def main() -> None:
    """Load everything so many times."""
    install_from(os.environ)
    dataset, digest, spent = Pictures(sys.argv[1]), hashlib.sha256(), []
    pipeline = Pipeline(dataset, list)
    for epoch in range(int(sys.argv[2])):
        begun, pictures = time.process_time(), []
        for start in range(0, len(dataset), BATCH):
            indices = list(range(start, min(start + BATCH, len(dataset))))
            pictures += pipeline.make(epoch, indices)
        spent.append(time.process_time() - begun)
        for picture in pictures:
            digest.update(np.asarray(picture).tobytes())
    print(json.dumps({"cpu_seconds": spent, "digest": digest.hexdigest()}))


if __name__ == "__main__":
    main()
