"""What workers, servers and the chief say to a server on a data connection.

Frames of `penstock.data.transport.frame` after its handshake; the caller asks, the server answers
each request in turn. Every request but STATE names the number of the layout that the caller means.

    BEGIN  [layout, slot, staleness or nil]  -> VALUES [version]            dense pieces, in order
    PULL   [layout, [[space, rows], ...]]    -> VALUES [version]            rows, space by space
           body: int64 rows of each space
    PUSH   [layout, slot, [[space, rows], ...], dense]
           body: for each space int64 rows then float32 gradients (rows, dim); then, if ``dense``,
           the float32 gradients of the server's dense pieces
                                             -> DONE [applied, version]     applied: 0 if a repeat
    READ   [layout, snapshot or nil, partition]  -> PARTITION [sizes]       `Store.partition`
           body: its arrays, float32, one after the other; ``sizes``: the numbers in each
    WRITE  [layout, partition, sizes]  body: as READ's answer -> DONE []    chief fills a layout
           an array of size 0 is what it was in the beginning: rows by seed, the state of the
           optimizer, dense values 0 (a fill afresh: only the dense values are sent)
    STATE  [layout or snapshot, is_snapshot] -> STATED [applied ranges, pushes]
    SEAL   [layout, applied ranges, pushes]  -> DONE []                     chief has filled it:
           BAD while a partition of the server has not been written

    IDS    [layout, space]                   -> VALUES [version]            of a space that has a
           body: int64 ids that have a row, ascending                       vocabulary

    any                                      -> UNAVAILABLE [reason, text]  see `Unavailable`

Rows are numbers within the space, or any ids where it has a vocabulary, each at most once in a
request. Numbers are little-endian.
``version`` counts the updates that the server has made. A VALUES body has the rows as float32
(rows, dim) in the order asked for. BEGIN and PUSH carry a server's dense pieces in the order of its
partitions. With a ``staleness`` the first server of the layout answers BEGIN only while the update
of this batch is sure to come at most so many updates after it (BUSY: ask again); the others answer
at once, so the first one is asked first. BEGIN with slot nil begins no batch: it reads the dense
parameters.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

BEGIN, PULL, PUSH, READ, WRITE, STATE, SEAL, IDS = range(32, 40)
VALUES, DONE, PARTITION, STATED, UNAVAILABLE = range(48, 53)

TIMEOUT_SECONDS: Final = 15.0
"""How long either end of a data connection waits for the other in the middle of a request."""


class Unavailable(StrEnum):
    """Why a server does not answer a request."""

    LAYOUT = "layout"  # it serves another layout: ask the trainer for the present one
    HALTED = "halted"  # no new batch may begin: ask the trainer
    FROZEN = "frozen"  # nothing may change now: ask the trainer
    BUSY = "busy"  # the bound on staleness does not let this batch begin yet: ask again
    BAD = "bad"  # the request cannot be meant; the text says why
