"""Which files the makers of batches open: some of them are read again, cold, when all is over.

An audit hook cannot be taken back, so that it is installed in loader workers and where the training
makes its batches itself, and only looks at a flag once it has seen enough.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

MOST_FILES: Final = 200
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NOT_DATA: Final = ("/proc/", "/sys/", "/dev/")
_CODE: Final = (".py", ".pyc", ".so")


class FilesOpened:
    """Paths that this process has opened for reading, as far as there is room."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self._looks = False
        self._installed = False

    def look(self, on: bool) -> None:
        """Begin or stop; batches are made between the two."""
        if on and not self._installed:
            self._installed = True
            sys.addaudithook(self._seen)
        self._looks = on

    def _seen(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._looks or event != "open" or len(self.paths) >= MOST_FILES:
            return
        path, _, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or (isinstance(flags, int) and flags & _WRITING):
            return
        try:
            path = os.path.abspath(path)  # noqa: PTH100 - links are not followed
        except OSError:  # the folder in which the program works is gone
            return
        if not path.startswith(_NOT_DATA) and not path.endswith(_CODE):
            self.paths.setdefault(path)
