"""What a cache is asked and answers, in frames of `penstock.data.transport.frame`.

| kind    | from   | header                            | with it               |
|---------|--------|-----------------------------------|-----------------------|
| ASK     | client | version, path of the cache, file, range or 0, little | the file, open |
| FETCH   | daemon | path of the cache, file, size, mtime, range or 0, little |  |
| CONTENT | daemon | size, crc32 or None               | the bytes             |
| READING | daemon | (more follows: storage is read)   |                       |
| OWN     | daemon | whether pages are to be dropped, full |                   |
| REFUSED | daemon | why                               |                       |
| ENTER   | client | version, path of the cache, part or None | the folder, open |
| GRANTED | daemon | bytes of the largest file that is kept whole | index or part, open |
| NOTE    | client | version, {path of the cache: {what: how many}}, job |     |
| STAT    | client | version                           | answer: STAT, report  |
| DROP    | client | version, path or None             | answer: STAT, report  |

Clients (ASK, ENTER, NOTE, STAT, DROP) are on a Unix socket; daemons of other nodes (FETCH) on TCP,
after the handshake of the data plane and sealed. OWN means: read it from storage yourself. Of a
range of which little is read, one that was not met before is not kept.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.data.errors import FrameError

NOTED: Final = frozenset({"unseen", "hits", "hit_bytes", "miss_bytes"})
"""What clients count by themselves, besides `penstock.data.cache.observed.TIMED`."""
CACHE_PROTOCOL_VERSION: Final = 2
ASK, FETCH, CONTENT, READING, OWN, REFUSED, NOTE, STAT, DROP, ENTER, GRANTED = range(64, 75)
MAX_HEADER_BYTES: Final = 64 << 10

_FIELDS: Final = {
    ASK: 5,
    FETCH: 6,
    CONTENT: 2,
    READING: 0,
    OWN: 2,
    REFUSED: 1,
    NOTE: 3,
    STAT: 1,
    DROP: 2,
    ENTER: 3,
    GRANTED: 1,
}


def fields(kind: int, header: Any) -> list[Any]:
    """The header's fields; raises FrameError where they are not those of the kind."""
    wanted = _FIELDS.get(kind)
    if wanted is None or not isinstance(header, list) or len(header) != wanted:
        raise FrameError(f"a message of kind {kind} with the header {str(header)[:100]}")
    return header


def no_body(size: int) -> memoryview:
    """For whoever expects none."""
    raise FrameError(f"a body of {size} bytes where there is none")
