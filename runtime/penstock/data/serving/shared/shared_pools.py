"""What a data worker makes for jobs that share, by dataset; for its main thread alone.

All datasets together keep at most one window: those of which somebody is to get something divide
it, and the others, as the training's while all validate, make room for them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from penstock.data.errors import DataError, FrameError
from penstock.data.ledger import derive_seed
from penstock.data.memory import SHARED_SHARE, read_memory
from penstock.data.protocol import SharedTotals
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.collate_guard import CollateGuard
from penstock.data.serving.shared.common_samples import CommonSamples
from penstock.data.serving.shared.free_samples import FreeSamples
from penstock.data.serving.shared.proof import proof_batch, proof_of
from penstock.data.serving.shared.shared_streams import SharedStreams
from penstock.data.sharing.pipeline import PROOF, SharedPipeline
from penstock.data.sharing.pool import SharingError
from penstock.data.sharing.stream_pipeline import SharedStreamPipeline
from penstock.data.streams.pipeline import Chain

logger = logging.getLogger(__name__)

MAX_SHARED: Final = 16
"""Datasets that jobs share at once; one of which nobody is to get anything makes room."""

Samples = FreeSamples | CommonSamples | SharedStreams


class OpenedPipeline(NamedTuple):
    """A pipeline that was sent, and what it makes here (`penstock.data.serving.shared.proof`)."""

    pipeline: SharedPipeline
    proof: bytes


class SharedPools:
    """See the module's docstring."""

    def __init__(self, salt: int | None = None) -> None:
        """``salt``: random numbers of samples in free order are derived from it."""
        self._salt = secrets.randbits(62) if salt is None else salt
        self._datasets = 0  # so far: each has random numbers of its own, also one that comes again
        self._window = 1
        self._samples: dict[bytes, Samples] = {}
        self._active: frozenset[bytes] = frozenset()
        self._opened: dict[bytes, OpenedPipeline] = {}
        self._guards: dict[bytes, CollateGuard] = {}
        self._before = SharedTotals()  # of those that are no more

    @property
    def totals(self) -> SharedTotals | None:
        """For the reports, in tiles or samples; None where nobody shares, or has shared."""
        pools = [one.pool for one in self._samples.values()]
        if not pools and not self._before.made:
            return None
        return SharedTotals(
            made=self._before.made + sum(pool.made for pool in pools),
            taken=self._before.taken + sum(pool.taken for pool in pools),
            evicted=self._before.evicted + sum(pool.evicted for pool in pools),
            members=sum(len(pool.members) for pool in pools),
            held_bytes=sum(pool.held_bytes for pool in pools),
        )

    @property
    def empty(self) -> bool:
        """Whether nobody has sent a pipeline that is shared."""
        return not self._opened

    def known(self, digest: bytes) -> OpenedPipeline | None:
        """A pipeline that somebody has sent already."""
        return self._opened.get(digest)

    def open(self, digest: bytes, pipeline: SharedPipeline, proof: bytes) -> None:
        """Somebody has sent a pipeline, and it is opened; ``proof``: see `prove`."""
        self._opened[digest] = OpenedPipeline(pipeline, proof)

    def prove(self, pipeline: SharedPipeline) -> bytes:
        """What a pipeline makes here; empty where it makes nothing that can be sent."""
        try:
            return self._proof(pipeline)[1]
        except Exception as error:  # noqa: BLE001 - the user's code: who asks for batches is told
            logger.debug("no proof of a pipeline: %s: %s", type(error).__name__, error)
            return b""

    # ------------------------------------------------------------------ who shares

    def join(self, line: ConsumerConnection, header: list[Any]) -> None:
        """A loader in free order begins an epoch, or has another part.

        Raises:
            FrameError: it makes no sense.
            DataError: it cannot be; says why.
        """
        stream, digest, name, lacks = header
        pipeline = line.pipelines.get(digest)
        if not isinstance(pipeline, SharedPipeline) or pipeline.common:
            raise FrameError("a loader joins with a pipeline that is not open here")
        samples = self._of(pipeline)
        assert isinstance(samples, FreeSamples), "by its key"
        try:
            samples.join(line, stream, str(name), lacks)
        except SharingError as error:
            raise DataError(str(error)) from error
        self._divide()

    def _of(self, pipeline: SharedPipeline | SharedStreamPipeline) -> Samples:
        """The samples of a dataset.

        Raises:
            DataError: there are too many datasets.
        """
        found = self._samples.get(pipeline.key)
        if found is not None:
            return found
        if len(self._samples) >= MAX_SHARED:
            idle = next((key for key, one in self._samples.items() if one.idle), None)
            if idle is None:
                raise DataError(f"{MAX_SHARED} datasets are shared here already")
            self._forget(idle)
        self._window = pipeline.window_bytes or max(1, read_memory().limit // SHARED_SHARE)
        if isinstance(pipeline, SharedStreamPipeline):
            found = SharedStreams(self._window)
        elif pipeline.common:
            found = CommonSamples(self._window, pipeline)
        else:
            found = FreeSamples(pipeline, derive_seed(self._salt, self._datasets), self._window)
        self._datasets += 1
        self._samples[pipeline.key] = found
        self._close()
        return found

    def _divide(self) -> None:
        """Have the datasets of which somebody is to get something divide the window."""
        active = frozenset(key for key, one in self._samples.items() if not one.idle)
        if not active or active == self._active:
            return
        self._active = active
        for key, one in self._samples.items():
            one.resize(self._window // len(active) if key in active else 0)

    def rest(self, line: ConsumerConnection, stream: int) -> None:
        """A loader wants nothing more of a stream."""
        for one in self._samples.values():
            one.rest(line, stream)
        self._divide()

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        for key, one in list(self._samples.items()):
            one.leave(line)
            if not one.pool.members:
                self._forget(key)
        self._close()
        self._divide()

    def _close(self) -> None:
        """Forget the pipelines of datasets that are shared no more."""
        for digest, (pipeline, _) in list(self._opened.items()):
            if pipeline.key not in self._samples:
                del self._opened[digest]
                self._guards.pop(digest, None)

    def _forget(self, key: bytes) -> None:
        pool, before = self._samples.pop(key).pool, self._before
        self._before = SharedTotals(
            made=before.made + pool.made,
            taken=before.taken + pool.taken,
            evicted=before.evicted + pool.evicted,
        )

    # ------------------------------------------------------------------ batches

    def make(self, request: Request) -> Any:
        """A batch: in free order with the tiles that it is of (`FreeSamples.make`).

        Raises:
            DataError: there is none, in one of the ways of those who make it.
            Exception: whatever the user's code raises.
        """
        pipeline = request.line.pipelines[request.digest]
        assert isinstance(pipeline, SharedPipeline), "see the data worker"
        if isinstance(request.indices, list) and request.indices[:1] == [PROOF]:
            return self._proof(pipeline)
        guard = self._guards.setdefault(request.digest, CollateGuard())
        samples = self._of(pipeline)
        assert not isinstance(samples, SharedStreams), "by its key"
        batch = samples.make(request, pipeline, guard)
        if pipeline.key not in self._active:
            self._divide()
        return batch

    def make_of_stream(self, request: Request, chain: Chain, leaving: Callable[[], bool]) -> Any:
        """A batch of a stream (`SharedStreams.make`).

        Raises:
            DataError: there is none, in one of the ways of those who make it.
            Exception: whatever the user's code raises.
        """
        pipeline = request.line.pipelines[request.digest]
        assert isinstance(pipeline, SharedStreamPipeline), "see the data worker"
        samples = self._of(pipeline)
        assert isinstance(samples, SharedStreams), "by its key"
        batch = samples.make(request, pipeline, chain, leaving)
        if pipeline.key not in self._active:
            self._divide()
        return batch

    def _proof(self, pipeline: SharedPipeline) -> tuple[Any, bytes]:
        """What is compared, as whoever came first makes samples, and its digest."""
        others = self._samples.get(pipeline.key)
        maker = pipeline if others is None or isinstance(others, SharedStreams) else others.maker
        batch = proof_batch(pipeline, maker)
        return batch, proof_of(batch)

    def news(self) -> Iterator[tuple[ConsumerConnection, int, int]]:
        """What loaders are to be told: for streams whose number of batches that lie here is new."""
        for one in self._samples.values():
            if isinstance(one, FreeSamples):
                yield from one.news()
