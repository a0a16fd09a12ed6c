"""One large file, read in part: of a tar or record file that a job reads, ranges are kept.

The part is read in each epoch either from its beginning to its end, in pieces of a megabyte, or in
records of the size of a picture, each once, in a new order. What is read of storage is what the
kernel counts for the daemon and for the program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.caching.daemons import MEAN_BYTES, daemon
from penstock.data.cache import interception
from penstock.data.cache.policy import RANGE_BYTES

BEGIN_SHARE: Final = 0.2
PART_SHARE: Final = 0.6
"""Of the file, what is read: from a fifth of it on."""
CACHED_SHARE: Final = 0.5
"""Of that part, what the cache has room for."""
EPOCHS: Final = 3


def make_file(path: Path, size: int, seed: int) -> None:
    """A file of random bytes."""
    source = np.random.default_rng(seed)
    with path.open("wb") as file:
        for at in range(0, size, RANGE_BYTES):
            file.write(source.bytes(min(RANGE_BYTES, size - at)))


def ranges_row(folder: Path, size: int, kind: str, seed: int) -> dict[str, Any]:
    """Epochs over a part of a file of so many bytes, ``in order`` or in ``records``."""
    path = folder / f"{kind.replace(' ', '-')}.tar"
    make_file(path, size, seed)
    begin = int(BEGIN_SHARE * size) // RANGE_BYTES * RANGE_BYTES
    count = int(PART_SHARE * size) // RANGE_BYTES
    part, source = count * RANGE_BYTES, np.random.default_rng(seed)
    piece = RANGE_BYTES if kind == "in order" else MEAN_BYTES
    places = np.arange(begin, begin + part, piece)
    wrong, read = 0, []
    with (
        path.open("rb", buffering=0) as plain,
        daemon(folder, int(CACHED_SHARE * count) * RANGE_BYTES, more=["--largest=1MiB"]) as one,
    ):
        interception.install(one.place, [str(folder)])
        try:
            for _ in range(EPOCHS):
                order = places if kind == "in order" else source.permutation(places)
                before = one.read_bytes + _own_bytes()
                compared = 0
                with open(path, "rb") as file:  # noqa: PTH123 - what programs call
                    for number, at in enumerate(order.tolist()):
                        wanted = min(piece, begin + part - at)
                        file.seek(at)
                        found = file.read(wanted)
                        if number % 16 == 0:
                            plain.seek(at)
                            wrong += found != plain.read(wanted)
                            compared += wanted
                read.append((one.read_bytes + _own_bytes() - before - compared) / part)
            installed = interception.installed()
            assert installed is not None
            installed.client.send_notes()
            said = one.stat(folder)
        finally:
            interception.uninstall()
    path.unlink()
    held = said["held_bytes"] / part
    return {
        "file_bytes": size,
        "read": kind,
        "part_bytes": part,
        "held": round(held, 4),
        "missed": [round(one, 4) for one in read],
        "worst_error": round(max(abs(one - (1 - held)) for one in read[1:]), 4),
        "wrong_pieces": wrong,
    }


def _own_bytes() -> int:
    """What this program has read; the files of ``/proc`` among it, some hundreds of bytes."""
    with open("/proc/self/io", buffering=1024) as lines:  # noqa: PTH123 - not through a cache
        return int(next(line for line in lines if line.startswith("rchar")).split()[1])
