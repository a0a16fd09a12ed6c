"""The loop of a training program with parameter servers: batches in, gradients out.

Between two batches nothing of a worker's is worth keeping: parameters are the servers', positions
the ledger's. So a worker that dies is simply replaced, and one that was asked to go leaves after
the batch that it has begun.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import numpy as np
import torch

from penstock.crds.environment import CHECKPOINT_DIR
from penstock.data.ledger import SampleOrder, derive_seed
from penstock.data.ledger.order import MAX_GLOBAL_BATCH
from penstock.job import settings
from penstock.job.identities import consumer_name
from penstock.job.protocol import DataSpec, MemberId
from penstock.job.work_source import Part
from penstock.parameter_server.arrays import Floats, Rows
from penstock.parameter_server.protocol import MAX_DROPPED
from penstock.parameter_server.worker.checkpoint import ModelFiles
from penstock.parameter_server.worker.client import AppliedSlots, ParametersError, Pushed
from penstock.parameter_server.worker.trainer_client import LeavingError, OverError
from penstock.parameter_server.worker.worker import Worker
from penstock.trainer.elastic import DrainedError
from penstock.trainer.logs import configure
from penstock.trainer.ps.alone import Alone
from penstock.trainer.ps.arguments import whole
from penstock.trainer.ps.batch import Batch, are_finite
from penstock.trainer.ps.model import ServedModel
from penstock.trainer.ps.optimizer import Optimizer
from penstock.trainer.ps.runner import Runner
from penstock.trainer.ps.transfer import Transfer
from penstock.trainer.results import published
from penstock.trainer.step_log import StepLog
from penstock.trainer.training_evidence import announce

logger = logging.getLogger(__name__)

EXPORT_ROWS: Final = 1 << 16
MAX_EPOCHS: Final = 1 << 24
MAX_COUNT: Final = (1 << 62) - 1


class SessionError(ParametersError):
    """The program uses its session in a way that cannot be meant."""


class Session:
    """One worker's part in a training with parameter servers; made by `session`."""

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        optimizer: Optimizer,
        data: DataSpec,
        files_in: Path | None,
        keep_checkpoints: int,
        checkpoint_every: int,
        staleness: int | None,
    ) -> None:
        self.order: SampleOrder = data.order(1)
        self.result: dict[str, Any] | None = None
        self._data = data
        self._optimizer = optimizer
        self._transfer = Transfer()
        self._served = ServedModel(model, optimizer.spec, data.seed, self._transfer)
        self._files = (
            ModelFiles(files_in, self._served.spec, data, keep_checkpoints) if files_in else None
        )
        self._checkpoint_every = checkpoint_every
        self._staleness = staleness
        self._runner: Runner | None = None
        self._batch: Batch | None = None
        self._batches = 0
        self._finished = self._late = False
        self._drain = False
        self._began = time.monotonic()
        self._step_log: StepLog | None = None
        self._old_handler: Any = None
        self._process = 0
        self._asking = threading.Lock()  # the program's threads may look rows up together

    # ------------------------------------------------------------------ what a script may ask

    @property
    def finished(self) -> bool:
        """Whether the model has seen all data."""
        return self._finished

    @property
    def is_chief(self) -> bool:
        """Whether this worker speaks for all, and the model is complete."""
        return self._finished and self._running.chief

    @property
    def batches(self) -> int:
        """Batches that this worker has trained on."""
        return self._batches

    def report(self, **figures: float) -> None:
        """Publish the final figures, with the counts of samples: on the chief, once.

        They go to the trainer and, as one line of JSON behind ``penstock-result``, to the log; one
        that is not finite is null there.
        """
        runner = self._running
        result = {
            **counts(self.order, runner.applied()),
            "epochs": self._data.epochs,
            "seconds": round(time.monotonic() - self._began, 3),
            **({"dropped": runner.dropped} if runner.dropped else {}),
            **figures,
        }
        self.result = published(result)
        runner.publish(self.result)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All trained parameters as plain tensors: it must fit into memory.

        Tables are ``NAME.weight``, where NAME is that of the module, with the table's name behind
        it where the module has several. One that is keyed by ids has ``NAME.ids`` as well, which
        says whose each row is.
        """
        runner = self._running
        state = {name: values.clone() for name, values in self._served.split(runner.dense())}
        for name, space, start, stop in self._served.tables():
            if self._served.spec.spaces[space].vocabulary is None:
                rows: Rows | range = range(start, stop)
            else:
                rows = runner.ids(space)
                state[f"{name}.ids"] = torch.from_numpy(rows)
            weight = torch.empty(len(rows), self._served.spec.spaces[space].dim)
            for at in range(0, len(rows), EXPORT_ROWS):
                some = np.asarray(rows[at : at + EXPORT_ROWS], np.int64)
                [part] = runner.pull([(space, some)])
                weight[at : at + EXPORT_ROWS] = torch.from_numpy(part)
            state[f"{name}.weight"] = weight
        return state

    # ------------------------------------------------------------------ the loop

    def __enter__(self) -> Self:
        address = settings.trainer_address()
        self._process = os.getpid()
        announce(Part.SERVERS)
        if self._files is not None:
            self._files.check_folder()
        dense = self._served.values()
        if not logger.hasHandlers():
            configure("text")
        if address is None:
            self._runner = Alone(
                self._served.spec,
                self.order.total_slots,
                dense,
                self._files,
                self._checkpoint_every,
            )
        else:
            self._runner = self._connect(address, dense)
        self._served.connect(self)
        self._optimizer.connect(self)
        return self

    def __iter__(self) -> Iterator[torch.Tensor]:
        try:
            while (batch := self._next_batch()) is not None:
                samples = self.order.samples(self.order.slot(batch.slot))
                torch.manual_seed(derive_seed(self.order.seed, batch.slot))
                self._batch = batch
                yield torch.from_numpy(samples)
                if self._batch is not None:
                    raise SessionError(
                        f"batch {batch.slot} was not handed in: call optimizer.step() for each"
                    )
        except LeavingError as error:
            raise DrainedError from error
        except OverError as error:
            logger.warning("%s: this worker came too late for the trained model", error)
            self._late = True
            return
        self._conclude()

    def look_up(self, space: int, rows: Rows, device: torch.device) -> torch.Tensor:
        """Carry out `Embedding.forward`: rows, each once, and within a batch their gradients."""
        try:
            with self._asking:
                [values] = self._running.pull([(space, rows)])
        except LeavingError as error:
            raise DrainedError from error
        found = self._transfer.to_device(torch.from_numpy(values), device)
        if self._batch is not None and torch.is_grad_enabled():
            found.requires_grad_()
            self._batch.looked_up.append((space, rows, found))
        return found

    def zero_grad(self) -> None:
        """Carry out `Optimizer.zero_grad`."""
        self._served.zero_grad()
        if self._batch is not None:
            for _, _, values in self._batch.looked_up:
                values.grad = None

    def step(self) -> None:
        """Carry out `Optimizer.step`."""
        batch = self._batch
        if batch is None:
            raise SessionError(
                "optimizer.step() with no batch in work: it is called once for each batch of the "
                "session"
            )
        sparse, dense = batch.gradients(self._transfer), self._served.gradients()
        if not sparse and dense is None:
            raise SessionError(
                f"batch {batch.slot} has no gradients: call loss.backward() before optimizer.step()"
            )
        if not are_finite(sparse, dense):
            self._drop(self._served.not_finite(sparse, dense))
            sparse, dense = [], None
        try:
            with self._asking:
                pushed = self._running.push(batch.slot, sparse, dense)
        except LeavingError as error:
            raise DrainedError from error
        self._batch = None
        if pushed is Pushed.OUTDATED:
            logger.info("a server was lost: batch %d is done again, on what remains", batch.slot)
            return
        self._batches += 1
        if self._step_log is not None:
            self._step_log.write(batch.slot, self._running.servers, {})
            self._running.tell(self._step_log.troubles())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        announce(Part.CLOSED)
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None
        if self._step_log is not None:
            self._step_log.close()
        self._served.connect(None)
        self._optimizer.connect(None)
        runner = self._running
        if error is None and self._batches and not self._finished and not self._late:
            logger.warning(
                "left after %d batches, before the data were exhausted: the model is not complete, "
                "and nothing more is saved or reported",
                self._batches,
            )
        blames_data = isinstance(error, Exception) and not isinstance(error, ParametersError)
        try:
            if error is None and self._finished:
                runner.wait_for_save()
        finally:
            runner.close(failed=blames_data and self._batch is not None)
            self._runner = None

    # ------------------------------------------------------------------ inside

    @property
    def _running(self) -> Runner:
        if self._runner is None:
            raise SessionError("the session is used outside its `with` statement")
        if os.getpid() != self._process:  # its connections are those of the process before it
            raise SessionError(
                "the session is used in a process that was forked within it: only the one that "
                "entered it may train or look rows up; others may load data"
            )
        return self._runner

    def _next_batch(self) -> Batch | None:
        """The next batch, begun: its dense parameters are in the model."""
        while (slot := self._running.next_slot()) is not None:
            if self._running.order_seed not in (None, self.order.seed):
                raise SessionError(
                    "input.guarantee: Unsharded gives every worker all samples in an order of its "
                    "own, and workers that train one model share them: leave the guarantee out"
                )
            self._check_model()
            dense = self._running.begin(slot)
            if dense is not None:
                if not self._batches:
                    size, servers = self._served.spec.bytes / 1e6, self._running.servers
                    where = f"on {servers} servers" if servers else "alone"
                    logger.info("training %.1f MB %s from batch %d", size, where, slot)
                self._served.load(dense)
                self._served.zero_grad()
                return Batch(slot)
        return None

    def _check_model(self) -> None:
        try:
            self._served.check()
        except ValueError as error:
            raise SessionError(str(error)) from error

    def _conclude(self) -> None:
        """The model, as all workers have left it, is here for evaluation."""
        runner = self._running
        runner.finish()
        self._served.load(runner.dense())
        self._finished = True

    def _drop(self, names: Sequence[str]) -> None:
        dropped = self._running.dropped
        for name in names:
            if name not in dropped and len(dropped) >= MAX_DROPPED:
                continue  # so many have been named
            if name not in dropped:
                logger.warning(
                    "gradients of %s are not finite: batches in which this happens change nothing "
                    "and are counted; lower the learning rate, or look at the data",
                    name,
                )
            dropped[name] = dropped.get(name, 0) + 1

    def _connect(self, address: str, dense: Floats) -> Worker:
        pod = settings.pod_identity()
        if self._files is None:
            logger.warning(
                "no folder for checkpoints: where a server is lost, the training begins anew; "
                "checkpoint_dir= or %s names one that all workers share",
                CHECKPOINT_DIR,
            )
        nonce = secrets.token_hex(8)
        worker = Worker(
            address=address,
            token=pod.token,
            member=MemberId(rank=pod.rank, incarnation=pod.incarnation, nonce=nonce),
            holder=consumer_name(pod.rank, pod.incarnation, nonce),
            spec=self._served.spec,
            data=self._data,
            dense=dense,
            files=self._files,
            save_every_slots=self._checkpoint_every,
            staleness=self._staleness,
            leaving=lambda: self._drain,
        )
        folder = settings.step_log()
        self._step_log = StepLog(folder, pod.rank, pod.incarnation) if folder else None
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        return worker

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # forked within the session: ends as any process does
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._drain = True


def session(
    model: torch.nn.Module,
    optimizer: Optimizer,
    dataset_size: int | Sized,
    batch_size: int,
    epochs: int = 1,
    *,
    seed: int = 0,
    shuffle: bool = True,
    staleness: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 2000,
    keep_checkpoints: int = 3,
) -> Session:
    """A session for a ``with`` statement; see `penstock.trainer.ps`.

    Args:
        model: complete, on the devices on which it trains; the dense parameters of the first chief
            are what all begin at.
        optimizer: of this model.
        dataset_size: number of samples of an epoch, the same on every worker; or the dataset.
        batch_size: samples of one batch, which one worker trains on.
        epochs: how often each sample is consumed.
        seed: of the order of samples, of the tables' first values, and of random numbers drawn
            within batches.
        shuffle: whether an epoch's order is random; else it is 0, 1, 2, ...
        staleness: a batch begins only if its gradients are sure to be applied at most so many
            updates after it read the dense parameters; 0: one batch at a time. None: no bound.
        checkpoint_dir: where checkpoints go; default: ``PENSTOCK_CHECKPOINT_DIR``, else nowhere.
        checkpoint_every: batches, of all workers, between checkpoints; 0: only at the end.
        keep_checkpoints: how many stay.

    Raises:
        ValueError: an argument is out of range, or a parameter cannot be on servers; names it.
    """
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer)
        raise ValueError(
            f"optimizer: {kind.__module__}.{kind.__qualname__}; parameters on servers are changed "
            'there: give a ps.Optimizer(model, "adagrad", lr=...), or "sgd", "adam", "adamw"'
        )
    if optimizer.model is not model:
        raise ValueError(
            "optimizer: it is that of another model; a session trains one model, with "
            "ps.Optimizer(model, ...)"
        )
    size = len(dataset_size) if isinstance(dataset_size, Sized) else dataset_size
    data = DataSpec(
        dataset_size=whole("dataset_size", size, 1, MAX_COUNT),
        global_batch=whole("batch_size", batch_size, 1, MAX_GLOBAL_BATCH),
        epochs=whole("epochs", epochs, 1, MAX_EPOCHS),
        slots_per_step=1,
        seed=whole("seed", seed, -(1 << 63), (1 << 63) - 1),
        shuffle=shuffle,
    )
    return Session(
        model=model,
        optimizer=optimizer,
        data=data,
        files_in=Path(checkpoint_dir) if checkpoint_dir else settings.checkpoint_dir(),
        keep_checkpoints=whole("keep_checkpoints", keep_checkpoints, 1, MAX_COUNT),
        checkpoint_every=whole("checkpoint_every", checkpoint_every, 0, MAX_COUNT),
        staleness=None if staleness is None else whole("staleness", staleness, 0, MAX_COUNT),
    )


def counts(order: SampleOrder, applied: Sequence[AppliedSlots]) -> dict[str, int]:
    """What the model has seen, as its servers count: the worst of them, should they differ.

    ``samples_repeated`` compares two counts that servers keep apart: the slots that they know to be
    applied, and the updates that they made.
    """
    size, batch = order.dataset_size, order.global_batch
    last = size - batch * (order.steps_per_epoch - 1)

    def below(slot: int) -> int:
        epochs, steps = divmod(slot, order.steps_per_epoch)
        return epochs * size + steps * batch

    seen = min(sum(below(stop) - below(start) for start, stop in part.ranges) for part in applied)
    repeats = max(
        part.pushes - sum(stop - start for start, stop in part.ranges) for part in applied
    )
    return {
        "samples_seen": seen,
        "samples_lost": order.epochs * size - seen,
        "samples_repeated": repeats * (batch if order.steps_per_epoch > 1 else last),
        "batches": max(part.pushes for part in applied),
    }
