"""The training-script API: a loop over steps that does not notice how many workers there are.

    from penstock.trainer import elastic

    with elastic.session(
        model=model, optimizer=optimizer, dataset_size=len(data), global_batch=256, epochs=10
    ) as session:
        for step in session:
            for micro in step:
                loss = loss_function(model(data[micro.indices]), target[micro.indices])
                micro.backward(loss)
            step.commit()
        if session.is_chief:
            session.report(accuracy=evaluate(model))

Run as ``python train.py`` this trains alone. Run by ``penstock run`` in the pods of a job it trains
data-parallel, and keeps these promises while workers come, go and die:

- A step holds the same samples, and its update is the same up to the order of float additions,
  whatever the number of workers: gradients are summed over the step's slots.
- All communication happens inside `Step.commit`. When a member is lost in it, the survivors form a
  new group within the same processes and the unfinished step is done again.
- Every sample of an epoch is consumed once by the model that survives, and this is counted.

``loss`` is the mean over the micro-batch; `MicroBatch.backward` weighs it by its part of the step.
PyTorch's random numbers in a micro-batch depend on (seed, slot) only, not on the worker.
`Session.loader` has the samples fetched ahead, by processes of this worker and data workers.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import numpy as np
import torch

from penstock.data.ledger import Buckets, SampleOrder
from penstock.job import settings
from penstock.job.protocol import DataSpec, MemberId, Phase, SessionReport
from penstock.job.work_source import Part
from penstock.trainer.checkpoint import CheckpointDir, open_folder
from penstock.trainer.checkpoint_file import CheckpointError
from penstock.trainer.drain_signal import DrainSignal
from penstock.trainer.group.collective import Gradients
from penstock.trainer.group.collective_errors import Cause, cause_of
from penstock.trainer.group.division import WHOLE
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.membership import Membership
from penstock.trainer.group.sharding import Sharding
from penstock.trainer.group.step import MicroBatch, Step
from penstock.trainer.group.step_barrier import GroupBrokenError, Listener
from penstock.trainer.group.trainer_connection import TrainerConnection, TrainerConnectionError
from penstock.trainer.loader.session_loader import LoaderOptions, SessionLoader, SessionLoaders
from penstock.trainer.logs import configure
from penstock.trainer.replica.layout import Layout, find_layout, refuse_lone_processes
from penstock.trainer.replica.replica import Replica
from penstock.trainer.replica.replica_membership import ReplicaMembership
from penstock.trainer.replica.replica_processes import ReplicaLostError
from penstock.trainer.results import published
from penstock.trainer.snapshot.schedule import Due, SaveSchedule
from penstock.trainer.step_log import StepLog
from penstock.trainer.training_evidence import announce
from penstock.trainer.training_state import Scheduler, Stateful, TrainingState

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "DrainedError",
    "MicroBatch",
    "Session",
    "SessionError",
    "SessionLoader",
    "Step",
    "session",
]

logger = logging.getLogger(__name__)

SLOTS_PER_STEP_ALONE: Final = 1
"""Nobody shares the steps of a process alone: several slots would only cut its batches smaller."""

FLUSH_SECONDS: Final = 15.0
DRAIN_FLUSH_SECONDS: Final = 3.0
DRAIN_SAVE_SECONDS: Final = 10.0
"""What a checkpoint that is being written gets on a drain: the group's next chief has the state.

After an error of the script it gets no more either."""

_LOCAL_RANK: Final = "LOCAL_RANK"
_SMOOTHING: Final = 0.3
_MAX_REPORTED_AUDITS: Final = 64


class DrainedError(SystemExit):
    """This process was asked to go and has left the group in good order: exit code 143."""

    def __init__(self) -> None:
        super().__init__(143)


class Session:
    """One worker's part in a training job; made by `session`."""

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Scheduler | None,
        data: DataSpec,
        dataset: Sized | None,
        extra: Mapping[str, Stateful],
        checkpoints: CheckpointDir | None,
        checkpoint_every_steps: int,
        snapshot_every_steps: int | None,
        buckets: Buckets | None,
        layout: Layout | None = None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._data = data
        self._buckets = buckets
        self._dataset = dataset
        holders: dict[str, Stateful] = {"model": model, "optimizer": optimizer, **extra}
        if scheduler is not None:
            holders["scheduler"] = scheduler
        sharding = None if layout is None else Sharding(model)
        self._state = TrainingState(holders, data, checkpoints, sharding)
        self._replica = None if layout is None else Replica(layout)
        self._division = WHOLE if layout is None else layout.division
        self._checkpoints = checkpoints
        self._saves = SaveSchedule(
            checkpoint_every_steps, snapshot_every_steps, may_wait=layout is None
        )
        self._step_log = StepLog.of_process()
        self._gradients = Gradients(model, () if layout is None else layout.data_groups)
        self._step: Step | None = None
        self._seconds_per_slot: float | None = None
        self._drain = DrainSignal()
        self._leads = True  # whether it was the first of the group that made the last step
        self._began = time.monotonic()
        self._link: TrainerConnection | None = None
        self._listener: Listener | None = None
        self._membership: Membership | ReplicaMembership | None = None
        self._finished = False
        self._loaders = SessionLoaders()
        self.result: dict[str, Any] | None = None
        self.order = data.order(data.slots_per_step or SLOTS_PER_STEP_ALONE, buckets)

    # ------------------------------------------------------------------ what a script may ask

    @property
    def committed_steps(self) -> int:
        """Steps that the model has seen."""
        return self._state.committed or 0

    @property
    def world_size(self) -> int:
        """Workers that train together now."""
        return self._membership.size if self._membership else 1

    @property
    def rank(self) -> int:
        """This worker's place among them."""
        return self._membership.index if self._membership else 0

    @property
    def finished(self) -> bool:
        """Whether the model has seen all data."""
        return self._finished

    @property
    def is_chief(self) -> bool:
        """Whether this worker speaks for all: the first of the group, and its model is complete.

        With a replica group so do all its processes, which evaluate their model together.
        """
        return self.rank == 0 and self._finished

    @property
    def interrupted(self) -> bool:
        """Whether the step that is being computed cannot be committed any more."""
        return self._membership is not None and self._membership.interrupted()

    def skips(self, slot: int) -> bool:
        """Whether a slot, counted over all epochs, is in quarantine."""
        ranges = self._membership.skipped if self._membership else ()
        return any(start <= slot < stop for start, stop in ranges)

    def loader(self, dataset: Any, **options: Unpack[LoaderOptions]) -> SessionLoader:
        """Batches of the session's steps, made ahead: ``for micro, batch in loader.load(step)``.

        Args:
            dataset: ``dataset[index]`` gives a sample, of the length that the session was given.
            options: as of `torch.utils.data.DataLoader`, as far as `LoaderOptions` has them.

        Raises:
            TypeError, ValueError: the dataset or an argument cannot be used; says which and why.
        """
        sharded, division = self._replica is not None, self._division
        loader = SessionLoader(
            self, dataset, options, division, sharded=sharded, place=lambda: self._place
        )
        return self._loaders.add(loader)

    def report(self, **figures: float) -> None:
        """Publish the final figures, with the counts of samples: on the chief, once.

        They go to the trainer and, as one line of JSON behind ``penstock-result``, to the log; one
        that is not finite is null there.
        """
        result = {
            **self._state.audit.totals(),
            "steps": self.committed_steps,
            "epochs": self._data.epochs,
            "seconds": round(time.monotonic() - self._began, 3),
            **figures,
        }
        if self._replica is not None and not self._replica.leads:
            self.result = result
            return
        self.result = published(result)
        if self._link is not None:
            self._link.publish(result=self.result)

    # ------------------------------------------------------------------ the loop

    def __enter__(self) -> Self:
        if self._checkpoints is not None:
            self._checkpoints.check_folder()
        address = settings.trainer_address()
        if self._replica is None:
            refuse_lone_processes(os.environ)
            announce(Part.SESSION)
            if address is not None:
                self._connect(address)
            return self
        state = self._state
        state.choose(self._replica.open(state.saved_steps(), state.is_whole))
        if self._replica.leads or os.environ.get(_LOCAL_RANK) == "0":
            announce(Part.SESSION)  # once in each pod, whose other processes are none of their own
        if self._replica.leads and address is not None:
            self._connect(address)
        self._membership = self._replica.membership(
            self._membership, self.order.slots_per_step, restore=self._state.newest_step
        )
        if address is not None and not self._replica.leads:
            self._drain.await_signal()
        return self

    def __iter__(self) -> Iterator[Step]:
        while self._ready():
            self._check_dataset()
            self._step = step = Step(self, self.committed_steps, self._own_slots(), self._division)
            yield step
            if not step.closed:
                raise SessionError(f"step {step.number} was not committed: call step.commit()")
            self._save_if_due(step.number)
        if self._drained and not self._complete:
            raise DrainedError
        self._conclude()

    def commit(self, step: Step, seconds: float) -> bool:
        """Carry out `Step.commit`."""
        if slots := len(step.micros):
            self._measure(seconds / slots)
        if self._link is not None:
            self._link.note(computed=step.number + 1)
        consumed = [(m.slot.micro, m.consumed) for m in step.micros]
        losses: Mapping[int, float] = step.losses() if self._step_log is not None else {}
        regroup = False
        if self._membership is not None:
            try:
                verdict = self._membership.agree(
                    step.number,
                    step.filled_slots,
                    consumed,
                    leave=self._drain.received,
                    losses=losses,
                    says=self._loaders.says(),
                )
                weight = sum(micro.weight for micro in step.micros)
                self._membership.sum_gradients(self._gradients, weight)
            except GroupBrokenError as error:
                logger.warning("step %d will be done again: %s", step.number, error)
                self._membership.leave(error)
                self._optimizer.zero_grad()
                return False
            self._membership.note_committed()
            self._loaders.hears(verdict.said, step.number + 1)
            consumed, regroup, losses = verdict.consumed, verdict.regroup, verdict.losses
        if step.filled_slots:
            self._optimizer.step()
        self._optimizer.zero_grad()
        if self._scheduler is not None:
            self._scheduler.step()
        for _, samples in consumed:
            self._state.audit.consume(step.epoch, np.frombuffer(samples, dtype=np.int64))
        self._state.committed = step.number + 1
        self._leads = self.rank == 0
        if self._step_log is not None and (self._replica is None or self._replica.leads):
            self._step_log.write(step.number, self.world_size, losses)
        if self._complete:
            self._state.audit.finish()
        self._after_commit(regroup=regroup)
        return True

    @property
    def _drained(self) -> bool:
        """Whether this worker was asked to go, by whichever of its processes."""
        return self._drain.received or (self._replica is not None and self._replica.drained)

    @property
    def _complete(self) -> bool:
        return self.committed_steps >= self.order.total_steps

    def _after_commit(self, *, regroup: bool) -> None:
        self._tell_troubles()
        if self._link is not None:
            audits, seconds = self._unreported_audits(), self._seconds_per_slot
            update = self._link.publish if self._complete else self._link.note
            update(committed=self.committed_steps, audits=audits, slot_seconds=seconds)
        if regroup and not self._complete and self._membership is not None:
            self._membership.leave()

    def _save_if_due(self, step: int) -> None:
        """Save between two steps: what the script's loop did after the commit is part of it."""
        if self.committed_steps != step + 1:
            return
        if (kept := self._checkpoints) is None:
            return
        if not self._leads:
            kept.forget()  # what it could not write, the group's first will
            self._saves.forget()
        elif due := self._saves.after(step + 1, complete=self._complete, has_place=kept.has_place):
            self._state.save(to_disk=due is Due.ON_DISK, last=self._complete)
            if self._complete:
                self._settle_checkpoints(kept)

    def _settle_checkpoints(self, kept: CheckpointDir) -> None:
        """Wait until the last checkpoint is on disk. Raises CheckpointError: it will not be."""

        def waits_on() -> bool:
            self._tell_troubles()
            return not self._drain.received

        alone = kept.wait
        wait = alone if self._replica is None else partial(self._replica.wait_for_all, alone)
        wait(waits_on)
        self._tell_troubles()

    def _tell_troubles(self) -> None:
        """Report what cannot be written at present."""
        checkpoints = self._checkpoints.troubles() if self._checkpoints is not None else ()
        steps = self._step_log.troubles() if self._step_log is not None else ()
        own = (*checkpoints, *steps)
        troubles = own if self._replica is None else self._replica.troubles(own)
        if self._link is not None:
            self._link.note(troubles=troubles)

    def _ready(self) -> bool:
        """Be in a group with a model that is up to date; False at the end."""
        if self._membership is None:
            if self._state.committed is None:
                self._state.begin()
            return not self._complete
        if not self._membership.inside:
            joined = self._membership.join(
                self._state,
                lambda: self._state.committed,
                self._gradients,
                lambda: self._drain.received,
            )
            if not joined:
                return False
            if self._membership.slots_per_step != self.order.slots_per_step:
                self.order = self._data.order(self._membership.slots_per_step, self._buckets)
        return not self._complete

    def _check_dataset(self) -> None:
        """The order of samples is fixed for the whole job: the data must be what they were."""
        if self._dataset is not None and len(self._dataset) != self._data.dataset_size:
            epoch = self.committed_steps // self.order.steps_per_epoch
            raise SessionError(
                f"dataset_size: {len(self._dataset)} in epoch {epoch}; the job began with "
                f"{self._data.dataset_size}, and the length of its data stays as it was: begin a "
                "new job for other data"
            )

    @property
    def _place(self) -> tuple[int, int] | None:
        return self._membership.place if isinstance(self._membership, Membership) else None

    def _own_slots(self) -> range:
        return self._membership.slots if self._membership else range(self.order.slots_per_step)

    def _conclude(self) -> None:
        self._drain.release()
        self._finished = self._complete
        if self._link is not None:
            self._link.publish(phase=Phase.FINISHED, audits=self._unreported_audits())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        announce(Part.CLOSED)
        self._loaders.close()
        self._drain.release()
        if self._step_log is not None:
            self._step_log.close()
        if self._membership is not None:
            self._membership.leave()
        if self._replica is not None:
            self._replica.close(self._failed_slot(error))
        try:
            kept = self._checkpoints
            if kept is not None and (error is not None or self._drain.received):
                kept.abandon(DRAIN_SAVE_SECONDS)
            elif kept is not None:
                self._settle_checkpoints(kept)
        except CheckpointError as failure:
            error = failure
            raise
        finally:
            if self._checkpoints is not None:
                self._checkpoints.close()
            self._take_leave(error)

    def _take_leave(self, error: BaseException | None) -> None:
        """Tell the trainer how it ended, and close the lines."""
        if self._link is not None:
            failed = self._failed_slot(error)
            if self._replica is not None and failed is None:
                failed = self._replica.failed_slot
            if error is None:
                self._link.publish(phase=Phase.CLOSED, result=self.result)
                if not self._link.flush(FLUSH_SECONDS):
                    logger.warning("the trainer did not take the last report")
            elif isinstance(error, DrainedError):
                self._link.publish(phase=Phase.LEAVING)
                self._link.flush(DRAIN_FLUSH_SECONDS)
            elif failed is not None:
                self._link.publish(phase=Phase.LEAVING, failed=failed)
                self._link.flush(DRAIN_FLUSH_SECONDS)
            self._link.close()
        if self._listener is not None:
            self._listener.close()

    # ------------------------------------------------------------------ inside

    def _connect(self, address: str) -> None:
        pod = settings.pod_identity()
        if not logger.hasHandlers():
            configure("text")
        self._listener = Listener(pod.ip)
        member = MemberId(rank=pod.rank, incarnation=pod.incarnation, nonce=secrets.token_hex(8))
        report = SessionReport(
            member=member,
            phase=Phase.READY,
            address=self._listener.address,
            data=self._data,
            checkpoint=self._state.newest_step,
        )
        self._link = TrainerConnection(address, pod.token, report)
        self._link.start()
        crew = self._replica.processes if self._replica is not None else None
        self._membership = Membership(self._link, self._listener, member, pod.ip, pod.token, crew)
        self._drain.await_signal()

    def _unreported_audits(self) -> tuple[Any, ...]:
        orders = self._link.orders if self._link else None
        known = orders.reply.audited_epochs if orders else 0
        return tuple(a for a in self._state.audit.closed if a.epoch >= known)[:_MAX_REPORTED_AUDITS]

    def _failed_slot(self, error: BaseException | None) -> int | None:
        """The slot, over all epochs, whose samples an error may be due to; None: to none."""
        ours = isinstance(error, SessionError | TrainerConnectionError | ReplicaLostError)
        if self._step is None or not isinstance(error, Exception) or ours:
            return None
        if self._replica is not None and cause_of(error) is Cause.LOST_MEMBER:
            return None  # a layer of a sharded model is a collective
        return self._step.working_on

    def _measure(self, seconds_per_slot: float) -> None:
        before = self._seconds_per_slot
        kept = seconds_per_slot if before is None else before
        self._seconds_per_slot = kept + _SMOOTHING * (seconds_per_slot - kept)


def session(
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Scheduler | None = None,
    dataset_size: int | Sized,
    global_batch: int,
    epochs: int,
    seed: int = 0,
    shuffle: bool = True,
    slots_per_step: int | None = None,
    buckets: Buckets | None = None,
    extra: Mapping[str, Stateful] | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every_steps: int = 100,
    snapshot_every_steps: int | None = None,
    keep_checkpoints: int = 3,
    replica_group: DeviceMesh | None = None,
    data_parallel: Sequence[str] | None = None,
) -> Session:
    """A session for a ``with`` statement; see the module's docstring.

    Args:
        model: with parameters and buffers on the device on which it trains.
        optimizer: of the model's parameters.
        scheduler: of the learning rate; goes on by one with each committed step.
        dataset_size: number of samples of an epoch, the same on every worker; or the dataset, whose
            length is then checked before every step.
        global_batch: samples of one step, over all workers.
        epochs: how often each sample is consumed.
        seed: of the order of samples and of random numbers drawn within micro-batches.
        shuffle: whether an epoch's order is random; else it is 0, 1, 2, ...
        slots_per_step: micro-batches per step, fixed for the whole job. Default: what the job says
            (its workers' ``maxReplicas``), and 1 without a job: the step as one batch, as a plain
            loop has it. More slots divide more evenly among any number of workers and need less
            memory at a time, fewer make larger micro-batches, which a GPU needs to be busy.
            Random numbers depend on the slot: name a number where they must be the same alone.
        buckets: steps are of samples of like length; without ``tokens``, since a step's samples
            have to be as many for any number of workers.
        extra: further objects whose state goes with the model's, by name. What the script changes
            in them after a commit must depend on ``step.commit()`` having returned True.
        checkpoint_dir: where checkpoints go; default: ``PENSTOCK_CHECKPOINT_DIR``, else nowhere.
        checkpoint_every_steps: steps between checkpoints.
        snapshot_every_steps: under ``penstock run``, with a folder for checkpoints: steps between
            copies of the state to the agent's memory, which are written to the folder when the
            process dies. Default: none but the checkpoints'.
        keep_checkpoints: how many stay.
        replica_group: of a sharded model: the mesh over all processes that hold it together, which
            are `torch.distributed`'s process group and one worker of the job. Default: the model is
            in this process.
        data_parallel: the mesh's dimensions over which samples are divided; along the others all
            have the same ones. Default: a mesh of one dimension is divided.

    Raises:
        ValueError: an argument is out of range; names it.
    """
    layout = None
    if replica_group is not None:
        layout = find_layout(replica_group, data_parallel, model)
    elif data_parallel is not None:
        raise ValueError("data_parallel: it goes with replica_group, whose dimensions it names")
    if checkpoint_every_steps < 1:
        raise ValueError(f"checkpoint_every_steps: {checkpoint_every_steps}; at least 1")
    if snapshot_every_steps is not None and snapshot_every_steps < 1:
        raise ValueError(f"snapshot_every_steps: {snapshot_every_steps}; at least 1, or None")
    folder = Path(checkpoint_dir) if checkpoint_dir else settings.checkpoint_dir()
    if folder is not None and layout is not None:
        folder = layout.checkpoint_folder(folder)
    dataset = None if isinstance(dataset_size, int) else dataset_size
    count = dataset_size if isinstance(dataset_size, int) else len(dataset_size)
    order = SampleOrder(count, global_batch, slots_per_step or 1, epochs, seed, shuffle)
    data = DataSpec(
        dataset_size=order.dataset_size,
        global_batch=order.global_batch,
        epochs=order.epochs,
        slots_per_step=slots_per_step,
        seed=seed,
        shuffle=shuffle,
        buckets="" if buckets is None else buckets.digest,
    )
    if buckets is not None and buckets.tokens is not None:
        raise ValueError(
            "buckets: tokens is set; a session's steps have global_batch samples each: leave it out"
        )
    data.order(slots_per_step or 1, buckets)  # says what does not fit
    return Session(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        data=data,
        dataset=dataset,
        extra=extra or {},
        checkpoints=open_folder(folder, keep_checkpoints, layout is not None),
        checkpoint_every_steps=checkpoint_every_steps,
        snapshot_every_steps=snapshot_every_steps,
        buckets=buckets,
        layout=layout,
    )
