"""How the learning rate goes on while a model is trained: a factor for each batch, by its number.

The number is that of the batch in the order of samples, its slot: the same for every server, worker
and run, and it comes with the gradients. So a batch has one rate on all servers, whoever computes
it and whenever it arrives; one that is done again has the rate that it had; and there is no state
to move or to save. A number of updates would not do: it differs between servers that the same
gradients reach in another order. Nor would a rate that workers send: nothing would tell when two of
them run different programs.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from penstock.data.protocol import Message

MAX_BATCHES: Final = 1 << 62


Kind = Literal["constant", "linear", "cosine", "exponential", "step"]
Factor = Annotated[float, Field(ge=0, le=1)]
Batches = Annotated[int, Field(ge=1, le=MAX_BATCHES)]


class Schedule(Message):
    """The factor of the learning rate, by the number of the batch.

    With a warm-up of W batches batch n of the first W has the factor ``(n + 1) / W``. After them,
    with k their number from 0:

    - constant: 1
    - linear: from 1 to ``final`` (default: 0) over ``batches``, then ``final``
    - cosine: the same along half a cosine (Loshchilov and Hutter 2017, equation 5)
    - exponential: ``gamma ** k``
    - step: ``gamma ** (k // every)``

    Each kind takes its own fields and no other's.
    """

    kind: Kind
    warmup: Annotated[int, Field(ge=0, le=MAX_BATCHES)] = 0
    batches: Batches | None = None
    final: Factor | None = None
    gamma: Factor | None = None
    every: Batches | None = None

    @model_validator(mode="after")
    def _complete(self) -> Schedule:
        needed = _NEEDED[self.kind]
        for name in ("batches", "gamma", "every"):
            if (getattr(self, name) is None) == (name in needed):
                rule = "needs" if name in needed else "has no"
                raise ValueError(f"{name}: {getattr(self, name)}; {self.kind} {rule} {name}")
        if self.final is not None and "batches" not in needed:
            raise ValueError(f"final: {self.final}; {self.kind} has no final")
        return self

    def factor(self, batch: int) -> float:
        """The factor of a batch, counted from 0 over all epochs."""
        if batch < self.warmup:
            return (batch + 1) / self.warmup
        after = batch - self.warmup
        if self.batches is not None:
            final, done = self.final or 0.0, min(1.0, after / self.batches)
            left = 1 - done
            if self.kind == "cosine":
                left = (1 + math.cos(math.pi * done)) / 2
            return final + (1 - final) * left
        if self.gamma is not None:
            return self.gamma ** (after // (self.every or 1))
        return 1.0


_NEEDED: Final[dict[Kind, tuple[str, ...]]] = {
    "constant": (),
    "linear": ("batches",),
    "cosine": ("batches",),
    "exponential": ("gamma",),
    "step": ("gamma", "every"),
}
