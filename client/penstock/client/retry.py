"""When to try a call again, and after how long: pure, with the random numbers as an argument."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RETRIED_STATUSES: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Answers after which the same call may succeed; 500 is a fault of the server and is not hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off with full jitter, within a total time.

    Attributes:
        total_seconds: from the first attempt to giving up, everything included.
        attempt_seconds: most time for one attempt.
        first_seconds: upper bound of the first pause; it doubles with each attempt.
        most_seconds: upper bound of any pause.
    """

    total_seconds: float = 30.0
    attempt_seconds: float = 10.0
    first_seconds: float = 0.2
    most_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name in ("total_seconds", "attempt_seconds", "first_seconds", "most_seconds"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, got {value!r}")

    def pause_seconds(
        self, attempt: int, rng: random.Random, headers: Mapping[str, str] | None = None
    ) -> float:
        """How long to wait after attempt number `attempt` (from 1) has failed.

        A server that says ``Retry-After`` is given at least that, up to a minute.
        """
        ceiling = min(self.most_seconds, self.first_seconds * 2.0 ** min(attempt - 1, 30))
        # Never zero: a thousand trainers that lost the Brain together must not return together.
        pause = rng.uniform(ceiling / 10, ceiling)
        return max(pause, _retry_after(headers or {}))


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else 0.0
