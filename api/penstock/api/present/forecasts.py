"""A forecast as it goes over the wire."""

from __future__ import annotations

from dataclasses import asdict

from penstock.brain.model.forecast import Estimate
from penstock.wire.forecasts import Expected


def expected(one: Estimate | None) -> Expected | None:
    """One figure; None where nothing is known of it."""
    if one is None:
        return None
    return Expected.model_validate(asdict(one) | {"level": list(one.level)})
