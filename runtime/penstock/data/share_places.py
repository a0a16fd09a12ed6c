"""Where a group of programs on one machine meets: a folder of the user's own, with a socket.

`$XDG_RUNTIME_DIR/penstock/share/GROUP`, or below ``/tmp/penstock-UID`` where there is no such
folder. Programs that are started by hand, by cron or by another job find the same one: without the
variable that of the user's login is taken where it is there, and `$TMPDIR` is not asked. Nobody
else may look into it, and one that somebody else made is refused.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAX_PATH_BYTES: Final = 107
LOGINS: Final = Path("/run/user")
TEMPORARY: Final = Path("/tmp")  # noqa: S108 - a folder of the user's own is made there
GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
SOCKET: Final = "keeper.sock"
STARTING: Final = "starting.lock"
ALIVE: Final = "alive.lock"
STATE: Final = "keeper.json"
SUMMARY: Final = "last.json"
LOG: Final = "keeper.log"


def open_lock(path: Path) -> int:
    """A descriptor of a file to be locked, made if it is not there; never waits for anybody.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)


def checked_group(name: str) -> str:
    """A group's name; raises ValueError for what is none."""
    if not GROUP.fullmatch(name):
        raise ValueError(
            f"--share: {name!r}; a name of at most 40 small letters, digits and dashes, that "
            "begins and ends with a letter or digit"
        )
    return name


def is_private(folder: Path) -> bool:
    """Whether that is a folder of this user's that nobody else may look into."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    private = not stat.S_IMODE(found.st_mode) & 0o077
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private


def _of_login() -> str:
    """The folder that a login of this user has; empty where there is none."""
    folder = LOGINS / str(os.getuid())
    return str(folder) if is_private(folder) else ""


def _temporary() -> Path:
    return TEMPORARY if os.access(TEMPORARY, os.W_OK) else Path(tempfile.gettempdir())


def group_folder(group: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of a group, made if it is not there.

    Raises:
        OSError: it is somebody else's, others may look into it, or its name is too long.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "") or _of_login()
    base = Path(runtime) if runtime else _temporary() / f"penstock-{os.getuid()}"
    above = base / "penstock" if runtime else base
    for folder in (base, above, above / "share", above / "share" / group):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_private(folder):
            raise PermissionError(
                f"{folder}: it has to be a folder of this user's that nobody else may read; remove "
                "it, or set XDG_RUNTIME_DIR"
            )
    found_folder = above / "share" / group
    if len(os.fsencode(found_folder / SOCKET)) > MAX_PATH_BYTES:
        raise OSError(
            f"{found_folder / SOCKET}: a socket's name has at most {MAX_PATH_BYTES} bytes; set "
            "XDG_RUNTIME_DIR to a shorter folder"
        )
    return found_folder
