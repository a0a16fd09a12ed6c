"""What the ledger refuses, and why."""

from __future__ import annotations


class LedgerError(Exception):
    """A call that the ledger refuses; nothing has changed."""


class StaleLeaseError(LedgerError):
    """The fencing number belongs to a lease that has ended: expired, given back or rolled back.

    The work done under it does not count and the holder must drop it.
    """


class QuarantineError(LedgerError):
    """The epoch cannot end: slots failed on too many holders and are not to be skipped."""


class SnapshotError(LedgerError):
    """A snapshot or journal that cannot be read as a ledger's state."""
