"""Whether the service lives, whether it can serve, and what it has done."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text
from starlette.responses import PlainTextResponse

from penstock.api.state import PROBLEM_RESPONSES, BrainDep

router = APIRouter(tags=["probes"])


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process answers."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse, responses={503: PROBLEM_RESPONSES[503]})
async def readyz(brain: BrainDep) -> str:
    """The database answers too, and is the one that is written to."""
    brain.database.check_file()
    async with brain.database.read() as session:
        await session.execute(text("SELECT 1"))
    return "ok\n"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(brain: BrainDep) -> Response:
    """Prometheus metrics."""
    await brain.observe()
    return Response(generate_latest(brain.metrics.registry), media_type=CONTENT_TYPE_LATEST)
