"""The file of a profile: read within its bounds, and written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.profile import LARGEST_BYTES, Profile, loads


def read(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        ProfileError: there is none.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)  # a device may have no end
        if len(content) > LARGEST_BYTES:
            raise ProfileError(f"{path}: more than {LARGEST_BYTES} bytes are no profile")
        return loads(content.decode())
    except FileNotFoundError:
        raise ProfileError(
            f"{path}: No such file; make one with penstock profile -- python train.py"
        ) from None
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: it is no profile: make one with penstock profile") from None
    except ProfileError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise ProfileError(f"{path}: {error}") from error


def write(path: Path, profile: Profile) -> None:
    """Write a profile; what was in the file before stays until all of this is there.

    Where only the file itself may be written, or it is a pipe or a device, it is written in place.

    Raises:
        OSError: it cannot be; the file is as it was.
    """
    target = path.resolve()
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        target.write_text(profile.dumps(), encoding="utf-8")
        return
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        part.write_text(profile.dumps(), encoding="utf-8")
        part.replace(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise
