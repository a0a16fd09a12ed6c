"""The trainer's HTTP side: bytes to typed messages and back, the token, long polls. No decisions.

Starlette and uvicorn: both are small, pure Python, well kept, and already what the rest of the
project serves HTTP with; a hand-written server would be more code and a heavier one more to install
in a training image.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.base.http import server as http
from penstock.base.http.server import HttpServer
from penstock.crds.environment import JOB_TOKEN
from penstock.data.call_guard import REFUSAL, guard_calls, read_body
from penstock.data.dispatcher import Dispatcher
from penstock.data.dispatcher import routes as data_routes
from penstock.data.ledger import LedgerError
from penstock.job.protocol import (
    AGENT_PATH,
    CONTENT_TYPE,
    HEALTH_PATH,
    LEASE_PATH,
    MAX_MESSAGE_BYTES,
    SESSION_PATH,
    SUMMARY_PATH,
    AgentReport,
    Directive,
    LeaseRequest,
    Message,
    ProtocolError,
    SessionReport,
    decode,
    encode,
)
from penstock.parameter_server.protocol import (
    SERVER_PATH,
    WORKER_PATH,
    ServerReport,
    WorkerReport,
)
from penstock.trainer.control.coordinator import Coordinator, RefusedError
from penstock.trainer.nodecheck.cohort import PodChecks
from penstock.trainer.nodecheck.messages import (
    CHECK_PATH,
    STEP_CHECK_PATH,
    CheckReport,
    StepMeasured,
    StepMeasuredReply,
)

logger = logging.getLogger(__name__)

HELD_SECONDS: Final = 1.0
"""How long a report is held at most: a server that is silent for longer may be dead."""
FREE_SLOT_SECONDS: Final = 0.25
"""The same for a worker that waits for slots, which come back without a change of orders."""


class Changes:
    """Wakes those who wait for the coordinator's next revision."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._revision = self._present()
        self._event = asyncio.Event()

    def _present(self) -> tuple[int, int, int]:
        state, servers = self._coordinator.state, self._coordinator.servers
        return state.rendezvous.revision, state.replica_groups.revision, servers.revision

    def publish(self) -> None:
        """Wake everybody if the coordinator's revision moved on."""
        if (present := self._present()) != self._revision:
            self._revision = present
            self._event.set()
            self._event = asyncio.Event()

    async def wait(self, timeout: float) -> None:
        """Wait for the next revision, at most ``timeout`` seconds."""
        event = self._event
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return


class Endpoints:
    """The handlers of one trainer."""

    def __init__(
        self,
        coordinator: Coordinator,
        changes: Changes,
        token: str,
        dispatcher: Dispatcher | None = None,
        group_token: str = "",
        checks: PodChecks | None = None,
    ) -> None:
        """``group_token``: of the share group, whose data workers may report, and no more."""
        self._coordinator = coordinator
        self._changes = changes
        refusal = f"{REFUSAL}: {JOB_TOKEN} has to be as the trainer has it"
        self._guard = guard_calls(token, MAX_MESSAGE_BYTES, refusal)
        self._group_guard = guard_calls(token, MAX_MESSAGE_BYTES, refusal, group_token)
        self._checks = checks or PodChecks(replaces=False)
        self._dispatcher = dispatcher or Dispatcher("trainer")

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route(HEALTH_PATH, self.health, methods=["GET"]),
                Route(SESSION_PATH, self._guarded(self.session), methods=["POST"]),
                Route(AGENT_PATH, self._guarded(self.agent), methods=["POST"]),
                Route(LEASE_PATH, self._guarded(self.lease), methods=["POST"]),
                Route(SERVER_PATH, self._guarded(self.parameter_server), methods=["POST"]),
                Route(WORKER_PATH, self._guarded(self.worker), methods=["POST"]),
                Route(CHECK_PATH, self._guarded(self.check_node), methods=["POST"]),
                Route(STEP_CHECK_PATH, self._guarded(self.note_check), methods=["POST"]),
                Route(SUMMARY_PATH, self._guarded(self.summary), methods=["GET"]),
                *data_routes(self._dispatcher, self._guarded, self._group_guard),
            ]
        )

    async def health(self, request: Request) -> Response:
        """The process is up and its loop turns."""
        return PlainTextResponse("ok")

    async def session(self, request: Request) -> Response:
        """A training process reports and gets its orders; a waiting one is answered on news."""
        report = decode(SessionReport, await _body(request))
        reply = self._coordinator.handle_session_report(report, time.monotonic())
        self._changes.publish()
        idle = reply.directive is Directive.WAIT and reply.revision == report.seen_revision
        if idle and report.wait_seconds > 0:
            await self._changes.wait(report.wait_seconds)
            reply = self._coordinator.handle_session_report(report, time.monotonic())
            self._changes.publish()
        return _message(reply)

    async def agent(self, request: Request) -> Response:
        """An agent reports."""
        report = decode(AgentReport, await _body(request))
        reply = self._coordinator.handle_agent_report(report, time.monotonic())
        self._coordinator.advance(time.monotonic())
        self._changes.publish()
        return _message(reply)

    async def lease(self, request: Request) -> Response:
        """A holder on its own acknowledges and leases."""
        wanted = decode(LeaseRequest, await _body(request))
        return _message(self._coordinator.grant_lease(wanted, time.monotonic()))

    async def check_node(self, request: Request) -> Response:
        """A pod that is about to begin has its machine checked."""
        report = decode(CheckReport, await _body(request))
        expected = self._coordinator.state.expected
        return _message(self._checks.answer(report, expected, time.monotonic()))

    async def note_check(self, request: Request) -> Response:
        """A worker says what it measured of its machine between two steps."""
        said = decode(StepMeasured, await _body(request))
        self._checks.hear_step(said, time.monotonic())
        return _message(StepMeasuredReply())

    async def parameter_server(self, request: Request) -> Response:
        """A parameter server reports; one that has its orders is answered on news."""
        report = decode(ServerReport, await _body(request))
        reply = self._coordinator.handle_server_report(report, time.monotonic())
        self._changes.publish()
        has_orders = reply is not None and reply.revision == report.seen_revision
        if has_orders and report.wait_seconds > 0:
            await self._changes.wait(min(report.wait_seconds, HELD_SECONDS))
            reply = self._coordinator.handle_server_report(report, time.monotonic())
            self._changes.publish()
        return _message(reply) if reply is not None else _come_again()

    async def worker(self, request: Request) -> Response:
        """A worker of parameter servers reports; one with nothing to do is answered on news."""
        report = decode(WorkerReport, await _body(request))
        reply = self._coordinator.handle_worker_report(report, time.monotonic())
        self._changes.publish()
        idle = reply is not None and reply.lease.fence is None and not reply.lease.finished
        may_wait = report.wait_seconds > 0 and idle
        if reply is not None and may_wait and reply.revision == report.seen_revision:
            held = HELD_SECONDS if reply.paused else FREE_SLOT_SECONDS
            await self._changes.wait(min(report.wait_seconds, held))
            refused = reply.lease.refused
            reply = self._coordinator.handle_worker_report(_heard(report), time.monotonic())
            self._changes.publish()
            if reply is not None and refused:
                lease = reply.lease.model_copy(update={"refused": refused})
                reply = reply.model_copy(update={"lease": lease})
        return _message(reply) if reply is not None else _come_again()

    async def summary(self, request: Request) -> Response:
        """The figures of the job, as JSON."""
        summary = asdict(self._coordinator.summary(time.monotonic()))
        data = self._coordinator.state.data
        summary["data"] = data.model_dump() if data else None
        summary["data_workers"] = len(self._dispatcher.workers(time.monotonic()))
        summary["input"] = asdict(self._dispatcher.damage())
        return JSONResponse(summary)

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except ProtocolError as error:
                return PlainTextResponse(str(error), 400)
            except (RefusedError, LedgerError) as error:
                return PlainTextResponse(str(error), 409)

        return self._guard(answered)


async def _body(request: Request) -> bytes:
    return await read_body(request, MAX_MESSAGE_BYTES)


def _heard(report: WorkerReport) -> WorkerReport:
    """The same report without what has been taken in already."""
    said: dict[str, object] = {"completed": (), "failed": (), "returned": ()}
    return report.model_copy(update={"lease": report.lease.model_copy(update=said)})


def _come_again() -> Response:
    return PlainTextResponse("this trainer has just started: go on, and report again", 503)


def _message(message: Message) -> Response:
    return Response(encode(message), media_type=CONTENT_TYPE)


def make_server(app: Starlette) -> HttpServer:
    """A server for one event loop; give it a bound socket with ``serve(sockets=[...])``."""
    return http.make_server(app, keep_alive_seconds=60, stop_seconds=2, log_level="warning")
