"""A worker's dealings with its job's trainer: slots to train on, the layout, a chief's duties.

One exchange does all of it: the worker's whole state out, its whole orders in. It is made when the
worker needs something (slots, a layout, an end to a pause), when its leases want renewing, and when
a save has ended; there is no thread beside the training but the one that writes a save. What makes
an exchange come soon when servers are to change is that they refuse the next batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx

from penstock.data.errors import DataError
from penstock.job.protocol import (
    DataSpec,
    MemberId,
    ProtocolError,
    Trouble,
    decode,
    encode,
    request_headers,
)
from penstock.job.storage import not_on_disk
from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.parameter_server.connection import UnavailableError
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import (
    WORKER_PATH,
    WorkerPhase,
    WorkerReply,
    WorkerReport,
)
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFiles
from penstock.parameter_server.worker.chief import Filler, Save
from penstock.parameter_server.worker.client import (
    GIVE_UP_SECONDS,
    AppliedSlots,
    ParameterClient,
    ParametersError,
    ServersError,
)
from penstock.parameter_server.worker.slots import Slots

logger = logging.getLogger(__name__)

MAX_SLOTS: Final = 1 << 16
LONG_POLL_SECONDS: Final = 1.0
REQUEST_TIMEOUT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.0)
DRAIN_SECONDS: Final = 5.0
"""How long a worker that was asked to go waits for servers, to end the batch that it has begun."""
SAVE_SECONDS: Final = 600.0
"""A save that takes longer is given up: the disk hangs, or the servers do."""
SAVE_RETRY_SECONDS: Final = 5.0


class WorkerError(ParametersError):
    """The trainer refuses this worker, or is away for too long."""


class OverError(WorkerError):
    """The job is done, and its servers have gone: this worker came too late."""


class LeavingError(Exception):
    """The worker was asked to go while it waited."""


class Worker:
    """One worker of a job with parameter servers; see the module's docstring."""

    def __init__(
        self,
        *,
        address: str,
        token: str,
        member: MemberId,
        holder: str,
        spec: ModelSpec,
        data: DataSpec,
        dense: Floats,
        files: ModelFiles | None,
        save_every_slots: int,
        staleness: int | None,
        leaving: Callable[[], bool] = lambda: False,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        """``dense``: the initial values, for a model that begins afresh.

        ``leaving``: whether this worker was asked to go.
        """
        self._spec = spec
        self._token = token
        self._files = files
        self._staleness = staleness
        self._leaving = leaving
        self._give_up_seconds = give_up_seconds
        self._address = address
        self._name = holder
        self._slots = Slots(holder, data)
        self._filler = Filler(spec, token, holder, dense, files)
        self._servers = ParameterClient(spec, token, holder, self._present_layout, give_up_seconds)
        self._client = httpx.Client(
            base_url=f"http://{address}",
            headers=request_headers(token),
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )
        saved = files.newest() if files else None
        if files is not None and saved is not None:
            files.open(saved)  # of another model or other data: said at once
        self._report = WorkerReport(
            member=member,
            spec=spec,
            lease=self._slots.request(0),
            saves=files is not None,
            save_every_slots=save_every_slots,
            checkpoint=saved.slots if saved else None,
            dropped={},
        )
        self._reply: WorkerReply | None = None
        self._asked = time.monotonic()
        self._saving: Save | None = None
        self._save_failed = -SAVE_RETRY_SECONDS  # when
        self._save_failure = ""  # why the newest one did
        self._message = ""  # of the trainer, said in the log
        self._beginning = False  # nothing would be lost by leaving now
        self._trained = 0  # slots that the model had seen at the end of the loop
        self._trained_in = 0  # and the layout in which that is known
        self.dropped: dict[str, int] = {}
        """Batches without their gradients, by the parameter whose gradient was not finite."""

    # ------------------------------------------------------------------ training

    @property
    def order_seed(self) -> int | None:
        """The seed of the order of samples; None before the first lease."""
        return self._reply.lease.order_seed if self._reply else None

    @property
    def servers(self) -> int:
        """Servers of the present layout."""
        return self._servers.count

    @property
    def chief(self) -> bool:
        """Whether this worker speaks for all."""
        return self._reply is not None and self._reply.chief

    def next_slot(self) -> int | None:
        """The next slot to train on; None at the end of the data. Raises LeavingError."""
        waiting = False
        while True:
            if self._leaving():
                raise LeavingError
            if self._slots.ahead:
                if self._due():
                    self._exchange()
                return self._slots.begin()
            lease = self._exchange(max_slots=MAX_SLOTS, wait=waiting).lease
            if lease.finished:
                return None
            waiting = lease.fence is None

    def begin(self, slot: int) -> Floats | None:
        """Begin the batch of the slot: the dense parameters. None: it was given back; get another.

        Nothing may begin while servers change; what is leased goes back and is waited for. With a
        bound on staleness it waits for its turn. Raises LeavingError.
        """
        self._beginning = True
        try:
            dense = self._servers.begin(slot, self._staleness)
        finally:
            self._beginning = False
        if dense is None:
            self._slots.give_back()
            self._exchange()
        return dense

    def dense(self) -> Floats:
        """The dense parameters as they are now."""
        dense = self._servers.begin(None)
        assert dense is not None, "reading is refused to nobody"
        self._check_trained()
        return dense

    def pull(self, wanted: Sequence[tuple[int, Rows]]) -> list[Floats]:
        """As `ParameterClient.pull`."""
        values = self._servers.pull(wanted)
        self._check_trained()
        return values

    def push(self, slot: int, sparse: Sequence[Gradients], dense: Floats | None) -> bool:
        """As `ParameterClient.push`; the slot is acknowledged with the next exchange."""
        applied = self._servers.push(slot, sparse, dense)
        self._slots.end()
        return applied

    def applied(self) -> list[AppliedSlots]:
        """As `ParameterClient.applied`."""
        return self._servers.applied()

    def finish(self) -> None:
        """The loop has ended: the trainer is to know, and the chief to hear that it is it."""
        self._trained = _slots_of(self._servers.applied())
        self._trained_in = self._servers.layout
        self._change(phase=WorkerPhase.FINISHED)
        self._exchange()

    def tell(self, troubles: Sequence[Trouble]) -> None:
        """Report with the next call what cannot be written at present."""
        self._change(troubles=tuple(troubles))

    def publish(self, result: dict[str, Any]) -> None:
        """Tell the trainer the final figures."""
        self._change(result=result)
        self._exchange()

    def wait_for_save(self) -> None:
        """Chief: wait until the trained model is on disk, if there is a folder for it.

        Raises WorkerError: it is not, and nobody will try again.
        """
        if self._files is None or not self.chief:
            return
        wanted = _slots_of(self._servers.applied())
        deadline = time.monotonic() + SAVE_SECONDS
        while (self._report.checkpoint or 0) < wanted:
            if self._leaving():
                logger.warning("left before the trained model was on disk")
                return
            if self._saving is not None:
                self._saving.wait(LONG_POLL_SECONDS)
            reply = self._exchange(wait=self._saving is None)
            if not reply.chief:
                return
            given_up = reply.lease.finished and reply.save is None and self._saving is None
            if given_up or time.monotonic() > deadline:
                newest = self._files.newest()  # another chief may have written it
                if newest is not None and newest.slots >= wanted:
                    return
                why = self._save_failure or "no save has ended"
                raise WorkerError(not_on_disk(self._files.folder, why))

    def close(self, *, failed: bool = False, goodbye_seconds: float = 3.0) -> None:
        """Give back what is held, say good-bye in one attempt, and close all lines."""
        if self._client.is_closed:
            return
        self._slots.give_back(failed=failed)
        if self._leaving() and self._files is not None:
            self._stay()
        self._change(phase=WorkerPhase.CLOSED)
        try:
            self._post(self._whole(0, wait=False), goodbye_seconds)
        except (httpx.TransportError, WorkerError) as error:
            logger.warning("the last report did not reach the trainer: %s", error)
        if self._saving is not None:
            self._saving.stop()
        self._servers.close()
        self._client.close()

    def _stay(self) -> None:
        """Asked to go, do what is wanted yet: the checkpoint of a job that is suspended."""
        self._change(phase=WorkerPhase.LEAVING)
        deadline = time.monotonic() + SAVE_SECONDS
        try:
            reply = self._exchange()
            while reply.stay and time.monotonic() < deadline:
                if self._saving is not None:
                    self._saving.wait(LONG_POLL_SECONDS)
                reply = self._exchange(wait=self._saving is None)
        except (LeavingError, ParametersError) as error:
            logger.warning("it was not to be learnt whether a checkpoint is wanted yet: %s", error)

    def _check_trained(self) -> None:
        """After the loop: what is read must be the trained model, not one that went back."""
        if self._servers.layout == self._trained_in or not self._trained:
            return
        if _slots_of(self._servers.applied()) < self._trained:
            raise WorkerError(
                "a server was lost after the last batch, and the trained parameters with it: give "
                "the job a checkpoint_dir, so that they outlive the servers"
            )
        self._trained_in = self._servers.layout

    # ------------------------------------------------------------------ the trainer

    def _due(self) -> bool:
        """Whether leases want renewing, or a save has ended."""
        term = self._reply.lease.lease_seconds if self._reply else 0.0
        late = time.monotonic() - self._asked > term / 4
        return late or (self._saving is not None and self._saving.ended)

    def _present_layout(self) -> Layout:
        """The layout that is served, when there is one. Raises LeavingError if that takes long."""
        began = time.monotonic()
        wait = False
        while True:
            reply = self._exchange(wait=wait)
            if self._beginning and self._leaving():
                raise LeavingError
            if reply.layout is not None:
                return reply.layout
            waited = time.monotonic() - began
            if waited > DRAIN_SECONDS and self._leaving():
                raise LeavingError
            if waited > self._give_up_seconds:
                raise ServersError(
                    f"no parameter servers for {self._give_up_seconds:.0f} s"
                    + (f": {reply.message}" if reply.message else "")
                )
            wait = True

    def _exchange(self, max_slots: int = 0, *, wait: bool = False) -> WorkerReply:
        """Report everything and carry out what the answer says."""
        self._collect_save()
        report = self._whole(max_slots, wait=wait)
        reply = self._send(report)
        self._slots.said()
        self._asked = time.monotonic()
        self._reply = reply
        self._slots.take(reply.lease)
        for fence in reply.lease.refused:
            logger.warning("lease %d had expired: others will do its samples again", fence)
        if reply.message and reply.message != self._message:
            logger.info("waiting: %s", reply.message)
        self._message = reply.message
        if reply.over:
            raise OverError(
                "the data are exhausted, and the parameter servers have been told to go"
            )
        self._do_duties(reply)
        return reply

    def _whole(self, max_slots: int, *, wait: bool) -> WorkerReport:
        seen = self._reply.revision if self._reply else 0
        layout = self._reply.layout if self._reply else None
        return self._report.model_copy(
            update={
                "lease": self._slots.request(max_slots),
                "layout": layout.number if layout else self._report.layout,
                "lost": tuple(sorted(self._servers.lost, key=str)),
                "dropped": dict(self.dropped),
                "seen_revision": seen,
                "wait_seconds": LONG_POLL_SECONDS if wait else 0.0,
            }
        )

    def _send(self, report: WorkerReport) -> WorkerReply:
        began, failures = time.monotonic(), 0
        while True:
            try:
                return self._post(report, REQUEST_TIMEOUT_SECONDS)
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

    def _post(self, report: WorkerReport, timeout: float) -> WorkerReply:
        response = self._client.post(WORKER_PATH, content=encode(report), timeout=timeout)
        if response.status_code >= 500 or response.status_code == 429:
            raise httpx.ReadError(f"status {response.status_code}", request=response.request)
        if response.is_error:
            raise WorkerError(f"the trainer refused this worker: {response.text[:1000]}")
        try:
            return decode(WorkerReply, response.content)
        except ProtocolError as error:
            raise WorkerError(f"the trainer's answer is unreadable: {error}") from error

    # ------------------------------------------------------------------ a chief's duties

    def _do_duties(self, reply: WorkerReply) -> None:
        if self._report.failed and reply.fill is None and reply.save is None:
            self._change(failed="")  # what it failed at is not asked of it any more
        if reply.fill is not None and reply.fill.number != self._report.filled:
            self._fill(reply.fill, reply.fill_checkpoint)
        if reply.save is not None and reply.layout is not None and self._files is not None:
            known = self._saving.snapshot if self._saving else self._report.saved
            tired = time.monotonic() - self._save_failed < SAVE_RETRY_SECONDS
            if reply.save != known and not tired:
                self._change(failed="")
                self._saving = Save(
                    self._spec,
                    self._token,
                    self._name,
                    self._files,
                    reply.layout,
                    reply.save,
                )

    def _fill(self, layout: Layout, checkpoint: int | None) -> None:
        try:
            self._filler.fill(layout, checkpoint)
        except (DataError, UnavailableError, CheckpointError, OSError) as error:
            logger.warning("layout %d could not be filled: %s", layout.number, error)
            self._change(failed=str(error)[:4096] or repr(error))
        else:  # a snapshot of as many slots will be another one from now on
            self._change(filled=layout.number, saved=None, failed="")
        newest = self._files.newest() if self._files else None
        self._change(checkpoint=newest.slots if newest else None)

    def _collect_save(self) -> None:
        """Report how a save went, once it has ended."""
        if self._saving is None or not self._saving.ended:
            return
        save, self._saving = self._saving, None
        self._save_failure = save.failure
        if save.failure:
            logger.warning("the model was not saved: %s", save.failure)
            self._save_failed = time.monotonic()
            self._change(failed=save.failure)
        else:
            self._change(saved=save.snapshot, checkpoint=save.slots, failed="")

    def _change(self, **changes: Any) -> None:
        """Report this from now on."""
        self._report = self._report.model_copy(update=changes)


def _slots_of(applied: list[AppliedSlots]) -> int:
    """Slots that all servers have applied."""
    return min(sum(stop - start for start, stop in part.ranges) for part in applied)
