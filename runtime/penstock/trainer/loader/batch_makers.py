"""Who makes a session's batches, and what of its steps they make as well.

The makers of a session live as long as it does, and have its dataset as it was when they began. So
what is to be done with a batch beside making it (`penstock.data.torch_loading.loader_work`) is
decided when an epoch begins; where that is something else than before, local workers are started
anew, and data workers are sent another pipeline. This process's own batches are always plain.

Whether a batch comes with results is of no consequence to who counts it, nor to its numbers: a step
that is done again, or is another worker's by then, may be computed the other way. Within a group
all workers use them from the same step on (`penstock.data.torchpartition.group_steps`).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.data.consuming.batch_stream import Source, start_local_workers
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.process import consumer_of_process, job_token
from penstock.data.errors import NotPortableError, PipelineTooLargeError
from penstock.data.local.workers import LocalOptions, LocalWorkers
from penstock.data.pipeline import PackedPipeline, Pipeline, pack_pipeline
from penstock.data.torch_loading.loader_work import LoaderWork, Members, work_of_loader
from penstock.data.torch_loading.worker_setup import WorkerSetup
from penstock.trainer.loader.local_worker import SessionWorkerSetup
from penstock.trainer.loader.slot_stream import StreamSource

if TYPE_CHECKING:
    from penstock.data.torchpartition.group_steps import GroupSteps


class BatchMakers:
    """See the module's docstring."""

    def __init__(self, loader: Any, seed: int, why_plain: str = "") -> None:
        """``loader``: a DataLoader with the options. ``why_plain``: batches never have results."""
        self._loader = loader
        self._seed = seed
        self._why_plain = why_plain
        self._work: LoaderWork | None = None
        self._stage: Callable[[Any], Any] | None = None
        self._source: StreamSource | None = None

    def begin_epoch(self, seed: int, *, in_group: bool = False) -> bool:
        """The program begins an epoch; whether others make its batches in another way from now on.

        Then `source` gives another one once it is asked, and the old one's makers end. ``seed``:
        that the epoch's batches are made with. ``in_group``: this worker is one of a group.
        """
        members = Members.TOLD if in_group and not self._why_plain else Members.NONE
        self._work = self._work or work_of_loader(self._loader, members)
        if self._work is None:
            return False
        if (consumer := consumer_of_process()) is not None:
            consumer.partition.follow(self._work)
        stage, before = self._work.begin_epoch(self._why_plain, seed), self._stage
        self._stage = stage
        return stage != before

    def begin_step(self, step: int, group: int, index: int) -> None:
        """As `GroupSteps.begin_step`, if it is that."""
        if (work := self._in_group) is not None:
            work.begin_step(step, group, index)

    def says(self) -> list[Any] | None:
        """What all members of the group are to hear at the end of the step; None: nothing."""
        return None if (work := self._in_group) is None else work.says()

    def hears(self, words: Sequence[Any], next_step: int) -> None:
        """What all members have said, by their index."""
        if (work := self._in_group) is not None:
            work.hears(words, next_step)

    @property
    def _in_group(self) -> GroupSteps | None:
        work: Any = self._work
        return work if hasattr(work, "says") else None

    def source(self, *, anew: bool = False) -> StreamSource:
        """Start the local workers, once; they have the dataset as it is now.

        ``anew``: the streams of the old ones are closed, and theirs is not what is made now.
        """
        if anew:
            self.stop()
        if self._source is None:
            self._source = self._begin()
        return self._source

    def deliver(self, given: Any, *, first: bool) -> Any:
        """What the program gets of what was made; ``first``: of this worker's part of a step."""
        return given if self._work is None else self._work.deliver(given, first=first)

    def stop(self) -> None:
        """Nobody is asked for anything more."""
        if self._source is not None and self._source.local is not None:
            self._source.local.stop()
        self._source = None

    def close(self) -> None:
        """The session is over, and with it the last step."""
        if self._work is not None:
            self._work.end_step()
        self.stop()

    def _begin(self) -> StreamSource:
        loader, consumer = self._loader, consumer_of_process()
        setup = WorkerSetup(loader.dataset, loader.num_workers, self._seed, loader.worker_init_fn)
        pipeline = Pipeline(
            loader.dataset,
            loader.collate_fn,
            prepare=setup if loader.worker_init_fn is not None else None,
        )
        sent = replace(pipeline, batch_stage=self._stage) if self._stage else pipeline
        local = _local_workers(loader, consumer, sent, setup)
        token = consumer.token if consumer else job_token()
        packed = _PackedOnce(sent, pipeline, self._work, token)
        key = local.key if local else b""
        return StreamSource(consumer, Source(pipeline, key, packed, sent=sent), local)


class _PackedOnce:
    """Packs a pipeline for data workers, as it is when the first of them comes."""

    def __init__(
        self, sent: Pipeline, plain: Pipeline, work: LoaderWork | None, token: str
    ) -> None:
        """``plain``: what is packed where the other one is too large."""
        self._sent, self._plain, self._work = sent, plain, work
        self._token = token
        self._packed: PackedPipeline | NotPortableError | None = None

    def __call__(self) -> PackedPipeline:
        if self._packed is None:
            try:
                self._packed = self._pack()
            except NotPortableError as error:
                self._packed = error
        if isinstance(self._packed, NotPortableError):
            raise self._packed
        return self._packed

    def _pack(self) -> PackedPipeline:
        if self._work is not None and self._sent is not self._plain:
            try:
                return pack_pipeline(self._sent, self._token)
            except PipelineTooLargeError:
                self._work.refuse("it is too large to be sent beside the dataset")
        return pack_pipeline(self._plain, self._token)


def _local_workers(
    loader: Any, consumer: Consumer | None, pipeline: Pipeline, setup: WorkerSetup
) -> LocalWorkers | None:
    if not loader.num_workers:
        return None
    context = loader.multiprocessing_context or multiprocessing.get_context()
    prepare = SessionWorkerSetup(setup, context.get_start_method() == "fork")
    asked = LocalOptions(loader.num_workers, context, prepare)
    return start_local_workers(consumer, pipeline, asked)
