"""One worker of a job with parameter servers: what its training loop calls.

It trains on the slots that the `penstock.parameter_server.worker.exchange.Exchange` brings it, with
the parameters that a `penstock.parameter_server.worker.client.ParameterClient` pulls and pushes;
the exchange is also where it hears of its duties.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.job.protocol import DataSpec, LeaseRequest, MemberId, Trouble
from penstock.job.storage import not_on_disk
from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import WorkerPhase, WorkerReply, WorkerReport
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.worker.checkpoint import ModelFiles
from penstock.parameter_server.worker.client import (
    GIVE_UP_SECONDS,
    AppliedSlots,
    ParameterClient,
    ParametersError,
    Pushed,
    ServersError,
)
from penstock.parameter_server.worker.duties import ChiefDuties
from penstock.parameter_server.worker.exchange import LONG_POLL_SECONDS, Exchange
from penstock.parameter_server.worker.trainer_client import (
    DRAIN_SECONDS,
    LeavingError,
    TrainerClient,
    WorkerError,
)

logger = logging.getLogger(__name__)

MAX_SLOTS: Final = 1 << 16
SAVE_SECONDS: Final = 600.0
"""A save that takes longer is given up: the disk hangs, or the servers do."""


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
        self._files = files
        self._staleness = staleness
        self._leaving = leaving
        self._give_up_seconds = give_up_seconds
        self._duties = ChiefDuties(spec, token, holder, dense, files)
        self._servers = ParameterClient(spec, token, holder, self._present_layout, give_up_seconds)
        self._client = TrainerClient(address, token, leaving, give_up_seconds)
        report = WorkerReport(
            member=member,
            spec=spec,
            lease=LeaseRequest(holder=holder, data=data, max_slots=0),
            saves=files is not None,
            save_every_slots=save_every_slots,
            dropped={},
        )
        self._trainer = Exchange(self._client, report, self._duties)
        self._beginning = False  # nothing would be lost by leaving now
        self._trained = 0  # slots that the model had seen at the end of the loop
        self._trained_in = 0  # and the layout in which that is known
        self.dropped: dict[str, int] = {}
        """Batches without their gradients, by the parameter whose gradient was not finite."""

    # ------------------------------------------------------------------ training

    @property
    def order_seed(self) -> int | None:
        """The seed of the order of samples; None before the first lease."""
        return self._trainer.reply.lease.order_seed if self._trainer.reply else None

    @property
    def servers(self) -> int:
        """Servers of the present layout."""
        return self._servers.count

    @property
    def chief(self) -> bool:
        """Whether this worker speaks for all."""
        return self._trainer.reply is not None and self._trainer.reply.chief

    def next_slot(self) -> int | None:
        """The next slot to train on; None at the end of the data. Raises LeavingError."""
        waiting = False
        while True:
            if self._leaving():
                raise LeavingError
            if self._trainer.slots.ahead:
                if self._trainer.due:
                    self._exchange()
                return self._trainer.slots.begin()
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
            self._trainer.slots.give_back()
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

    def ids(self, space: int) -> Rows:
        """As `ParameterClient.ids`."""
        ids = self._servers.ids(space)
        self._check_trained()
        return ids

    def push(self, slot: int, sparse: Sequence[Gradients], dense: Floats | None) -> Pushed:
        """As `ParameterClient.push`; the slot is acknowledged with the next exchange.

        Where it is to be redone, all that was leased is given back with it.
        """
        pushed = self._servers.push(slot, sparse, dense)
        if pushed is Pushed.OUTDATED:
            self._trainer.slots.give_back()
            self._exchange()
        else:
            self._trainer.slots.end()
        return pushed

    def applied(self) -> list[AppliedSlots]:
        """As `ParameterClient.applied`."""
        return self._servers.applied()

    def finish(self) -> None:
        """The loop has ended: the trainer is to know, and the chief to hear that it is it."""
        self._trained = _slots_of(self._servers.applied())
        self._trained_in = self._servers.layout
        self._trainer.change(phase=WorkerPhase.FINISHED)
        self._exchange()

    def tell(self, troubles: Sequence[Trouble]) -> None:
        """Report with the next call what cannot be written at present."""
        self._trainer.change(troubles=tuple(troubles))

    def publish(self, result: dict[str, Any]) -> None:
        """Tell the trainer the final figures."""
        self._trainer.change(result=result)
        self._exchange()

    def wait_for_save(self) -> None:
        """Chief: wait until the trained model is on disk, if there is a folder for it.

        Raises WorkerError: it is not, and nobody will try again.
        """
        if self._files is None or not self.chief:
            return
        wanted = _slots_of(self._servers.applied())
        deadline = time.monotonic() + SAVE_SECONDS
        while (self._duties.checkpoint or 0) < wanted:
            if self._leaving():
                logger.warning("left before the trained model was on disk")
                return
            self._duties.wait(LONG_POLL_SECONDS)
            reply = self._exchange(wait=not self._duties.saving)
            if not reply.chief:
                return
            given_up = reply.lease.finished and reply.save is None and not self._duties.saving
            if given_up or time.monotonic() > deadline:
                newest = self._files.newest()  # another chief may have written it
                if newest is not None and newest.slots >= wanted:
                    return
                why = self._duties.save_failure or "no save has ended"
                raise WorkerError(not_on_disk(self._files.folder, why))

    def close(self, *, failed: bool = False, goodbye_seconds: float = 3.0) -> None:
        """Give back what is held, say good-bye in one attempt, and close all lines."""
        if self._client.closed:
            return
        self._trainer.slots.give_back(failed=failed)
        if self._leaving() and self._files is not None:
            self._stay()
        self._trainer.end(self._servers.lost, self.dropped, goodbye_seconds)
        self._duties.stop()
        self._servers.close()
        self._client.close()

    def _stay(self) -> None:
        """Asked to go, do what is wanted yet: the checkpoint of a job that is suspended."""
        self._trainer.change(phase=WorkerPhase.LEAVING)
        deadline = time.monotonic() + SAVE_SECONDS
        try:
            reply = self._exchange()
            while reply.stay and time.monotonic() < deadline:
                self._duties.wait(LONG_POLL_SECONDS)
                reply = self._exchange(wait=not self._duties.saving)
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
        if wait and self._duties.wait_until_read(LONG_POLL_SECONDS):
            wait = False  # others wait for what there is to report
        return self._trainer.make(self._servers.lost, self.dropped, max_slots, wait=wait)


def _slots_of(applied: list[AppliedSlots]) -> int:
    """Slots that all servers have applied."""
    return min(sum(stop - start for start, stop in part.ranges) for part in applied)
