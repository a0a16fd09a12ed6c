"""How often a file is found in memory when the cache holds a share of all files.

Every epoch reads each file once, in a new random order. DS-Analyzer (PVLDB 14(5), sections 4.3.2
and 7.1) measures 15 % and 47 % of hits in Linux's page cache at shares of 35 and 65 %, between the
two formulas here: Linux keeps two lists of pages, so a prediction for it is the interval from one
to the other.
"""

from __future__ import annotations

import math

from penstock.throughput.errors import ProfileError


def minio_hits(share: float) -> float:
    """A cache that never replaces anything: what is in it is found (CoorDL, section 5.1)."""
    return _checked(share)


def lru_hits(share: float) -> float:
    """A cache that drops what was used longest ago: ``x + (1 - x) ln(1 - x)``.

    A file is found if fewer than a share x of all files were read since: it was read at u of the
    last epoch and comes at v of this one, u and v uniform and independent, and of the files that
    were read in between some are the same.
    """
    x = _checked(share)
    return 1.0 if x >= 1 else max(0.0, x + (1 - x) * math.log1p(-x))


def fetch_rate(hits: float, cache_rate: float, storage_rate: float) -> float:
    """Bytes a second where a share of ``hits`` comes from memory (DS-Analyzer, eq. 1 and 2)."""
    if cache_rate <= 0 or storage_rate <= 0:
        raise ProfileError(f"rates must be more than 0: cache {cache_rate}, storage {storage_rate}")
    return 1.0 / (_checked(hits) / cache_rate + (1 - hits) / storage_rate)


def cache_for(rate: float, cache_rate: float, storage_rate: float) -> float | None:
    """The least share of the files that a MinIO cache must hold for so many bytes a second.

    None: no cache is enough (DS-Analyzer, section 5.1: fetching is no limit when F > min(P, G)).
    """
    if rate <= storage_rate:
        return 0.0
    if rate > cache_rate:
        return None
    return (1 / storage_rate - 1 / rate) / (1 / storage_rate - 1 / cache_rate)


def _checked(share: float) -> float:
    if not share >= 0:
        raise ProfileError(f"a share of the files must be 0 or more: {share}")
    return min(1.0, share)
