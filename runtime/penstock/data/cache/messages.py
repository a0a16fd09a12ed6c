"""What a cache is asked and answers, in frames of `penstock.data.transport.frame`.

| kind    | from   | header                            | with it               |
|---------|--------|-----------------------------------|-----------------------|
| ASK     | client | version, path of the cache, file, range or 0, little | the file, open |
| FETCH   | daemon | path of the cache, file, size, mtime, range or 0, little |  |
| CONTENT | daemon | size, crc32 or None               | the bytes             |
| READING | daemon | (more follows, and takes longer)  |                       |
| OWN     | daemon | whether pages are to be dropped, full |                   |
| REFUSED | daemon | why                               |                       |
| ENTER   | client | version, path of the cache, part or None | the folder, open |
| GRANTED | daemon | bytes of the largest file that is kept whole | index or part, open |
| NOTE    | client | version, {path of the cache: {what: how many}}, job |     |
| DECODED | client | version, path of the cache, digest, parts | the file, open |
| PLACE   | daemon | part, start, size, crc32          | the part, open, or not |
| KEEP    | client | version, path of the cache, digest, bytes, crc32 | the file, open |
| STAT    | client | version                           | answer: STAT, report  |
| DROP    | client | version, path or None             | answer: STAT, report  |

DECODED asks for what a function made of a file. The answer is CONTENT, OWN, or, of a cache that is
one user's alone, PLACE: where it is in which part of the arena, with that part if the program does
not name it among those that it has. KEEP has such a result kept: READING says that it is to be sent
(CONTENT), and OWN, in any case, that this is done.

Clients (ASK, ENTER, NOTE, DECODED, KEEP, STAT, DROP) are on a Unix socket; daemons of other nodes
(FETCH) on TCP, after the handshake of the data plane and sealed. READING comes before storage is
read or another node waited for; at most `MOST_READINGS` of them, each with a wait of its own. OWN
means: read it from storage yourself. Of a range of which little is read, one that was not met
before is not kept. The name of a file is text, or bytes where it is none in UTF-8 (`written`,
`read_name`).
"""

from __future__ import annotations

import os
from typing import Any, Final

from penstock.data.errors import FrameError

NOTED: Final = frozenset({"unseen", "hits", "hit_bytes", "miss_bytes"})
"""What clients count by themselves, besides `penstock.data.cache.observed.TIMED`."""
CACHE_PROTOCOL_VERSION: Final = 3
(
    ASK,
    FETCH,
    CONTENT,
    READING,
    OWN,
    REFUSED,
    NOTE,
    STAT,
    DROP,
    ENTER,
    GRANTED,
    DECODED,
    KEEP,
    PLACE,
) = range(64, 78)
MAX_HEADER_BYTES: Final = 64 << 10

MOST_READINGS: Final = 2
"""Before an answer: of another node, and of this one's storage when that was of no use."""
CLIENTS: Final = frozenset({ASK, ENTER, NOTE, STAT, DROP, DECODED, KEEP})

_NAME: Final = (str, bytes)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, type(None))
_FIELDS: Final[dict[int, tuple[type | tuple[type, ...], ...]]] = {
    ASK: (int, str, _NAME, int, bool),
    FETCH: (str, _NAME, int, int, int, bool),
    CONTENT: (int, _NUMBER_OR_NONE),
    READING: (),
    OWN: (bool, bool),
    REFUSED: (str,),
    NOTE: (int, dict, str),
    STAT: (int,),
    DROP: (int, _TEXT_OR_NONE),
    ENTER: (int, str, _NUMBER_OR_NONE),
    GRANTED: (int,),
    DECODED: (int, str, bytes, list),
    KEEP: (int, str, bytes, int, int),
    PLACE: (int, int, int, int),
}


def fields(kind: int, header: Any) -> list[Any]:
    """The header's fields; raises FrameError where they are not those of the kind."""
    wanted = _FIELDS.get(kind)
    if (
        wanted is None
        or not isinstance(header, list)
        or len(header) != len(wanted)
        or not all(map(_is, header, wanted))
    ):
        raise FrameError(f"a message of kind {kind} with the header {str(header)[:100]}")
    return header


def _is(value: Any, wanted: type | tuple[type, ...]) -> bool:
    exact = type(value)
    return exact in wanted if isinstance(wanted, tuple) else exact is wanted


def written(name: str) -> str | bytes:
    """A file's name as it is sent: one that is no UTF-8 as the bytes that it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name)
    return name


def read_name(sent: str | bytes) -> str:
    """A file's name as it was sent by `written`."""
    return os.fsdecode(sent) if isinstance(sent, bytes) else sent


def no_body(size: int) -> memoryview:
    """For whoever expects none."""
    raise FrameError(f"a body of {size} bytes where there is none")
