"""Programs that know nothing of a cache: each reads pictures and arrays in its own way, and says
what it saw, as one JSON object.

    python -m benchmarks.cache_programs.pictures FOLDER KIND EPOCHS

``pil`` is what torchvision's ImageFolder does: a walk over folders of classes, ``open`` and
``Image.open(file).convert("RGB")``; ``ImageFolder`` has its own loader do so.
"""

from __future__ import annotations

import _io
import hashlib
import json
import os
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final


def _pil() -> Callable[[str], Any]:
    import numpy as np
    from PIL import Image

    def read(path: str) -> Any:
        with open(path, "rb") as file:  # noqa: PTH123 - as ImageFolder does
            return np.asarray(Image.open(file).convert("RGB"))

    return read


def _pil_by_path() -> Callable[[str], Any]:
    import numpy as np
    from PIL import Image

    def read(path: str) -> Any:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))

    return read


def _image_folder() -> Callable[[str], Any]:
    import numpy as np
    from torchvision.datasets.folder import default_loader

    return lambda path: np.asarray(default_loader(path))


def _cv2() -> Callable[[str], Any]:
    import cv2  # type: ignore[import-not-found]  # where it is not installed

    read: Callable[[str], Any] = cv2.imread
    return read


def _torchvision() -> Callable[[str], Any]:
    from torchvision.io import read_image

    return lambda path: read_image(path).numpy()


def _numpy() -> Callable[[str], Any]:
    import numpy as np

    return np.load


def _numpy_fromfile() -> Callable[[str], Any]:
    import numpy as np

    return lambda path: np.fromfile(path, np.uint8)


def _pathlib() -> Callable[[str], Any]:
    import numpy as np

    return lambda path: np.frombuffer(Path(path).read_bytes(), np.uint8)


KINDS: Final[dict[str, tuple[Callable[[], Callable[[str], Any]], str]]] = {
    "pil": (_pil, ".jpg"),
    "pil by path": (_pil_by_path, ".jpg"),
    "ImageFolder": (_image_folder, ".jpg"),
    "cv2": (_cv2, ".jpg"),
    "torchvision.io": (_torchvision, ".jpg"),
    "np.load": (_numpy, ".npy"),
    "np.fromfile": (_numpy_fromfile, ".npy"),
    "pathlib": (_pathlib, ".jpg"),
}
"""What reads a file, and which files."""


TIMED: Final = "pathlib"
"""The kind that also times ``open``."""


def files(folder: str, suffix: str) -> Iterator[str]:
    """As a walk over classes finds them."""
    for root, _, names in sorted(os.walk(folder)):
        yield from (str(Path(root, name)) for name in sorted(names) if name.endswith(suffix))


def overhead_ns() -> float:
    """What ``open`` of a file outside of all paths costs a core more than the system's own.

    Of many short turns the least, since other programs only make them longer.
    """
    path, times = sys.executable, 200
    plain = timeit.Timer(lambda: _io.open(path, "rb", 0).close(), timer=time.thread_time)
    # PTH123: what is timed is the builtin.
    ours = timeit.Timer(lambda: open(path, "rb", 0).close(), timer=time.thread_time)  # noqa: PTH123
    least = {each: float("inf") for each in (plain, ours)}
    for _ in range(100):
        for each, before in least.items():
            least[each] = min(before, each.timeit(times) / times)
    return (least[ours] - least[plain]) * 1e9


def main() -> None:
    """Read all files so many times."""
    folder, kind, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    make, suffix = KINDS[kind]
    read, digest, reads = make(), hashlib.sha256(), 0
    for _ in range(epochs):
        for path in files(folder, suffix):
            found = read(path)
            digest.update(repr((found.shape, found.dtype.str)).encode())
            digest.update(found.tobytes())
            reads += 1
    timed = {"open_ns": overhead_ns()} if kind == TIMED else {}
    print(json.dumps({"digest": digest.hexdigest(), "reads": reads, **timed}))


if __name__ == "__main__":
    main()
