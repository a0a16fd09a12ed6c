"""What is to be expected of a job that is not there yet."""

from __future__ import annotations

from fastapi import APIRouter

from penstock.api.auth import ForbiddenError, Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.present.forecasts import expected
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.brain.planning import Signature
from penstock.wire.forecasts import Forecast, ForecastRequest

router = APIRouter(prefix="/v1/forecasts", tags=["forecasts"])


@router.post("", responses=problems())
async def forecast(body: ForecastRequest, caller: CallerDep, brain: BrainDep) -> Forecast:
    """How long a job would take, and what it would use and cost. Asking changes nothing."""
    if not body.namespace and not await caller.may(Permission(Verb.LIST)):
        raise ForbiddenError(
            f"{caller.name} may not list elasticjobs in all namespaces: say namespace"
        )
    if body.namespace:
        await require(caller, Permission(Verb.LIST, namespace=body.namespace))
    found = await brain.forecasts.forecast(
        Signature(**body.signature.model_dump()), body.strategy, body.namespace or None
    )
    return Forecast(
        seconds=expected(found.seconds),
        core_seconds=expected(found.core_seconds),
        gib_seconds=expected(found.gib_seconds),
        accelerator_seconds=expected(found.accelerator_seconds),
        cost=expected(found.cost),
        currency=found.currency,
        finished_jobs=found.finished_jobs,
    )
