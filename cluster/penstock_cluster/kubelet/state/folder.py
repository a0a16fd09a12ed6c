"""The folder in which one cluster keeps its pods: held by one kubelet, swept when it starts."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
from collections.abc import Container, Iterator
from pathlib import Path

_POD_FOLDER = re.compile(r"[a-z0-9-]+_[a-z0-9.-]+_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
SCRATCH = ("volumes", "tmp", "termination", "ports")
"""What of a pod's folder goes when the pod ends; its logs stay until it is deleted."""


class FolderInUseError(OSError):
    """Another cluster keeps its pods there."""


@contextlib.contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Make the folder and hold it: two clusters in one would remove each other's pods.

    The kernel lets go of it when this process ends, however it ends. Raises FolderInUseError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"{folder} holds the pods of a cluster that is running; choose another folder"
            ) from None
        yield


def remove_leftovers(folder: Path, present: Container[str]) -> None:
    """Remove what an earlier cluster could not: pods that are gone, scratch of those that ended.

    Only folders named as pods' are touched, so that a folder given by mistake loses nothing.
    """
    for entry in folder.iterdir():
        match = _POD_FOLDER.fullmatch(entry.name)
        if match is None or not entry.is_dir():
            continue
        if match.group(1) in present:
            remove_scratch(entry)
        else:
            shutil.rmtree(entry, ignore_errors=True)


def remove_scratch(pod_folder: Path) -> None:
    """Remove a pod's volumes (with the tokens in them) and temporary files."""
    for name in SCRATCH:
        shutil.rmtree(pod_folder / name, ignore_errors=True)
