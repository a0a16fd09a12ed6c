"""Generated requests on every endpoint: never a 5xx, never an answer that the document lacks.

Each example is a fresh request against one service that fills up as the examples go, so most of
them meet jobs and plans that exist. The stream of plans is left out: it does not end.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from penstock.api.app import build_app
from penstock.api.auth.anonymous import Anonymous
from tests.api.service import REGISTRATION
from tests.brain.brains import open_brain

EXAMPLES = 40
KNOWN = {
    "uid": "uid-1",
    "number": 1,
    "name": "cold_create",
}
turns = itertools.count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service in a thread of its own, with one job registered."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    ready, stop = threading.Event(), threading.Event()
    found: list[str] = []

    async def main() -> None:
        async with open_brain(f"sqlite+aiosqlite:///{folder}/brain.sqlite") as brain:
            config = uvicorn.Config(
                build_app(brain, Anonymous()),
                host="127.0.0.1",
                port=0,
                log_config=None,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            task = asyncio.create_task(server._serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            found.append(f"http://127.0.0.1:{port}")
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(0.05)
            server.should_exit = True
            await task

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(20)

    httpx.put(f"{found[0]}/v1/jobs/uid-1", json=REGISTRATION, trust_env=False).raise_for_status()
    yield found[0]
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


DOCUMENT = build_app(None, None).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path_regex="plans/watch$")


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_breaks_the_service(case: schemathesis.Case, address: str) -> None:
    # Half of the requests are about things that exist.
    if next(turns) % 2 == 0:
        for name, value in KNOWN.items():
            if case.path_parameters and name in case.path_parameters:
                case.path_parameters[name] = value
    response = case.call(base_url=address, timeout=20)
    assert response.status_code < 500, (case.as_curl_command(), response.text)
    case.validate_response(
        response,
        checks=CHECKS.get_by_names(
            [
                "not_a_server_error",
                "status_code_conformance",
                "content_type_conformance",
                "response_schema_conformance",
                "response_headers_conformance",
            ]
        ),
    )


def test_every_path_but_the_stream_is_tried() -> None:
    tried = {operation.ok().path for operation in schema.get_all_operations()}
    assert set(DOCUMENT["paths"]) - tried == {"/v1/jobs/{uid}/plans/watch"}
