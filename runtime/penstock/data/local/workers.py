"""The local workers of one loader: started, replaced when they die, and ended.

They are as many as the program asked its loader for. They are forked from the training process when
an epoch begins, as PyTorch's are (or started as the loader's ``multiprocessing_context`` says): so
they have the dataset as it is then, whether or not it can be pickled, and cost no import. All of
this happens in the program's own thread.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import socket
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.local.process import Prepare, serve_parent
from penstock.data.pipeline import Pipeline
from penstock.data.processes import exists, is_stopped
from penstock.data.queue.makers import Makers
from penstock.data.queue.receiving import join, leave, receive_from, start_thread
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.streams.pipeline import StreamPipeline
from penstock.data.transport import frame
from penstock.data.transport.messages import SILENCE_SECONDS

logger = logging.getLogger(__name__)

END_SECONDS: Final = 5.0
AT_EXIT_SECONDS: Final = 0.2
"""What is being made when the program ends is wanted by nobody."""
LOOK_SECONDS: Final = 1.0
STOPPED_LOOKS: Final = 20
"""Found stopped so often, one is ended. Looks count: the program may have been stopped too."""
MAX_DEATHS: Final = 3
"""So many may die without a batch between them; after that the program makes batches itself."""


@dataclass(frozen=True)
class LocalOptions:
    """How many local workers, and how they are started.

    Attributes:
        count: as the program asked its loader for.
        context: of `multiprocessing`; None: the default one.
        prepare: what is done in each before it makes batches.
    """

    count: int
    context: Any = None
    prepare: Prepare | None = None


class LocalWorkers:
    """See the module's docstring."""

    def __init__(
        self,
        pool: WorkerPool,
        pipeline: Pipeline | StreamPipeline,
        key: bytes,
        options: LocalOptions,
        forget_in_child: Callable[[], None],
    ) -> None:
        """``forget_in_child``: lets a forked process go of what is the training process's alone."""
        self.key = key
        self._pool = pool
        self._pipeline = pipeline
        self._options = options
        self._forget = forget_in_child
        self._context = options.context or multiprocessing.get_context()
        self._links: dict[int, WorkerConnection] = {}
        self._processes: dict[int, Any] = {}
        self._looked_at = time.monotonic()
        self._stopped: Counter[int] = Counter()  # how often it was found to be, one after the other
        self._ended: deque[tuple[int, str]] = deque()  # appended to by the links' threads
        self._deaths = 0
        self._made = 0
        self._stopping = False
        self._owner = os.getpid()
        try:
            for number in range(options.count):
                self._start(number)
        except BaseException:
            self.stop()
            raise

    @property
    def ours(self) -> bool:
        """Whether they are this process's: a fork of it inherits this object, and not them."""
        return os.getpid() == self._owner

    def keep(self) -> bool:
        """Replace those that have died; False when there is none to make a batch."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()
        while self._ended and not self._stopping:
            number, why = self._ended.popleft()
            del self._links[number]
            made = self._pool.counts.made_nearby
            self._deaths = self._deaths + 1 if made == self._made else 1
            self._made = made
            again = self._deaths <= MAX_DEATHS * self._options.count
            logger.warning(
                "local worker %d of %d %s%s",
                number,
                self._options.count,
                why,
                ": another one takes its place" if again else ", as others before it did",
            )
            if again:
                self._replace(number)
        return bool(self._links) and not self._stopping

    def _replace(self, number: int) -> None:
        """Start one again, if that is possible: an epoch that has begun goes on without it too."""
        try:
            self._start(number)
        except (OSError, RuntimeError) as error:
            logger.warning(
                "local worker %d of %d cannot be started again: %s",
                number,
                self._options.count,
                error,
            )

    def _look(self) -> None:
        """Notice who has died though its connection is open: a fork of it, or of us, has it too.

        And who is stopped by a signal: nobody may ever have it go on.
        """
        self._looked_at = time.monotonic()
        for number, link in self._links.items():
            process = self._processes[number]
            if not link.dead and process.exitcode is not None:
                link.end()  # what it has sent is still read
            self._stopped[number] += 1
            if not is_stopped(process.pid):
                self._stopped[number] = 0
            elif self._stopped[number] == STOPPED_LOOKS:
                logger.warning(
                    "local worker %d of %d (pid %d) was stopped by a signal for %.0f s: killed",
                    number,
                    self._options.count,
                    process.pid,
                    STOPPED_LOOKS * LOOK_SECONDS,
                )
                process.kill()

    def stop(self) -> None:
        """End them; may be called by a finalizer, in any thread."""
        if not self.ours:
            return
        self._stopping = True
        for link in list(self._links.values()):
            link.leaving = True
            link.end()

    def _start(self, number: int) -> None:
        here, there = socket.socketpair()
        forked = self._context.get_start_method() == "fork"

        def forget() -> None:
            here.close()
            self._forget()

        process = self._context.Process(
            target=serve_parent,
            args=(
                there,
                forget if forked else None,
                self._pipeline,
                self.key,
                number,
                self._options.prepare,
                os.getpid(),
            ),
            name=f"penstock-local-{number}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():  # to fork beside threads is what PyTorch does too
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        frame.set_send_timeout(here, SILENCE_SECONDS)
        link = WorkerConnection(
            here,
            f"local worker {process.pid}",
            self._pool.makers.shared,
            local=self.key,
            number=number,
            pinned=self._pool.makers.pinned,
        )
        self._links[number], self._processes[number] = link, process
        join(self._pool.makers, link)
        try:
            # The thread has nothing of the program's, whose objects must not end with it at exit.
            start_thread(self._pool.makers, _receive, link, process, number, self._ended)
        except RuntimeError:  # the pod may have no more threads
            del self._links[number]
            leave(self._pool.makers, link)
            process.kill()
            raise


def _receive(
    makers: Makers,
    link: WorkerConnection,
    process: Any,
    number: int,
    ended: deque[tuple[int, str]],
) -> None:
    receive_from(makers, link)
    dead = False
    with contextlib.suppress(AssertionError, ValueError):  # this process is a fork itself
        process.join(AT_EXIT_SECONDS if makers.closing else END_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join(END_SECONDS)
        # A fork server that is lost says nothing of its children.
        dead = process.exitcode is not None and not exists(process.pid)
        ended.append((number, _explain(process)))
    with makers.lock:
        link.pinned.end(dead=dead)
        makers.lock.notify_all()  # the program looks what there is to do


def _explain(process: Any) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"(pid {process.pid}) was killed by signal {-code}"
    return f"(pid {process.pid}) ended with exit code {code}"
