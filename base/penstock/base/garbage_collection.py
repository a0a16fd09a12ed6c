"""How a process that serves many looks for cyclic garbage: seldom, and not at its own modules.

A full collection looks at every object that there is, and nothing else happens meanwhile. With
Python's own thresholds a Brain of a thousand jobs did so every seven seconds, for 0.15 s of
computing each, to find a hundred objects; every request of that time waited for it. What is loaded
at the start lives as long as the process, and what requests and watches make is freed without a
collection, since objects of JSON and rows of a database form no cycles.
"""

from __future__ import annotations

import gc
from typing import Final

_NEW_OBJECTS: Final = 50_000
_COLLECTIONS: Final = 20


def collect_seldom() -> None:
    """Leave all objects that there are now out of collections, and collect others seldom.

    Call it once, when everything is loaded. Cycles are still found: among new objects after each
    50,000 of them, and among those that survived after twenty such collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _COLLECTIONS, _COLLECTIONS)
