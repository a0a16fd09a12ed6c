"""The folder of one session, which goes with it; one whose session was killed goes with the next.

A session holds a lock on a file in its folder for as long as it lives, however it ends, so that a
folder whose lock is free is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "penstock-profile-"
MOST_LEFT: Final = 100
"""Of folders that are looked at."""
_OWNER: Final = "owner"


@contextmanager
def record_folder() -> Iterator[Path]:
    """A new folder.

    Raises:
        OSError: there can be none.
    """
    _remove_left(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(descriptor)


def _remove_left(parent: Path) -> None:
    """Remove what killed sessions of this user have left; what cannot be looked at stays."""
    with contextlib.suppress(OSError):
        for folder in sorted(parent.glob(f"{PREFIX}*"))[:MOST_LEFT]:
            with contextlib.suppress(OSError):
                if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                    continue
                if _is_nobodys(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_nobodys(folder: Path) -> bool:
    """A folder that has no lock file yet is about to get one."""
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
