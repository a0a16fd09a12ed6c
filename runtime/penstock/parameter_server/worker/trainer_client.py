"""The way to the job's trainer: one request and its answer, tried again while it is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import httpx

from penstock.job.call_auth import CallAuth
from penstock.job.protocol import HEADERS, ProtocolError, decode, encode
from penstock.parameter_server.protocol import WORKER_PATH, WorkerReply, WorkerReport
from penstock.parameter_server.worker.client import ParametersError

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
DRAIN_SECONDS: Final = 5.0
"""How long a worker that was asked to go waits for servers, to end the batch that it has begun."""


class WorkerError(ParametersError):
    """The trainer refuses this worker, or is away for too long."""


class OverError(WorkerError):
    """The job is done, and its servers have gone: this worker came too late."""


class LeavingError(Exception):
    """The worker was asked to go while it waited."""


class TrainerClient:
    """Speaks to the trainer of a job with parameter servers."""

    def __init__(
        self, address: str, token: str, leaving: Callable[[], bool], give_up_seconds: float
    ) -> None:
        """``leaving``: whether this worker was asked to go."""
        self._address = address
        self._leaving = leaving
        self._give_up_seconds = give_up_seconds
        self._client = httpx.Client(
            base_url=f"http://{address}",
            auth=CallAuth(token),
            headers=HEADERS,
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._client.is_closed

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def send(self, report: WorkerReport) -> WorkerReply:
        """The answer to a report, however often that has to be sent.

        Raises:
            WorkerError: the trainer refuses this worker, or is away for too long.
            LeavingError: it is away, and the worker was asked to go.
        """
        began, failures = time.monotonic(), 0
        while True:
            try:
                return self.post(report, REQUEST_TIMEOUT_SECONDS)
            except httpx.TransportError as error:
                if failures == 0:
                    logger.warning("the trainer at %s does not answer (%r)", self._address, error)
                away = time.monotonic() - began
                if away > DRAIN_SECONDS and self._leaving():
                    raise LeavingError from error
                if away > self._give_up_seconds:
                    raise WorkerError(
                        f"the trainer at {self._address} was away for "
                        f"{self._give_up_seconds:.0f} s: {error!r}"
                    ) from error
            time.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    def post(self, report: WorkerReport, timeout: float) -> WorkerReply:
        """The answer to a report, in one attempt.

        Raises:
            httpx.TransportError: there is none.
            WorkerError: the trainer refuses this worker.
        """
        response = self._client.post(WORKER_PATH, content=encode(report), timeout=timeout)
        if response.status_code >= 500 or response.status_code == 429:
            raise httpx.ReadError(f"status {response.status_code}", request=response.request)
        if response.is_error:
            raise WorkerError(f"the trainer refused this worker: {response.text[:1000]}")
        try:
            return decode(WorkerReply, response.content)
        except ProtocolError as error:
            raise WorkerError(f"the trainer's answer is unreadable: {error}") from error
