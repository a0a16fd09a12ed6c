"""One job over files that are kept as they are, and over what is made of them: CPU and bits.

Each form has a daemon of its own with memory for everything, and a program that loads all pictures
as an ImageFolder does, so many epochs. CPU is of the program's last epoch, and of the daemon's mean
one. Pictures have ImageNet's usual size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.caching.daemons import daemon
from penstock.crds import environment as names
from penstock.data.allocator import ALLOCATOR
from penstock.data.processes import cpu_seconds

MEMORY: Final = 1 << 30
WIDTH: Final = 500
HEIGHT: Final = 375
NOISE: Final = 16
LIMIT_SECONDS: Final = 300.0


def make_pictures(folder: Path, count: int, seed: int) -> None:
    """JPEG files with some detail."""
    from PIL import Image

    folder.mkdir(parents=True)
    source = np.random.default_rng(seed)
    for number in range(count):
        coarse = source.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        noise = source.integers(-NOISE, NOISE + 1, (HEIGHT, WIDTH, 3))
        pixels = (np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05d}.jpg", quality=90)


def form_row(folder: Path, form: str, epochs: int) -> dict[str, Any]:
    """What an epoch costs in one form, and a digest of all that was loaded."""
    with daemon(folder, MEMORY, more=["--private"]) as running:
        environ = {
            **os.environ,
            **ALLOCATOR,
            names.CACHE_SOCKET: running.place,
            names.CACHE_PATHS: str(folder),
            names.CACHE_FORM: form,
        }
        before = cpu_seconds(running.process.pid)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cache_programs.folder", str(folder), str(epochs)],
            env=environ, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        found = json.loads(done.stdout)
        daemon_seconds = (cpu_seconds(running.process.pid) - before) / epochs
    cpu = found["cpu_seconds"]
    return {
        "form": form,
        "files": len(list(folder.iterdir())),
        "epochs": epochs,
        "first_epoch_cpu_seconds": round(cpu[0], 3),
        "daemon_cpu_seconds": round(daemon_seconds, 3),
        "epoch_cpu_seconds": round(cpu[-1] + daemon_seconds, 3),
        "digest": found["digest"],
    }
