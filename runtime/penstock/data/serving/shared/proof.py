"""What a data worker makes of a pipeline that is shared, in a few bytes: the same if it is alike.

Two data workers may make other samples of one pipeline: of another file of the same name, by a
library of another version, on a machine that rounds otherwise. So each says with the pipeline that
it has opened what it makes of one tile. A training process compares one such batch with what it
makes itself, bit by bit (`penstock.data.torch_loading.sameness`), and asks those alone who have
said the same.
"""

from __future__ import annotations

import hashlib
from typing import Any

from penstock.data.serving.shared.collate_guard import apart
from penstock.data.sharing.pipeline import PROOF_SEED, SharedPipeline
from penstock.data.transport.batch_codec import Packer


def proof_batch(pipeline: SharedPipeline, maker: SharedPipeline) -> Any:
    """The batch of one tile, of a seed that all know; ``maker`` makes the samples.

    Raises:
        Exception: whatever the user's code raises.
    """
    indices = maker.samples(maker.proof_tile)
    samples = [apart(one, copies=True) for one in maker.pipeline.samples(PROOF_SEED, indices)]
    return pipeline.pipeline.collated(PROOF_SEED, indices, samples)


def proof_of(batch: Any) -> bytes:
    """32 bytes that are the same where a batch is, bit by bit.

    Raises:
        NotPortableError: it holds something that cannot be sent.
    """
    packed = Packer().pack(batch)
    found = hashlib.blake2b(packed.structure, digest_size=32)
    for part in packed.parts:
        view = memoryview(part)
        found.update(view.cast("B") if view.nbytes else b"")
    return found.digest()
