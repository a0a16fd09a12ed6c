"""The FastAPI application: routes, problems and limits, over a Brain that already runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from penstock.api import problems
from penstock.api.auth import Authenticator
from penstock.api.descriptions import describe_fields
from penstock.api.endpoints import (
    algorithms,
    audit,
    cluster,
    costs,
    forecasts,
    jobs,
    ledgers,
    nodes,
    page,
    plans,
    probes,
    profiles,
    replay,
    samples,
    what_if,
)
from penstock.api.limits import BodyLimit
from penstock.api.origins import LocalHosts, PublicAddress
from penstock.api.request_metrics import RequestMetrics
from penstock.api.state import ApiState
from penstock.api.token_first import TokenFirst
from penstock.brain.assembly import Brain
from penstock.wire.problems import Problem

_DESCRIPTION: Final = """
Registers training jobs, takes in what they measure, and answers with plans.

Errors are `application/problem+json` with a stable `type`. Lists come in pages: give `continue`
back for the next one. Times are seconds since the epoch.
"""
_ROUTERS: Final = (
    jobs.router,
    samples.router,
    plans.router,
    ledgers.router,
    profiles.router,
    profiles.store,
    algorithms.router,
    cluster.router,
    what_if.router,
    replay.router,
    nodes.router,
    nodes.of_jobs,
    costs.router,
    forecasts.router,
    audit.router,
    probes.router,
    page.router,
)


def build_app(
    brain: Brain | None, authenticator: Authenticator | None, *, local_only: bool = False
) -> FastAPI:
    """The application. Without a Brain it can only describe itself (`openapi()`).

    ``local_only``: it is to be called by an address of this machine, or by its public one.
    """
    app = FastAPI(
        title="Penstock Brain",
        version=version("penstock"),
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        # Its usual pages load scripts from another host; ours is in endpoints/page.py.
        docs_url=None,
        redoc_url=None,
    )
    if brain is not None and authenticator is not None:
        address = PublicAddress(brain.settings.public_url)
        app.state.penstock = ApiState(brain=brain, authenticator=authenticator, address=address)
    for router in _ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.add_middleware(BodyLimit)
    if authenticator is not None:
        app.add_middleware(TokenFirst, authenticator=authenticator)
    if brain is not None:
        if local_only:
            app.add_middleware(LocalHosts, address=PublicAddress(brain.settings.public_url))
        app.add_middleware(RequestMetrics, registry=brain.metrics.registry)
    # FastAPI's way to replace it.
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with bearer tokens and problems; made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            license_info=app.license_info,
        )
        schemas = document["components"]["schemas"]
        schemas |= Problem.model_json_schema(ref_template="#/components/schemas/{model}").pop(
            "$defs"
        )
        own = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        own.pop("$defs")
        schemas["Problem"] = own
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        describe_fields(schemas)
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path, item in document["paths"].items():
            if path.startswith("/v1/"):
                for operation in item.values():
                    operation["security"] = [{"bearer": []}]
        app.openapi_schema = document
    return app.openapi_schema
