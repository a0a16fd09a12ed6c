"""Whether what data workers make for a group is what a program would make by itself: bit by bit.

Two pipelines with one name may differ in what no digest sees: a file that is another on another
machine, a variable of the environment, a library of another version. So before a loader shares, one
of its processes makes a tile, the data workers make it, and the batches are compared. Where they
differ nothing is shared, and the message names the first array that does. What is compared is one
data worker's; of the others those are asked who say that they make the same (`Finding.proof`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.data.batch_difference import first_difference
from penstock.data.consuming.batch_stream import (
    BatchStream,
    Source,
    StreamOptions,
    start_local_workers,
)
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import DataError, NotPortableError
from penstock.data.local.workers import LocalOptions
from penstock.data.pipeline import BatchId, PackedPipeline
from penstock.data.sharing.pipeline import PROOF, PROOF_SEED, SharedPipeline
from penstock.data.window.reorder_buffer import Failure

PROOF_SECONDS: Final = 60.0
"""For a data worker to open a pipeline and make a tile; on a busy machine PyTorch takes long."""


class NoProofError(DataError):
    """Nothing could be compared; says why."""


class Finding(NamedTuple):
    """What came of comparing.

    Attributes:
        difference: what is other where a data worker makes it; None: nothing.
        proof: what a data worker says that it makes, as all are to say who are asked.
    """

    difference: str | None
    proof: bytes


class _ProofStream(BatchStream):
    """A batch that data workers alone are to make, and soon."""

    def __init__(self, consumer: Consumer, packed: PackedPipeline, *arguments: Any) -> None:
        self._until = time.monotonic() + PROOF_SECONDS
        self._refused = partial(consumer.pool.makers.all_refuse, packed.digest)
        super().__init__(consumer, *arguments)

    def _tend(self) -> bool:
        super()._tend()
        late = time.monotonic() >= self._until
        return not late and not self.queue.failures and not self._refused()

    def _make_here(self, indices: Any, failures: list[Failure]) -> tuple[bool, Any]:
        self.queue.made_here()
        if failures:
            raise NoProofError(f"a data worker cannot make its samples: {failures[0].message}")
        if self._refused():
            raise NoProofError("no data worker can open it")
        raise NoProofError(f"no data worker has opened it in {PROOF_SECONDS:.0f} s")


def compare(
    shared: SharedPipeline, packed: PackedPipeline, consumer: Consumer, local: LocalOptions
) -> Finding:
    """Whether a data worker makes of a loader's samples what this program makes.

    ``local``: how the process that makes them here is started.

    Raises:
        NoProofError: nothing could be compared; says why.
    """
    indices = shared.samples(shared.proof_tile)
    options = StreamOptions(skip_bad=False)

    def pack() -> PackedPipeline:
        return packed

    def refuse() -> PackedPipeline:
        raise NotPortableError("it is made here")

    here = start_local_workers(None, shared.pipeline, local)
    own = BatchStream(
        None,
        Source(shared.pipeline, here.key, refuse),
        PROOF_SEED,
        BatchId(PROOF, 0, 0, 0),
        iter([indices]),
        options,
        [],
        here,
    )
    theirs = _ProofStream(
        consumer,
        packed,
        Source(shared.pipeline, b"", pack, at_once=True),
        PROOF_SEED,
        BatchId(PROOF, 0, 0, 0),
        iter([[PROOF]]),
        options,
        [],
    )
    try:
        made_there, proof = next(theirs)
        made_here = next(own)
    except NoProofError:
        raise
    except Exception as error:  # the user's code, whatever it raises
        raise NoProofError(f"samples {indices} cannot be made: {error}") from error
    finally:
        own.close()
        theirs.close()
    return Finding(first_difference(made_here, made_there), proof)
