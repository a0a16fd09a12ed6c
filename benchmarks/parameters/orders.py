"""A trainer that says to each server what it is told to, and real servers that ask it.

For tests and measurements of servers alone, without the decisions of a real trainer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgpack
import numpy as np

from penstock.crds import environment as names
from penstock.data.call_proof import REPLY_HEADER, CallChecker
from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import decode, encode
from penstock.parameter_server.connection import Connection
from penstock.parameter_server.layout import Layout, ServerAddress, assign
from penstock.parameter_server.protocol import (
    ServerOrder,
    ServerReply,
    ServerReport,
    ServerStage,
    Source,
)
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.wire import SEAL, WRITE

TOKEN = "the job's token"
TIMEOUT_SECONDS = 20.0


class Trainer:
    """Orders by server; reports as they come. A context manager."""

    def __init__(self) -> None:
        self.reports: dict[str, ServerReport] = {}  # newest by server
        self.silent = threading.Event()  # answer nothing
        self.name = "fake"
        self.unknown: frozenset[str] = frozenset()  # fields of reports that are refused
        self._orders: dict[str, dict[str, Any]] = {}
        self._revision = 0
        self._changed = threading.Condition()
        self._checker, self._checking = CallChecker(TOKEN), threading.Lock()
        trainer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if trainer.silent.is_set():
                    self.close_connection = True
                    return
                with trainer._checking:
                    said = self.headers["Authorization"]
                    call = trainer._checker.check("POST", self.path, said)
                if call is None or call.clock is not None:
                    self.send_error(401)
                    return
                status, reply = 400, b"Extra inputs are not permitted"
                if not trainer.unknown & msgpack.unpackb(body).keys():
                    status, reply = 200, encode(trainer._report(decode(ServerReport, body)))
                self.send_response(status)
                self.send_header(REPLY_HEADER, trainer._checker.prove(call, status, reply))
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _report(self, report: ServerReport) -> ServerReply:
        name = str(report.server)
        with self._changed:
            known = self.reports.get(name)
            if known is None or known.server != report.server or known.serial < report.serial:
                self.reports[name] = report
                self._changed.notify_all()
            if report.seen_revision == self._revision:
                self._changed.wait_for(
                    lambda: self._revision != report.seen_revision, report.wait_seconds
                )
            orders = self._orders.get(name, {"order": ServerOrder.IDLE})
            return ServerReply(trainer=self.name, revision=self._revision, **orders)

    def order(self, servers: list[ServerAddress] | str, order: ServerOrder, **rest: Any) -> None:
        """From now on this is what these servers are told."""
        named = [servers] if isinstance(servers, str) else [str(one.id) for one in servers]
        with self._changed:
            for name in named:
                self._orders[name] = {"order": order, **rest}
            self._revision += 1
            self._changed.notify_all()

    def await_reports(
        self, servers: list[ServerAddress], ready: Callable[[ServerReport], bool]
    ) -> list[ServerReport]:
        """Wait until the newest report of each server is as wanted."""
        with self._changed:

            def found() -> list[ServerReport]:
                newest = [self.reports.get(str(one.id)) for one in servers]
                return [
                    report
                    for one, report in zip(servers, newest, strict=True)
                    if report is not None and report.server == one.id and ready(report)
                ]

            assert self._changed.wait_for(lambda: len(found()) == len(servers), TIMEOUT_SECONDS), [
                self.reports.get(str(one.id)) for one in servers
            ]
            return found()

    def await_stage(self, layout: Layout, stage: ServerStage) -> list[ServerReport]:
        """Wait until all servers of a layout are in a stage of it."""
        return self.await_reports(
            list(layout.servers),
            lambda report: (
                report.stage is stage
                and report.layout is not None
                and report.layout.number == layout.number
            ),
        )

    def await_server(self, name: str, but: str = "") -> ServerAddress:
        """Wait until a server, by its name, has reported; another life of it than ``but``."""
        with self._changed:

            def there() -> bool:
                report = self.reports.get(name)
                return report is not None and report.server.nonce != but

            assert self._changed.wait_for(there, TIMEOUT_SECONDS), list(self.reports)
            report = self.reports[name]
            return ServerAddress(id=report.server, address=report.address)

    # ------------------------------------------------------------------ what a trainer does

    def fill(self, number: int, servers: list[ServerAddress], model: Store) -> Layout:
        """Have servers serve a model, which a chief writes into them."""
        layout = assign(number, servers, model.spec.partitions)
        self.order(servers, ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=model.spec)
        ordered = self._revision  # a server may still say what it held before
        self.await_reports(
            servers,
            lambda report: report.seen_revision >= ordered and report.spec is not None,
        )
        for server in layout.servers:
            write(server, layout, model)
        self.await_reports(servers, lambda report: report.built == number)
        self.serve(layout)
        return layout

    def serve(self, layout: Layout, **rest: Any) -> None:
        self.order(list(layout.servers), ServerOrder.SERVE, layout=layout, **rest)
        self.await_stage(layout, ServerStage.SERVING)

    def freeze(self, layout: Layout, **rest: Any) -> list[ServerReport]:
        self.order(list(layout.servers), ServerOrder.FREEZE, layout=layout, **rest)
        return self.await_stage(layout, ServerStage.FROZEN)

    def build(self, layout: Layout, after: Layout, spec: ModelSpec) -> None:
        """Order a layout to be built from the servers of the one before, which are frozen."""
        self.order(list(layout.servers), ServerOrder.BUILD, layout=after, next=layout, spec=spec)

    def move(
        self, number: int, servers: list[ServerAddress], after: Layout, spec: ModelSpec
    ) -> Layout:
        """Have other servers serve what some serve now."""
        layout = assign(number, servers, spec.partitions, after)
        self.freeze(after)
        self.build(layout, after, spec)
        self.await_reports(servers, lambda report: report.built == number)
        self.serve(layout)
        gone = [one for one in after.servers if layout.index_of(one.id) is None]
        if gone:
            self.order(gone, ServerOrder.IDLE)
        return layout


def write(server: ServerAddress, layout: Layout, model: Store, *, seal: bool = True) -> None:
    """What a chief does to one server: write all its partitions, and seal."""
    connection = Connection.connect(server.address, TOKEN, "chief")
    try:
        for partition in layout.owned_by(server.id):
            arrays = model.partition(partition)
            header = [layout.number, partition, [array.size for array in arrays]]
            connection.ask(WRITE, header, arrays)
        if seal:
            ranges = [list(one) for one in model.applied]
            connection.ask(SEAL, [layout.number, ranges, model.pushes])
    finally:
        connection.close()


@contextlib.contextmanager
def process(
    trainer: Trainer, rank: int, incarnation: int = 0, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server as ``penstock ps`` runs it."""
    environ = {
        **os.environ,
        names.JOB_TOKEN: TOKEN,
        names.RANK: str(rank),
        names.INCARNATION: str(incarnation),
        names.TRAINER_ADDRESS: trainer.address,
    }
    command = [sys.executable, "-m", "penstock.cli", "ps", *options]
    child = subprocess.Popen(command, env=environ)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)


def random_model(spec: ModelSpec, seed: int = 0) -> Store:
    """A model that has seen some slots."""
    store = Store(spec, range(spec.partitions))
    store.initialise()
    generator = np.random.default_rng(seed)
    for partition in store.owned:
        for array in store.partition(partition):
            np.add(array, generator.random(array.shape, np.float32), out=array)
    store.applied = RangeSet([(0, 4), (6, 7)])
    store.pushes = 5
    return store


def eventually(condition: Callable[[], bool], timeout: float = TIMEOUT_SECONDS) -> None:
    """Wait for something that nobody reports."""
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
