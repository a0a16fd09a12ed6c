"""The cluster's clock, which a fault may set wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class SkewableClock:
    """Tells the time plus a skew."""

    def __init__(self) -> None:
        self.skew = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.skew
