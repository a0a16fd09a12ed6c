"""Unmodified programs with ``penstock run --cache`` and without: what the cache sees of their
reads, and whether they see the same bits."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from benchmarks.cache_programs.pictures import KINDS
from benchmarks.caching.daemons import daemon
from benchmarks.programs import PENSTOCK

NEEDS: Final = {"ImageFolder": "torchvision", "cv2": "cv2", "torchvision.io": "torchvision"}
CLASSES: Final = 4
EDGE: Final = 96
EPOCHS: Final = 2
MEMORY: Final = 256 << 20
LIMIT_SECONDS: Final = 300.0


def make_pictures(folder: Path, count: int, seed: int) -> Path:
    """Folders of classes with pictures, and an array beside each."""
    source = np.random.default_rng(seed)
    for number in range(count):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        array = source.integers(0, 256, (EDGE, EDGE, 3), np.uint8)
        Image.fromarray(array).save(place / f"{number:04d}.jpg", quality=90)
        np.save(place / f"{number:04d}.npy", array)
    return folder.resolve()


def program_row(folder: Path, kind: str) -> dict[str, Any]:
    """One kind of program."""
    program = [sys.executable, "-m", "benchmarks.cache_programs.pictures"]
    program += [str(folder), kind, str(EPOCHS)]
    plain = _answer(program, {})
    with daemon(folder, MEMORY) as one:
        command = [PENSTOCK, "run", "--cache", "256MiB", "--cache-path", str(folder), "--"]
        cached = _answer([*command, *program], {"PENSTOCK_CACHE_SOCKET": one.place})
        found = one.stat(folder)
    outside = {}
    if "open_ns" in cached:
        outside = {"open_outside_ns": round(cached["open_ns"], 1)}
        outside["without_cache_ns"] = round(plain["open_ns"], 1)  # of the same function twice
    return {
        "program": kind,
        "reads": cached["reads"],
        "seen": round(found["seen"] / cached["reads"], 4),
        "hits": round(found["hits"] / cached["reads"], 4),
        "same_bits": cached["digest"] == plain["digest"],
        **outside,
    }


def _answer(command: list[str], more: dict[str, str]) -> Any:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
        env={**os.environ, **more},
    )
    return json.loads(done.stdout.splitlines()[-1])


def program_rows(folder: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """All kinds whose libraries are there; the others say so."""
    pictures = make_pictures(folder, count, seed)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        library = NEEDS.get(kind)
        if library is not None and importlib.util.find_spec(library) is None:
            rows.append({"program": kind, "not_run": f"{library} is not installed"})
        else:
            rows.append(program_row(pictures, kind))
    return rows
