"""When a program's pod is ready: while a port of its own takes connections, and says nothing.

Whoever replaces a pod starts the new one first and ends the old one when the new one is ready, so
ready has to mean that it does its work, not that a process has started. For a data worker that is
that it makes batches: importing what a pipeline needs takes seconds. A job that asks for nothing,
for instance because its loaders cannot be moved, must not keep its data workers from being ready
for ever: after `LATEST_SECONDS` they are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from penstock.base import ports
from penstock.base.listener import create_listener
from penstock.crds import environment as names

if TYPE_CHECKING:
    from penstock.data.serving.worker import DataWorker

logger = logging.getLogger(__name__)

LATEST_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.1


class Readiness:
    """A port that takes connections while `show` says so."""

    def __init__(self, host: str | None, port: int) -> None:
        """``host``: the pod's address; None: there is no pod, and nothing is shown."""
        self._host = host
        self._port = port
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()

    def show(self, ready: bool) -> None:
        """From now on this is so; a port that cannot be had is said once in the log."""
        with self._lock:
            if self._host is None or ready == (self._listener is not None):
                return
            if self._listener is not None:
                close_listener(self._listener)
                self._listener = None
                return
            try:
                self._listener = create_listener(self._host, self._port)
            except OSError as error:
                logger.error("nobody can see that this pod is ready: %s", error)
                self._host = None
                return
            threading.Thread(
                target=_answer_probes, args=(self._listener,), name="penstock-ready", daemon=True
            ).start()


def announce(worker: DataWorker) -> None:
    """In a pod: ready as soon as the data worker has made a batch; returns at once."""
    if host := os.environ.get(names.POD_IP):
        threading.Thread(
            target=_announce, args=(worker, host), name="penstock-ready", daemon=True
        ).start()


def close_listener(listener: socket.socket) -> None:
    """Close a socket on which another thread waits: closing alone does not wake that."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _announce(worker: DataWorker, host: str) -> None:
    latest = time.monotonic() + LATEST_SECONDS
    while not worker.figures.batches and time.monotonic() < latest:
        time.sleep(LOOK_SECONDS)
    Readiness(host, ports.DATA_WORKER).show(True)


def _answer_probes(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            if listener.fileno() < 0:
                return  # it has been closed
            time.sleep(LOOK_SECONDS)  # no descriptors are left, for instance
