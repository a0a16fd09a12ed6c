"""How many steps a training has yet to make: asked by its trainer, the Brain and the scheduler."""

from __future__ import annotations


def steps_left(done: int, total: int | None) -> int:
    """Steps that a training has yet to make.

    A training whose end is not known is expected to make as many again as it has made, and at least
    one: a heavy-tailed distribution of durations says so of any job.

    Args:
        done: steps that the model has seen.
        total: of the whole training; None or 0: not known.
    """
    if not total:
        return max(done, 1)
    return max(0, total - done)
