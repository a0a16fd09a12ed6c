"""The shard ledger: one pure state machine for both readings of "who may process which samples".

`SampleOrder` says which samples a slot holds, `Ledger` who may process it, `LedgerState` what is
done, and `penstock.data.ledger.journal` how that survives a crash. Nothing here does I/O or reads a
clock.
"""

from __future__ import annotations

from penstock.data.ledger.buckets import BucketOrder, Buckets, SizedOrder, checked_lengths
from penstock.data.ledger.errors import (
    LedgerError,
    QuarantineError,
    SnapshotError,
    StaleLeaseError,
)
from penstock.data.ledger.ledger import Lease, Ledger, fence_floor_at
from penstock.data.ledger.order import SampleOrder, Slot
from penstock.data.ledger.permutation import Permutation, derive_seed
from penstock.data.ledger.ranges import Range, RangeSet
from penstock.data.ledger.sizing import lease_slots
from penstock.data.ledger.state import LedgerOptions, LedgerState
from penstock.data.ledger.tiles import TileLedger

__all__ = [
    "BucketOrder",
    "Buckets",
    "Lease",
    "Ledger",
    "LedgerError",
    "LedgerOptions",
    "LedgerState",
    "Permutation",
    "QuarantineError",
    "Range",
    "RangeSet",
    "SampleOrder",
    "SizedOrder",
    "Slot",
    "SnapshotError",
    "StaleLeaseError",
    "TileLedger",
    "checked_lengths",
    "derive_seed",
    "fence_floor_at",
    "lease_slots",
]
