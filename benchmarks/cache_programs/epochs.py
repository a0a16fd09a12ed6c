"""A job that reads all files of a folder again and again through a cache, in new orders, and works
for a while on each: one line of JSON an epoch, until its input ends.

    python -m benchmarks.cache_programs.epochs SOCKET FOLDER SEED RATE WORK_SECONDS
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from pathlib import Path

from benchmarks.caching.daemons import Files, Reader, Storage, patient


def main() -> None:
    """Epochs until nobody wants more."""
    place, folder, seed, rate, work = sys.argv[1:]
    names = sorted(Path(folder).iterdir())
    files = Files(Path(folder), tuple(one.stat().st_size for one in names))
    reader = Reader(patient(place), files, Storage(float(rate)))
    numbers, source = list(range(len(names))), random.Random(int(seed))
    while not select.select([sys.stdin], [], [], 0)[0]:
        source.shuffle(numbers)
        waited, read = 0.0, reader.storage.read_bytes
        for number in numbers:
            begun = time.perf_counter()
            reader.read(number)
            waited += time.perf_counter() - begun
            time.sleep(float(work))
        reader.client.send_notes()
        said = {"own_bytes": reader.storage.read_bytes - read, "waited": waited}
        print(json.dumps({"pid": os.getpid(), **said}), flush=True)


if __name__ == "__main__":
    main()
