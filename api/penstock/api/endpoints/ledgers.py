"""Ledgers: the trainer's newest snapshot, kept as it comes."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from penstock.api.state import BrainDep, JobReader, JobWriter, problems
from penstock.wire.base import Uid

router = APIRouter(prefix="/v1/jobs/{uid}/ledger", tags=["ledgers"])
_OCTETS: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.put(
    "",
    status_code=204,
    responses=problems(404, 409, 413, 415),
    openapi_extra={"requestBody": {"required": True, "content": _OCTETS}},
)
async def put_ledger(
    uid: Uid,
    sequence: Annotated[
        int, Query(ge=0, le=2**53 - 1, description="Greater than that of the stored one.")
    ],
    request: Request,
    caller: JobWriter,
    brain: BrainDep,
) -> None:
    """Store a ledger. The same one again changes nothing; an older one is refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/octet-stream":
        raise HTTPException(415, f"Content-Type = {kind!r}: must be application/octet-stream")
    await brain.ledgers.put(uid, sequence, await request.body())


@router.get(
    "",
    response_class=Response,
    responses={
        **problems(404),
        200: {
            "description": "The ledger, as it was stored.",
            "content": _OCTETS,
            "headers": {
                "Ledger-Sequence": {
                    "description": "Its sequence number.",
                    "schema": {"type": "integer"},
                }
            },
        },
    },
)
async def read_ledger(uid: Uid, caller: JobReader, brain: BrainDep) -> Response:
    """The ledger stored last."""
    row = await brain.ledgers.get(uid)
    return Response(
        content=row.content,
        media_type="application/octet-stream",
        headers={"Ledger-Sequence": str(row.sequence), "Cache-Control": "no-store"},
    )
