"""Loaders that a program makes anew for each epoch: what moves does so from the second one on.

Trainers make a loader for each evaluation, and some programs one for each epoch of the training. To
look at the steps of all of them would cost time each time and bring nothing. So of loaders that are
alike a few are looked at, and then none, unless one of them is iterated again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

LOOKED_AT: Final = 2
"""Loaders that are alike and had one epoch each, before others like them are left alone."""
MAX_KINDS: Final = 1000


class SingleEpochs:
    """Of one process."""

    def __init__(self) -> None:
        self._begun: Counter[Any] = Counter()
        self._again: set[Any] = set()

    def begin(self, kind: Any) -> bool:
        """A loader of a kind begins its first epoch; whether its steps are looked at."""
        if kind in self._again or (kind not in self._begun and len(self._begun) >= MAX_KINDS):
            return True
        self._begun[kind] += 1
        return self._begun[kind] <= LOOKED_AT

    def may_have_more(self, kind: Any) -> bool:
        """Whether a loader that has begun may have more epochs, by all that is known of its kind.

        Where others like it had one each, it does not say what its next epoch would be like.
        """
        return kind in self._again or self._begun[kind] <= 1

    def begin_again(self, kind: Any) -> None:
        """A loader of a kind begins an epoch that is not its first."""
        if len(self._again) < MAX_KINDS:
            self._again.add(kind)


def kind_of(loader: Any) -> Any:
    """Equal for loaders that are made in one place of a program for the same thing."""
    try:
        length = len(loader.dataset)
    except (TypeError, NotImplementedError):
        length = -1
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    collate = getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__)
    names = (
        type(loader).__qualname__,
        type(loader.dataset).__qualname__,
        type(sampler).__qualname__,
    )
    inner = type(getattr(sampler, "sampler", None)).__qualname__
    return (*names, inner, collate, length, loader.batch_size, loader.num_workers)
