"""Having the system give up what it keeps in memory of a file, without root and without harm.

Only of regular files: to open a FIFO is to let somebody go on who waits for its reader. Of a large
one only its begin is given up: a file of many gigabytes may have taken long to come over a network,
and a program that reads some of it for each sample would wait for all of it once more.
"""

from __future__ import annotations

import os
import stat
from typing import Final

LARGEST_BYTES: Final = 16 << 20
"""Of one file no more is given up, or read."""


def open_regular_file(path: str) -> int | None:
    """A descriptor for reading, which the caller closes; None: it is no regular file.

    Raises:
        OSError: it cannot be opened.
        ValueError: no file can have this name.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - paths are many, and short-lived
        return None
    # What has become a FIFO since is not waited for.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def give_up(descriptor: int) -> None:
    """Have the pages of its begin given up, as far as nobody has changed or mapped them.

    Raises:
        OSError: the system does not.
        AttributeError: it cannot be asked.
    """
    os.posix_fadvise(descriptor, 0, LARGEST_BYTES, os.POSIX_FADV_DONTNEED)
