"""When a data worker's pod is ready: from then on it takes connections on a port of its own.

Whoever replaces a data worker starts the new one first and ends the old one when the new one is
ready, so ready has to mean that it makes batches, not that a process has started: importing what a
pipeline needs takes seconds. A job that asks for nothing, for instance because its loaders cannot
be moved, must not keep its data workers from being ready for ever: after `LATEST_SECONDS` they are.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from penstock.crds import environment as names
from penstock.crds import ports

if TYPE_CHECKING:
    from penstock.data.worker import DataWorker

LOG = logging.getLogger("penstock.data")

LATEST_SECONDS = 15.0
LOOK_SECONDS = 0.1


def announce(worker: DataWorker) -> None:
    """In a pod: listen as soon as the data worker has made a batch; returns at once."""
    if host := os.environ.get(names.POD_IP):
        threading.Thread(
            target=_announce, args=(worker, host), name="penstock-ready", daemon=True
        ).start()


def _announce(worker: DataWorker, host: str) -> None:
    latest = time.monotonic() + LATEST_SECONDS
    while not worker.batches and time.monotonic() < latest:
        time.sleep(LOOK_SECONDS)
    try:
        listener = socket.create_server((host, ports.DATA_WORKER))
    except OSError as error:
        LOG.error("nobody can see that this data worker is ready: %s", error)
        return
    while True:  # until the process ends
        try:
            listener.accept()[0].close()
        except OSError:
            time.sleep(LOOK_SECONDS)
