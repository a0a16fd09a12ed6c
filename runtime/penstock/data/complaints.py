"""What went wrong and is said to the program's owner, each thing but once and not without end.

What goes wrong with one batch mostly goes wrong with the next too. Numbers and the sample it
happened at do not make it another complaint.
"""

from __future__ import annotations

import logging
import re
from typing import Final

logger = logging.getLogger(__name__)

MAX_COMPLAINTS: Final = 1000
_VARIES: Final = re.compile(r"sample [^:]{1,100}: |\d+")


class Complaints:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def add(self, subject: str, what: str, level: int = logging.WARNING) -> None:
        """Say it, unless it was said of this subject."""
        complaint = (subject, _VARIES.sub("", what))
        if complaint not in self._said and len(self._said) < MAX_COMPLAINTS:
            self._said.add(complaint)
            logger.log(level, "%s %s", subject, what)
