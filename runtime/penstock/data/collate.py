"""A batch of samples without any framework: arrays are stacked, structures are kept."""

from __future__ import annotations

from typing import Any

import numpy as np


def stack(samples: list[Any]) -> Any:
    """Samples of equal structure as one structure of arrays, the first axis being the batch.

    Raises:
        ValueError: two samples differ in structure or shape; says where.
    """
    return _stack(samples, "sample")


def _stack(samples: list[Any], where: str) -> Any:
    first = samples[0]
    for number, other in enumerate(samples):
        if type(other) is not type(first) and not _numbers(first, other):
            raise ValueError(
                f"{where}: {type(first).__name__} in the batch's first sample, "
                f"{type(other).__name__} in its number {number}"
            )
    if isinstance(first, dict):
        if any(one.keys() != first.keys() for one in samples):
            raise ValueError(f"{where}: the keys of the samples differ")
        return {key: _stack([one[key] for one in samples], f"{where}[{key!r}]") for key in first}
    if isinstance(first, tuple | list):
        if any(len(one) != len(first) for one in samples):
            raise ValueError(f"{where}: the lengths of the samples differ")
        parts = [_stack([one[at] for one in samples], f"{where}[{at}]") for at in range(len(first))]
        if isinstance(first, list):
            return parts
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, str | bytes) or first is None:
        return list(samples)
    arrays = [np.asarray(one) for one in samples]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"{where}: shapes {sorted(shapes)} in one batch; pad or crop the samples to one shape, "
            "or give a collate function of your own"
        )
    return np.stack(arrays)


def _numbers(first: Any, other: Any) -> bool:
    kinds = (int, float, complex, np.generic)
    return isinstance(first, kinds) and isinstance(other, kinds)
