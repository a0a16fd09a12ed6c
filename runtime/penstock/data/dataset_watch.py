"""Whether making batches changes the dataset, which then cannot be made elsewhere unseen.

Without workers (``num_workers=0``) a dataset is the program's own object: a cache that it fills, a
position that it keeps from epoch to epoch, a list of bad files, are there for the program, and for
the next epoch. A data worker that sees its copy change says so instead of delivering the batch, and
the program makes that one and all others itself, as alone.

The look is shallow and costs microseconds: numbers and texts that are replaced, and lists, dicts
and sets that grow or shrink, in a dataset, in what it wraps, and in what its attributes hold. What
appears once, as a file that is opened with the first sample, is no change.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from penstock.data.errors import DataError

KEEPS_STATE: Final = "num_workers=0, and making batches changes its dataset"
"""How the message begins with which a data worker refuses such a pipeline."""
MOST_LOOKED_AT: Final = 500
MAX_DEPTH: Final = 3
_BY_VALUE: Final = (bool, int, float, str, bytes)
_CONTAINERS: Final = (list, dict, set, deque, bytearray)


class KeepsStateError(DataError):
    """The dataset is another after a batch than before."""


class DatasetWatch:
    """Looks at one dataset again and again."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._before = state_of(dataset)

    def check(self) -> None:
        """Raise KeepsStateError if the dataset has changed."""
        now = state_of(self._dataset)
        for name, value in self._before.items():
            if value is not None and name in now and now[name] != value:
                kind = type(self._dataset).__qualname__
                raise KeepsStateError(
                    f"{KEEPS_STATE} ({kind}.{name}): the program makes them itself, as alone"
                )
        self._before = now


def state_of(dataset: Any) -> dict[str, Any]:
    """What is compared, by the name of the attribute: a value, or the length of a container."""
    found: dict[str, Any] = {}
    _look(dataset, "", 0, found, set())
    return found


def _look(value: Any, prefix: str, depth: int, found: dict[str, Any], seen: set[int]) -> None:
    if depth > MAX_DEPTH or id(value) in seen:
        return
    seen.add(id(value))
    for name, inner in list(getattr(value, "__dict__", {}).items()):
        if len(found) >= MOST_LOOKED_AT:
            return
        where = f"{prefix}{name}"
        if inner is None or type(inner) in _BY_VALUE:
            found[where] = inner
        elif isinstance(inner, _CONTAINERS):
            found[where] = len(inner)
        elif hasattr(inner, "__dict__") and not isinstance(inner, type) and not callable(inner):
            _look(inner, f"{where}.", depth + 1, found, seen)
