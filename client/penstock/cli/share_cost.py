"""What the jobs of a share group cost together, for ``penstock describe``.

By tf.data service's equation 1 (`penstock.throughput.decision.cost`): data workers are paid for by
those that run, training pods by those that are held. Prices are the paper's, of a TPU v2-8 and an
n2-standard-8, where nobody says others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.base.enums import Role
from penstock.throughput.decision.cost import Prices, cost_of
from penstock.throughput.errors import ProfileError

Json = dict[str, Any]
VARIABLE: Final = "PENSTOCK_PRICES"
"""Dollars an hour of a training pod and of a data worker, as ``4.5,0.08``."""
DEFAULT: Final = Prices(client=4.5, worker=0.08)
COUNTED_STEPS: Final = 1000


class PriceError(ValueError):
    """The prices cannot be read; says what to do."""


def prices_of(environ: Mapping[str, str] = os.environ) -> Prices:
    """What is paid an hour.

    Raises:
        PriceError: they are no two amounts.
    """
    text = environ.get(VARIABLE, "")
    if not text:
        return DEFAULT
    try:
        client, worker = (float(word) for word in text.split(","))
        return Prices(client, worker)
    except (ValueError, ProfileError) as error:
        raise PriceError(
            f"{VARIABLE}: {text!r} ({error}); say dollars an hour of a training pod and of a data "
            "worker, as 4.5,0.08"
        ) from None


def cost_facts(sharing: Sequence[Json], rate: float, prices: Prices) -> dict[str, str]:
    """What a group costs; empty where nobody shares, or nothing runs.

    Args:
        sharing: its jobs.
        rate: steps a second of the one that is described; 0: not known yet.
        prices: of an hour.
    """
    clients, workers = _ready(sharing, Role.WORKER), _ready(sharing, Role.DATA_WORKER)
    if not sharing or not clients + workers:
        return {}
    hour = cost_of(3600, 1, prices, clients=clients, workers=workers)
    facts = {
        "An hour": (
            f"${hour.total:.2f}: ${hour.clients:.2f} for {clients} training pods and "
            f"${hour.workers:.2f} for {workers} data workers"
        ),
        f"Each of {len(sharing)}": f"${hour.total / len(sharing):.2f} an hour",
    }
    if rate > 0:
        steps = cost_of(COUNTED_STEPS, rate, prices, clients=clients, workers=workers)
        each = steps.total / len(sharing)
        facts["1,000 steps"] = f"${each:.4f} of this job's part, at {rate:.3g} steps/s"
    facts["Prices"] = (
        f"${prices.client:g} a training pod and ${prices.worker:g} a data worker an hour "
        f"({VARIABLE})"
    )
    return facts


def _ready(jobs: Sequence[Json], role: Role) -> int:
    counts = (((one.get("status") or {}).get("replicas") or {}).get(role) or {} for one in jobs)
    return sum(int(one.get("ready") or 0) for one in counts)
