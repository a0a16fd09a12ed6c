"""Which samples of a slot one process computes, where several compute a slot together: pure.

The processes of a replica group compute every micro-batch together, since the layers of a sharded
model are put together by all of them: each takes a part of the slot's samples, and those that hold
different parts of the same layer (tensor parallelism) take the same one. A slot may have fewer
samples than there are parts. Who is left without one computes another's, at weight 0: the model's
collectives need everybody, and the sample counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Cut(NamedTuple):
    """Samples of a slot, ``start`` to ``stop`` from its first on, of which ``counted`` count."""

    start: int
    stop: int
    counted: int


@dataclass(frozen=True, slots=True)
class Division:
    """One process's part of each slot.

    Attributes:
        part: which of the parts it is.
        parts: into how many a slot is divided.
        speaks: whether it is the one, of all with the same part, that says what was consumed.
    """

    part: int = 0
    parts: int = 1
    speaks: bool = True

    def cut(self, size: int) -> Cut:
        """The part of a slot of ``size`` samples: over all parts each of them counts once."""
        start, stop = size * self.part // self.parts, size * (self.part + 1) // self.parts
        if start == stop and size:
            stand_in = min(start, size - 1)
            return Cut(stand_in, stand_in + 1, 0)
        return Cut(start, stop, stop - start)


WHOLE: Final = Division()
"""Of a process that computes its slots by itself."""
