"""How long the samples of a dataset are: by its attribute, from a file, or by one pass over it.

What an order by length needs to be told. A pass is made by whoever makes the batches, data workers
too, and its result is kept: for the program's life, and in the job's folder of checkpoints, so that
a pod that takes another's place need not make it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.data.bounded_pickle import dumps_within
from penstock.data.ledger import Buckets, checked_lengths
from penstock.data.ledger.buckets import MAX_SAMPLES
from penstock.data.protocol import MEASURE, BucketOptions
from penstock.data.regular_file import open_regular

logger = logging.getLogger(__name__)

MEASURED_TOGETHER: Final = 64
"""Samples that are measured as one batch."""
MAX_KNOWN: Final = 8
"""Datasets whose lengths are kept in memory, and the datasets with them."""
MAX_FILE_BYTES: Final = (MAX_SAMPLES << 3) + (64 << 10)
MAX_NAMED_BYTES: Final = 64 << 20
"""A dataset that is larger is measured anew in each process: naming it would take as long."""

Measure = Callable[[], "NDArray[np.int64]"]


class LengthsError(Exception):
    """The lengths of a dataset's samples cannot be had; says why."""


def length_of(sample: Any) -> int:
    """The length of a sample: the longest first dimension of what it is made of.

    Texts count only where nothing else has a length: in ``(ids, "positive")`` the ids do.

    Raises:
        LengthsError: nothing in it has a length.
    """
    found = _length_of(sample, texts=False)
    if found is None:
        found = _length_of(sample, texts=True)
    if found is None:
        raise LengthsError(f"a sample is a {type(sample).__qualname__}, which has no length")
    return found


def _length_of(value: Any, *, texts: bool) -> int | None:
    if isinstance(value, str | bytes):
        return len(value) if texts else None
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts: list[Any]
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, Sequence):
        if all(isinstance(one, int | float) for one in value):
            # Of tokens; a pair of numbers is an input and a label.
            return len(value) if isinstance(value, list) else None
        parts = list(value)
    else:
        return None
    lengths = [_length_of(one, texts=texts) for one in parts]
    return max((one for one in lengths if one is not None), default=None)


def lengths_of(samples: list[Any]) -> NDArray[np.int64]:
    """In the place of a collate function: the lengths of a batch's samples."""
    return np.array([length_of(one) for one in samples], np.int64)


class KnownLengths:
    """The buckets of the datasets of this process; see the module's docstring."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder``: where what was measured is kept for the job's other processes, if it is."""
        self._folder = folder
        self._known: dict[tuple[int, BucketOptions], tuple[Any, Buckets]] = {}

    def buckets(self, dataset: Any, asked: BucketOptions, measure: Measure) -> Buckets:
        """Those of a dataset.

        ``measure``: makes the pass over it, where it takes one.

        Raises:
            LengthsError: they cannot be had; says why.
        """
        key = (id(dataset), asked)
        if key in self._known:
            return self._known[key][1]
        found = self._lengths(dataset, asked.lengths, measure)
        try:
            found = _of_all(found, dataset, asked.lengths)
            buckets = Buckets.of(found, asked.boundaries, asked.tokens)
        except ValueError as error:
            raise LengthsError(f"{asked.lengths}: {error}") from error
        while len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = (dataset, buckets)  # which keeps its id from being another's
        return buckets

    def _lengths(self, dataset: Any, source: str, measure: Measure) -> ArrayLike:
        if source == MEASURE:
            return self._measured(dataset, measure)
        if "/" in source:
            return read_lengths(Path(source))
        found: Any = dataset
        for name in source.split("."):
            try:
                found = getattr(found, name)
            except AttributeError:
                raise LengthsError(
                    f"{source}: a {type(found).__qualname__} has no attribute {name!r}"
                ) from None
            except Exception as error:  # the user's code, whatever it raises
                raise LengthsError(f"{source}: {type(error).__name__}: {error}") from error
        try:
            return np.asarray(found() if callable(found) else found)
        except Exception as error:  # the user's code, or what is no array
            raise LengthsError(f"{source}: {type(error).__name__}: {error}") from error

    def _measured(self, dataset: Any, measure: Measure) -> NDArray[np.int64]:
        file = self._file_of(dataset)
        if file is not None and file.exists():
            try:
                return _of_all(read_lengths(file), dataset, str(file))
            except LengthsError as error:
                logger.warning("lengths that were kept are measured again: %s", error)
        said = f"{len(dataset)} samples of {type(dataset).__qualname__}"
        logger.info("the lengths of %s are measured: one pass over them, once", said)
        found = measure()
        if file is not None:
            _keep(file, found)
        return found

    def _file_of(self, dataset: Any) -> Path | None:
        if self._folder is None:
            return None
        try:
            packed = dumps_within(dataset, MAX_NAMED_BYTES)
        except Exception:  # noqa: BLE001 - pickling runs the code of the user's classes
            return None
        name = hashlib.blake2b(packed, digest_size=16).hexdigest()
        return self._folder / f"penstock-lengths-{name}-{len(dataset)}.npy"


def _of_all(lengths: ArrayLike, dataset: Any, source: str) -> NDArray[np.int64]:
    """Lengths, one for each sample.

    Raises:
        LengthsError: they are others, or none; names the source.
    """
    try:
        found = checked_lengths(lengths)
    except ValueError as error:
        raise LengthsError(f"{source}: {error}") from error
    if len(found) != len(dataset):
        raise LengthsError(
            f"{source}: {len(found)} lengths; the dataset has {len(dataset)} samples"
        )
    return found


def read_lengths(file: Path) -> NDArray[Any]:
    """The row of numbers in a file, as `numpy.save` writes it.

    Raises:
        LengthsError: it cannot be read.
    """
    try:
        with open_regular(file) as opened:
            if (size := os.fstat(opened.fileno()).st_size) > MAX_FILE_BYTES:
                raise ValueError(f"{size} bytes; {MAX_FILE_BYTES} at most")
            found = np.load(opened, allow_pickle=False)
    except OSError as error:
        raise LengthsError(
            f"{file}: {error.strerror or error}; write it with numpy.save"
        ) from error
    except Exception as error:  # a damaged file has NumPy raise whatever its parts raise
        why = f"{type(error).__name__}: {error}"
        raise LengthsError(f"{file}: {why:.300}; write it with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise LengthsError(f"{file}: several arrays; one row of integers is wanted")
    return found


def _keep(file: Path, lengths: NDArray[np.int64]) -> None:
    """Put a file in its place as a whole, or say that it could not be."""
    beside = file.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as opened:
            np.save(opened, lengths)
            opened.flush()
            os.fsync(opened.fileno())
        beside.rename(file)
    except OSError as error:
        logger.warning("the lengths that were measured are not kept: %s", error)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
