"""The exchange between a worker and its job's trainer: slots to train on, the layout, duties.

One exchange does all of it: the worker's whole state out, its whole orders in. It is made when the
worker needs something (slots, a layout, an end to a pause), when its leases want renewing, and when
a save has ended; there is no thread beside the training but the one that writes a save. What makes
an exchange come soon when servers are to change is that they refuse the next batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx

from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import WorkerPhase, WorkerReply, WorkerReport
from penstock.parameter_server.worker.duties import ChiefDuties
from penstock.parameter_server.worker.slots import Slots
from penstock.parameter_server.worker.trainer_client import OverError, TrainerClient, WorkerError

logger = logging.getLogger(__name__)

LONG_POLL_SECONDS: Final = 1.0


class Exchange:
    """What a worker tells its trainer, and the newest answer."""

    def __init__(self, trainer: TrainerClient, report: WorkerReport, duties: ChiefDuties) -> None:
        """``report``: what is told of this worker, with a first request for slots."""
        self.slots = Slots(report.lease.holder, report.lease.data)
        """What it was given to train on."""
        self.reply: WorkerReply | None = None
        """The newest answer."""
        self._trainer = trainer
        self._report = report
        self._duties = duties
        self._made = time.monotonic()
        self._message = ""  # of the trainer, said in the log

    @property
    def due(self) -> bool:
        """Whether leases want renewing, or a save has ended."""
        term = self.reply.lease.lease_seconds if self.reply else 0.0
        return time.monotonic() - self._made > term / 4 or self._duties.save_ended

    def change(self, **changes: Any) -> None:
        """Report this from now on."""
        self._report = self._report.model_copy(update=changes)

    def make(
        self,
        lost: Iterable[ServerId],
        dropped: Mapping[str, int],
        max_slots: int = 0,
        *,
        wait: bool = False,
    ) -> WorkerReply:
        """Report everything and carry out what the answer says.

        Args:
            lost: servers that do not answer.
            dropped: batches without their gradients, by parameter.
            max_slots: how many slots are wanted at most.
            wait: whether the trainer may take its time, until it has news.

        Raises:
            WorkerError: the trainer refuses this worker, or is away for too long.
            OverError: the job is done.
            LeavingError: the trainer is away, and the worker was asked to go.
        """
        self._duties.collect_save()
        reply = self._trainer.send(self._whole(lost, dropped, max_slots, wait=wait))
        self.slots.said()
        self._made = time.monotonic()
        self.reply = reply
        self.slots.take(reply.lease)
        for fence in reply.lease.refused:
            logger.warning("lease %d had expired: others will do its samples again", fence)
        if reply.message and reply.message != self._message:
            logger.info("waiting: %s", reply.message)
        self._message = reply.message
        if reply.over:
            raise OverError(
                "the data are exhausted, and the parameter servers have been told to go"
            )
        self._duties.carry_out(reply)
        return reply

    def end(self, lost: Iterable[ServerId], dropped: Mapping[str, int], seconds: float) -> None:
        """Say good-bye, in one attempt."""
        self.change(phase=WorkerPhase.CLOSED)
        try:
            self._trainer.post(self._whole(lost, dropped, 0, wait=False), seconds)
        except (httpx.TransportError, WorkerError) as error:
            logger.warning("the last report did not reach the trainer: %s", error)

    def _whole(
        self, lost: Iterable[ServerId], dropped: Mapping[str, int], max_slots: int, *, wait: bool
    ) -> WorkerReport:
        layout = self.reply.layout if self.reply else None
        return self._report.model_copy(
            update={
                **self._duties.report(),
                "lease": self.slots.request(max_slots),
                "layout": layout.number if layout else self._report.layout,
                "lost": tuple(sorted(lost, key=str)),
                "dropped": dict(dropped),
                "seen_revision": self.reply.revision if self.reply else 0,
                "wait_seconds": LONG_POLL_SECONDS if wait else 0.0,
            }
        )
