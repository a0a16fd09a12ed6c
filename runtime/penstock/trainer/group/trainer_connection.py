"""A training process's line to its trainer: reports out, orders in, on one thread of its own.

The training loop is the user's and synchronous, so somebody else has to keep the heartbeat going
while a step computes: this is the one thread of a session. The loop changes what is reported with
`TrainerConnection.publish` and reads the newest orders; it never waits for the network unless it
asks to.

When the trainer is away, reports are repeated until it is back. Nothing is lost by that: each one
holds the whole state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from penstock.job.call_auth import CallAuth
from penstock.job.protocol import (
    HEADERS,
    SESSION_PATH,
    Directive,
    ProtocolError,
    SessionReply,
    SessionReport,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 0.5
JOINING_SECONDS: Final = 0.1
LONG_POLL_SECONDS: Final = 1.0
REQUEST_TIMEOUT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
GIVE_UP_SECONDS: Final = 900.0


class TrainerConnectionError(Exception):
    """The trainer refused this process for good, or was away for too long."""


class SupersededError(TrainerConnectionError):
    """A newer process has this one's place."""


@dataclass(frozen=True)
class Orders:
    """The newest orders and the report that they answer."""

    report: SessionReport
    reply: SessionReply


class TrainerConnection:
    """The line of one session; start it, `publish` changes, read `orders`, close it."""

    def __init__(
        self,
        address: str,
        token: str,
        report: SessionReport,
        give_up_seconds: float = GIVE_UP_SECONDS,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        """``notify`` is called, by another thread, when there are orders or the line is dead."""
        self._notify = notify
        self._client = httpx.Client(
            base_url=f"http://{address}",
            auth=CallAuth(token),
            headers=HEADERS,
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )
        self._address = address
        self._give_up_seconds = give_up_seconds
        self._changed = threading.Condition()
        self._report = report
        self._serial = 0  # of the report
        self._delivered = -1  # the newest serial that was answered
        self._orders: Orders | None = None
        self._error: TrainerConnectionError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock-link", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def publish(self, **changes: Any) -> None:
        """Change what is reported and report it at once."""
        self._update(changes, urgent=True)

    def note(self, **changes: Any) -> None:
        """Change what is reported with the next heartbeat."""
        self._update(changes, urgent=False)

    @property
    def orders(self) -> Orders | None:
        """The newest orders; None before the first. Raises LinkError when the line is dead."""
        with self._changed:
            self._check()
            return self._orders

    def wait(self, ready: Callable[[Orders], bool], timeout: float) -> Orders | None:
        """Wait for orders of a kind; None after ``timeout`` seconds. Raises LinkError."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                self._check()
                if self._orders is not None and ready(self._orders):
                    return self._orders
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    def flush(self, timeout: float) -> bool:
        """Wait until the present report has been answered; False after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._changed:
            wanted = self._serial
            while self._delivered < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or self._error is not None:
                    return False
                self._changed.wait(left)
            return True

    def close(self) -> None:
        """Stop reporting."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * REQUEST_TIMEOUT_SECONDS)
        self._client.close()

    def _update(self, changes: dict[str, Any], *, urgent: bool) -> None:
        with self._changed:
            self._report = self._report.model_copy(update=changes)
            if urgent:
                self._serial += 1
                self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        failures, away_since = 0, time.monotonic()
        while (taken := self._next_report()) is not None:
            serial, report = taken
            try:
                reply = self._ask(report)
            except TrainerConnectionError as error:
                self._end(error)
                return
            except httpx.TransportError as error:
                if failures == 0:
                    logger.warning("the trainer at %s does not answer (%r)", self._address, error)
                failures += 1
                if self._closing:
                    return
                if time.monotonic() - away_since > self._give_up_seconds:
                    away = self._give_up_seconds
                    message = f"the trainer at {self._address} was away for {away:.0f} s: {error!r}"
                    self._end(TrainerConnectionError(message))
                    return
                self._pause(RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1])
                continue
            if failures:
                logger.warning("the trainer at %s answers again", self._address)
            failures, away_since = 0, time.monotonic()
            self._deliver(serial, report, reply)
            if reply.directive is Directive.REFUSED:
                self._end(SupersededError(f"the trainer refused this process: {reply.message}"))
                return

    def _next_report(self) -> tuple[int, SessionReport] | None:
        """The report to send now, after the pause that the present orders allow."""
        with self._changed:
            if self._delivered == self._serial and not self._closing:
                self._changed.wait(self._interval())
            if self._closing and (self._delivered == self._serial or self._error is not None):
                return None
            return self._serial, self._report.model_copy(update=self._polling())

    def _interval(self) -> float:
        if self._orders is None or self._orders.reply.directive is Directive.WAIT:
            return 0.0 if self._orders is not None else HEARTBEAT_SECONDS
        joining = self._orders.reply.directive in (Directive.JOIN, Directive.ABANDON)
        return JOINING_SECONDS if joining else HEARTBEAT_SECONDS

    def _polling(self) -> dict[str, Any]:
        """A process that only waits lets the trainer hold its answer until there is news."""
        orders = self._orders
        waiting = orders is not None and orders.reply.directive is Directive.WAIT
        if orders is None or not waiting or self._closing or self._delivered != self._serial:
            return {"wait_seconds": 0.0, "seen_revision": 0}
        return {"wait_seconds": LONG_POLL_SECONDS, "seen_revision": orders.reply.revision}

    def _ask(self, report: SessionReport) -> SessionReply:
        response = self._client.post(SESSION_PATH, content=encode(report))
        if response.status_code >= 500 or response.status_code == 429:
            raise httpx.ReadError(f"status {response.status_code}", request=response.request)
        if response.is_error:
            raise TrainerConnectionError(f"the trainer refused a report: {response.text[:1000]}")
        try:
            return decode(SessionReply, response.content)
        except ProtocolError as error:
            raise TrainerConnectionError(f"the trainer's answer is unreadable: {error}") from error

    def _deliver(self, serial: int, report: SessionReport, reply: SessionReply) -> None:
        with self._changed:
            self._orders = Orders(report, reply)
            self._delivered = serial
            self._changed.notify_all()
        self._notify()

    def _end(self, error: TrainerConnectionError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
        self._notify()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._closing:
                self._changed.wait(seconds)
