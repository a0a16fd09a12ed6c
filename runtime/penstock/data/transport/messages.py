"""What a training process and a data worker say to each other, once they have shaken hands.

The training process asks (`MAKE`, for one batch or several) and a data worker answers for every
batch exactly once: with it, with why there is none, or with `DROPPED`. So each side knows at any
time what is outstanding, and a request is a credit: nothing is sent that was not asked for.

| kind     | from     | header                                            | body             |
|----------|----------|---------------------------------------------------|------------------|
| PIPELINE | training | digest, signature                                 | packed pipeline  |
| MAKE     | training | stream, digest, seed, [[step, indices, block] ..] (, until) |        |
| DROP     | training | stream                                            |                  |
| FORGET   | training | digest                                            |                  |
| BLOCK    | either   | block, bytes (and a descriptor)                   |                  |
| WANT     | worker   | bytes                                             |                  |
| LEND     | training | block                                             |                  |
| UNMAP    | training | [block ..]                                        |                  |
| CODINGS  | training | [coding ..], always                               |                  |
| OPENED   | worker   | digest, error or "", note or "" (, proof)         |                  |
| BATCH    | worker   | stream, step, structure, bytes, block, cost       | arrays, or none  |
| PICKLED  | worker   | as BATCH; only from a local worker                |                  |
| CODED    | worker   | stream, step, structure, bytes, coding, cost      | coded arrays     |
| FAILED   | worker   | stream, step, block, message, trace, error        |                  |
| DROPPED  | worker   | stream, step, block                               |                  |
| ENDED    | worker   | stream, step, block, problem                      |                  |
| UNWRITTEN| worker   | block, problem; only from a local worker          |                  |
| JOIN     | training | stream, digest, member, lacks                     |                  |
| READY    | worker   | stream, batches                                   |                  |
| NEED     | worker   | digest, offset, bytes                             |                  |
| PART     | training | digest, offset, problem or ""                     | part of weights  |
| READ     | worker   | path, offset, bytes                               |                  |
| FILE     | training | path, offset, bytes of all of it, error, version  | part of a file   |
| FINISH   | training | stream, digest, seed, step*, structure, bytes     | begun batch      |
| LEAVING  | worker   |                                                   |                  |
| ALIVE    | worker   |                                                   |                  |

``block`` is the shared block that the arrays go to, or -1. With -3 a worker on the same machine
asks for one when its batch is about to lie somewhere (WANT), so that a large batch has memory no
sooner than it is made; LEND answers, with -1 where there is none. It then makes one itself (BLOCK)
and sends the batch in -2.
To a local worker ``block`` may be ``[block, address, bytes]``, with a number below -3: memory of
the training process, which the worker writes to itself. If it cannot it says so (UNWRITTEN) and
answers as if it had been given none.
``indices`` are those of the step's samples, or the address of a batch of a dataset that is iterated
(`penstock.data.streams.pipeline`); of one that has ended the answer is ENDED, with a ``problem``
where it could not be gone on with.
``proof`` says of a pipeline that jobs share what it makes there
(`penstock.data.serving.shared.proof`).
A loader that shares in free order (`penstock.data.sharing`) JOINs with the tiles that it lacks
(bits) of those that it is to get from this data worker. Its ``indices`` are a number of tiles;
where there are fewer the answer is ENDED, and a batch comes with the tiles that it is of. READY
says how many of its batches lie there.
``coding`` says how the arrays of ``bytes`` bytes are in the body, which has fewer
(`penstock.data.transport.dictionary_coding`, `penstock.data.transport.zstd_coding`). CODINGS says
which of them are allowed, to a data worker that named some (`penstock.data.transport.codings`).
``until`` is the batched stage before which a batch is to end, and left out where it is to be whole.
NEED asks for weights that the pipeline names (`penstock.data.weights`), for `PART_BYTES` at most.
READ asks for a part of a file of the training process's machine, where reading is left to it
(`penstock.data.cuts.reading`); ``error`` is the system's number, and 0 where there is none, and
parts of one ``version`` of a file may be put together.
FINISH asks a local worker for the end of a batch that a data worker has begun
(`penstock.data.cuts.head_and_tail`), and is answered as MAKE is; ``step*`` is one
of MAKE's.
``cost`` is what making it took (`penstock.data.making.Cost`).
``error`` is what a local worker's program raised, pickled, and empty from everybody else.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.data.errors import FrameError

PIPELINE, MAKE, DROP, FORGET, BLOCK, OPENED, BATCH, FAILED, DROPPED, LEAVING, ALIVE = range(1, 12)
UNMAP, PICKLED, ENDED, WANT, LEND, UNWRITTEN, CODED, JOIN, READY, CODINGS = range(12, 22)
NEED, PART, READ, FILE, FINISH = range(22, 27)

NO_BLOCK: Final = -1
OWN_BLOCK: Final = -2
ASK_FOR_BLOCK: Final = -3
FIRST_PINNED: Final = -4
"""And downwards from there."""
SILENCE_SECONDS: Final = 20.0
"""An end that says nothing for so long is lost. The term of a lease of `penstock.data.ledger`."""
ALIVE_SECONDS: Final = 4.0
MAX_TEXT: Final = 16_384
DIED: Final = "data workers died on it: "
"""How the message of a FAILED begins after which nobody is to try again."""
PART_BYTES: Final = 1 << 20
"""Of weights in one message: what else is to be said waits for no more."""

_FIELDS: Final = {
    PIPELINE: 2,
    MAKE: 4,
    DROP: 1,
    FORGET: 1,
    BLOCK: 2,
    UNMAP: 1,
    CODINGS: 2,
    WANT: 1,
    LEND: 1,
    OPENED: 3,
    BATCH: 6,
    PICKLED: 6,
    CODED: 6,
    FAILED: 6,
    DROPPED: 3,
    ENDED: 4,
    UNWRITTEN: 2,
    JOIN: 4,
    READY: 2,
    NEED: 3,
    PART: 3,
    READ: 3,
    FILE: 5,
    FINISH: 6,
    LEAVING: 0,
    ALIVE: 0,
}


_MORE_FIELDS: Final = {MAKE: 5, OPENED: 4}
"""Kinds of which a field may be left out."""


def fields(kind: int, header: Any) -> list[Any]:
    """The header's fields; raises FrameError where they are not those of the kind."""
    wanted = _FIELDS.get(kind)
    if isinstance(header, list) and len(header) == _MORE_FIELDS.get(kind):
        return header
    if wanted is None or not isinstance(header, list) or len(header) != wanted:
        raise FrameError(f"a message of kind {kind} with the header {str(header)[:100]}")
    return header


def pack_indices(indices: Any) -> Any:
    """Indices for a header: integers as bytes, anything else that msgpack carries as it is."""
    if isinstance(indices, list) and indices and all(type(one) is int for one in indices):
        try:
            return np.asarray(indices, np.int64).tobytes()
        except OverflowError:
            return ["=", [str(one) for one in indices]]
    return ["list", indices] if isinstance(indices, list) else ["one", indices]


def unpack_indices(packed: Any) -> Any:
    """What `pack_indices` was given."""
    if isinstance(packed, bytes):
        return np.frombuffer(packed, np.int64).tolist()
    kind, value = packed
    return [int(one) for one in value] if kind == "=" else value
