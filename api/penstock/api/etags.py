"""Entity tags of a job's plan in force: the job's revision, in quotes."""

from __future__ import annotations

import re
from typing import Final

_TAG: Final = re.compile(r'\s*(W/)?"([^"]*)"\s*(?:,|$)')
_REVISION: Final = re.compile(r"(0|[1-9][0-9]{0,8})")


class EtagError(Exception):
    """A header is not a list of entity tags."""


def etag(revision: int) -> str:
    """The tag of a revision."""
    return f'"{revision}"'


def required_revision(if_match: str | None) -> int | None:
    """The revision that an ``If-Match`` asks for; None where any will do.

    A tag that this service never gave matches nothing: -1.

    Raises:
        EtagError: A header is not a list of entity tags.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    tags = [tag for weak, tag in _tags("If-Match", if_match) if not weak]
    revisions = [int(tag) for tag in tags if _REVISION.fullmatch(tag)]
    # Several alternatives cannot be compared in one statement; the newest is the one meant.
    return max(revisions, default=-1)


def unchanged(if_none_match: str | None, revision: int) -> bool:
    """Whether an ``If-None-Match`` says that the caller has this revision already."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return str(revision) in {tag for _, tag in _tags("If-None-Match", if_none_match)}


def _tags(header: str, text: str) -> list[tuple[bool, str]]:
    found = []
    position = 0
    while position < len(text):
        match = _TAG.match(text, position)
        if match is None:
            raise EtagError(f'{header} = {text[:60]!r}: must be entity tags such as "12", or *')
        found.append((match[1] is not None, match[2]))
        position = match.end()
    return found
