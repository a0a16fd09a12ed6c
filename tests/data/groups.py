"""A share group for tests: each job has a dispatcher, a training process and data workers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.http.server import make_server
from penstock.base.listener import address_of, create_listener
from penstock.data.call_guard import guard_calls
from penstock.data.consuming.consumer import Consumer
from penstock.data.dispatcher import Dispatcher, routes
from penstock.data.protocol import MAX_BYTES, InputOptions, ShareOptions
from tests.data.planes import end
from tests.fork_server import Forked, start

GROUP_TOKEN = "the token of the group"
SHARING = InputOptions(share=ShareOptions(group="sweep"))
WORKER = """
import sys
from pathlib import Path
from penstock.data.serving.group_reports import GroupReports
from penstock.data.serving.worker import DataWorker, work
dispatcher, token, group_token, names = sys.argv[1:]
group = GroupReports(
    "group", 1, group_token, lambda host, port: set(Path(names).read_text().split())
)
work(DataWorker(token=token, dispatcher=dispatcher, group=group, share_memory=False))
"""
"""A data worker that finds its group's dispatchers in a file, instead of in the cluster's DNS."""


@dataclass
class Served:
    """A dispatcher behind HTTP, as a trainer serves it."""

    dispatcher: Dispatcher
    address: str


@contextmanager
def serving(
    token: str, group_token: str = GROUP_TOKEN, options: InputOptions = SHARING
) -> Iterator[Served]:
    """Serve a job's dispatcher until the block ends."""
    from starlette.applications import Starlette

    dispatcher = Dispatcher(token, lambda: options)
    own = guard_calls(token, MAX_BYTES)
    of_group = guard_calls(token, MAX_BYTES, group_token=group_token)
    app = Starlette(routes=routes(dispatcher, own, of_group))
    listening = create_listener("127.0.0.1", 0)
    server = make_server(app, keep_alive_seconds=60, stop_seconds=1, log_level="warning")
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield Served(dispatcher, address_of(listening))
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@dataclass
class Group:
    """Jobs of one group; ``names`` is the file behind its name."""

    names: Path
    jobs: dict[str, Job] = field(default_factory=dict)

    def update(self, *others: str) -> None:
        """Put the dispatchers of all members, and of others, behind the group's name."""
        found = [*(one.served.address for one in self.jobs.values()), *others]
        beside = self.names.with_suffix(".new")
        beside.write_text("\n".join(found))
        beside.replace(self.names)


class Job:
    """One member."""

    def __init__(self, group: Group, token: str) -> None:
        self.token, self._group = token, group
        self._stack = contextlib.ExitStack()
        self.served = self._stack.enter_context(serving(token))
        self.consumer = Consumer(
            token=token,
            dispatcher=self.served.address,
            name=token,
            share_memory=False,
            group_token=GROUP_TOKEN,
        )
        self.consumer.options()  # so that it knows that it shares
        self._workers: list[Forked] = []
        group.jobs[token] = self
        group.update()

    def add_worker(self) -> Forked:
        """Begin one data worker, a process."""
        names = str(self._group.names)
        arguments = [self.served.address, self.token, GROUP_TOKEN, names]
        process = start(["-c", WORKER, *arguments])
        self._workers.append(process)
        return process

    def end(self) -> None:
        """The job ends: its data workers drain, its trainer and its training are gone."""
        if self._group.jobs.pop(self.token, None) is None:
            return
        for process in self._workers:
            process.terminate()
        for process in self._workers:
            try:
                assert process.wait(20) == 0, "it did not drain"
            finally:
                end(process)
        self.consumer.close()
        self._group.update()
        self._stack.close()


@contextmanager
def sharing(folder: Path) -> Iterator[Group]:
    """A group without members; all that are there at the end are ended."""
    group = Group(folder / "group")
    group.update()
    try:
        yield group
    finally:
        for job in list(group.jobs.values()):
            job.end()
