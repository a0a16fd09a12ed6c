"""An input pipeline that jobs share: what it is known by, and which samples a tile has.

Two jobs share where their datasets are the same, whoever wrote down that they are: the name of a
pipeline is a digest of what it does, of the dataset's contents and the code of its classes and of
the modules that those are of (`penstock.data.origin`), and not of the lines or the process that it
comes from, nor of the folder unless it names files from there. What a digest cannot see, as another
file behind the same name, or a variable of the environment, is for a proof
(`penstock.data.torch_loading.sameness`).

A tile is `tile` neighbours of one permutation of the dataset (`penstock.data.sharing.tiles`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, Final

import cloudpickle
import numpy as np
from cloudpickle import cloudpickle as internals
from numpy.typing import NDArray

from penstock.data.bounded_pickle import Bounded
from penstock.data.errors import NotPortableError
from penstock.data.origin import note_name, place_digest
from penstock.data.pipeline import (
    MAX_PIPELINE_BYTES,
    AnyPipeline,
    PackedPipeline,
    Pipeline,
    pack_pipeline,
)
from penstock.data.sharing.tiles import Tiles

TILE: Final = 8
"""Samples, where batches can be divided by it: those of a tile stay together in all epochs."""
MAX_TILES: Final = 1 << 20
"""Of a dataset; beyond that tiles are larger, as far as batches can be divided by them."""

PROOF: Final = "proof"
"""What is asked for in the place of a number of tiles: a batch of one tile, and its proof."""
PROOF_SEED: Final = 0x50F


def tile_of(size: int, batch_size: int) -> int | None:
    """Samples to a tile for a dataset and a number of samples to a batch.

    All batch sizes that eight divides have the same tiles, and share. None: the dataset is too
    large for such batches.
    """
    tile = math.gcd(TILE, batch_size)
    while -(-size // tile) > MAX_TILES and batch_size % (2 * tile) == 0:
        tile *= 2
    return tile if -(-size // tile) <= MAX_TILES else None


@dataclass(frozen=True)
class SharedPipeline(AnyPipeline):
    """A pipeline of which tiles are shared.

    Attributes:
        pipeline: of one job: dataset and what makes a batch of samples.
        size: samples of the dataset.
        tile: samples to a tile; the last may have fewer.
        key: of the dataset and the tiles: who has the same shares.
        common: everybody has the same batches in the same order.
        at_most_once: with that, what is here no more when it is asked for is given up.
        window_bytes: of samples that each data worker keeps; 0: as its memory allows.
    """

    pipeline: Pipeline
    size: int
    tile: int
    key: bytes
    common: bool = False
    at_most_once: bool = False
    window_bytes: int = 0

    @property
    def order(self) -> Tiles:
        """Which samples each tile has."""
        return Tiles(self.size, self.tile)

    @property
    def tiles(self) -> int:
        """How many there are."""
        return self.order.count

    @property
    def proof_tile(self) -> int:
        """The tile by which it is compared what different processes make."""
        return int.from_bytes(self.key[8:12], "little") % self.tiles

    @property
    def short(self) -> int | None:
        """The tile that has fewer samples than the others, if there is one."""
        return self.order.short

    def samples(self, tile: int) -> list[int]:
        """The indices of a tile's samples."""
        return self.order.samples(tile)

    def indices(self, tiles: Any) -> list[int]:
        """Of the samples of several tiles, in their order."""
        return self.order.indices(tiles)


def shared_pipeline(
    pipeline: Pipeline,
    size: int,
    tile: int,
    token: str,
    *,
    common: bool = False,
    at_most_once: bool = False,
    window_bytes: int = 0,
) -> tuple[SharedPipeline, PackedPipeline]:
    """A loader's pipeline as it is shared, and packed for data workers; see `SharedPipeline`.

    Raises:
        NotPortableError: it cannot be sent; says why.
    """
    key = content_digest((pipeline.dataset, pipeline.stages, pipeline.prepare), size, tile, common)
    shared = SharedPipeline(pipeline, size, tile, key, common, at_most_once, window_bytes)
    packed = pack_pipeline(shared, token)
    digest = content_digest(pipeline.collate, key, pipeline.watched, at_most_once)
    return shared, replace(packed, digest=digest)


def content_digest(value: Any, *more: Any, limit: int = MAX_PIPELINE_BYTES) -> bytes:
    """32 bytes that are the same in all processes where the value is the same.

    Raises:
        NotPortableError: it cannot be pickled, or has more than ``limit`` bytes then.
    """
    file = Bounded(limit)
    pickler = _Canonical(file)
    try:
        pickler.dump(value)
    except NotPortableError:
        raise
    except Exception as error:  # pickling runs code of the user's classes
        raise NotPortableError(
            f"the dataset or collate function cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    blob = file.getvalue()
    for name in dict(internals._DYNAMIC_CLASS_TRACKER_BY_CLASS).values():
        blob = blob.replace(name.encode(), b"0" * len(name))  # random, of this process
    place = place_digest(pickler.named, blob)
    return hashlib.blake2b(blob + place + repr(more).encode(), digest_size=32).digest()


class _Canonical(cloudpickle.Pickler):  # type: ignore[misc]  # has no types
    """Writes functions without the lines and files that they stand in; never to be read again."""

    def __init__(self, file: Bounded) -> None:
        super().__init__(file)
        self.named: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        note_name(obj, self.named)
        if isinstance(obj, CodeType):
            return tuple, (
                (
                    obj.co_code,
                    obj.co_consts,
                    obj.co_names,
                    obj.co_varnames,
                    obj.co_freevars,
                    obj.co_cellvars,
                    obj.co_argcount,
                    obj.co_kwonlyargcount,
                    obj.co_posonlyargcount,
                    obj.co_flags,
                    obj.co_exceptiontable,
                ),
            )
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and isinstance(reduced, tuple):
            make, (code, _, *rest), *state = reduced  # without the file that it was read from
            return make, (code, {}, *rest), *state
        return reduced


def lacks_bytes(lacks: NDArray[np.bool_]) -> bytes:
    """Tiles that are lacking, for a message."""
    return np.packbits(lacks).tobytes()


def lacks_of(packed: object, tiles: int) -> NDArray[np.bool_]:
    """What `lacks_bytes` was given; raises ValueError if it is of another number of tiles."""
    if not isinstance(packed, bytes) or len(packed) != -(-tiles // 8):
        raise ValueError(f"{tiles} bits are wanted")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=tiles).astype(np.bool_)
