"""Calls whose random numbers are their own: declared with ``random="batch"``.

What such a call draws depends on the epoch's seed and on its arguments alone, so that it is the
same wherever it is made; where the process's generators stand is as if it had drawn nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from penstock.data.generator_states import generator_states, set_generator_states
from penstock.data.seeding import seed_for


def call_seeded(
    seed: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call it; ``seed``: of the epoch."""
    states = generator_states()
    try:
        seed_for(seed, digest_of((args, kwargs)))
        return function(*args, **kwargs)
    finally:
        set_generator_states(states)


def digest_of(arguments: Any) -> str:
    """Of all numbers and texts in them, in order; lists and tuples are the same."""
    found = hashlib.blake2b(digest_size=16)
    for piece in _pieces(arguments):
        found.update(piece)
    return found.hexdigest()


def _pieces(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)};".encode()
        if value.layout is torch.strided and value.numel():
            flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().data
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape};".encode()
        if value.dtype.kind in "biufcSU":
            yield value.tobytes()
    elif isinstance(value, dict):
        yield f"{len(value)} keys;".encode()
        for key, one in value.items():
            yield f"{key!r}:".encode()
            yield from _pieces(one)
    elif isinstance(value, list | tuple):
        yield f"{len(value)};".encode()
        for one in value:
            yield from _pieces(one)
    elif isinstance(value, bool | int | float | str | bytes | None):
        yield f"{value!r};".encode()
    else:
        yield f"{type(value).__qualname__};".encode()
