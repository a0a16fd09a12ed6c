"""Faults over HTTP, for tests and people outside the cluster's process.

``GET /faults`` lists every fault with its arguments; ``POST /faults/NAME`` carries one out, its
arguments a JSON object. Mounted in the API server, which admits administrators only. A wrong name
is 404, a wrong argument 422 naming it, a fault that hits nothing 409.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from penstock_cluster.faults.catalogue import FaultError, Faults
from penstock_cluster.registry import ApiError

PREFIX = "/faults"
_MOST_BODY_BYTES = 64 * 1024

Fault = Callable[..., Awaitable[Any]]


def fault_names() -> list[str]:
    """The names of all faults."""
    return sorted(
        name
        for name, member in vars(Faults).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    )


def build_endpoint(faults: Callable[[], Faults]) -> Starlette:
    """The ASGI application; ``faults`` is asked on each request, as it starts after the server."""
    models = {name: _arguments(getattr(Faults, name)) for name in fault_names()}

    async def index(request: Request) -> JSONResponse:
        listed = []
        for name, model in models.items():
            member = getattr(Faults, name)
            about = (inspect.getdoc(member) or "").split("\n\n")[0]
            listed.append({"name": name, "about": about, "arguments": model.json_schema()})
        return JSONResponse({"faults": listed})

    async def carry_out(request: Request) -> JSONResponse:
        name = request.path_params["name"]
        model = models.get(name)
        if model is None:
            known = ", ".join(models)
            return JSONResponse({"error": f"no fault {name!r}; there are: {known}"}, 404)
        body = await request.body()
        if len(body) > _MOST_BODY_BYTES:
            return JSONResponse({"error": f"body: at most {_MOST_BODY_BYTES} bytes"}, 413)
        try:
            arguments = model.validate_json(body or b"{}").model_dump(exclude_unset=True)
        except ValidationError as error:
            return JSONResponse({"error": json.loads(error.json(include_url=False))}, 422)
        try:
            result = await getattr(faults(), name)(**arguments)
        except (FaultError, ApiError) as error:
            return JSONResponse({"error": str(error)}, 409)
        return JSONResponse({"result": result})

    return Starlette(
        routes=[
            Route(PREFIX, index),
            Route(f"{PREFIX}/{{name}}", carry_out, methods=["POST"]),
        ]
    )


def _arguments(member: Fault) -> TypeAdapter[Any]:
    """A strict model of a fault's keyword arguments."""
    hints = get_type_hints(member)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(member).parameters.items():
        if name == "self":
            continue
        required = parameter.default is inspect.Parameter.empty
        fields[name] = (hints[name], ... if required else parameter.default)
    model = create_model(member.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    return TypeAdapter(model)
