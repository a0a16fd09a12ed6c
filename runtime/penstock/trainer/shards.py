"""Data for training scripts that work on their own: each process leases its next samples or files.

For training without a common step (one worker, asynchronous updates, pre-processing) each process
asks the trainer for a *shard*, works on it, and acknowledges it (dynamic data sharding; DLRover,
section 5.2). A process that dies loses nothing: what it had not acknowledged goes to the others. A
slow one is handed less at a time. Without a trainer all shards come in the same order in process.

    sampler = ElasticSampler(len(dataset), batch_size=32, epochs=3, seed=1)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
    for batch in sampler.acknowledged(loader):
        train(batch)

    for shard in FileShards({"a.tfrecord": 9000, "b.tfrecord": 400}, records_per_shard=1000):
        for record in read(shard.path, shard.start, shard.stop):
            train(record)
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import httpx

from penstock.data.ledger import Ledger, LedgerOptions, Slot
from penstock.job import settings
from penstock.job.call_auth import CallAuth
from penstock.job.identities import consumer_name
from penstock.job.protocol import (
    HEADERS,
    LEASE_PATH,
    DataSpec,
    LeaseReply,
    LeaseRequest,
    decode,
    encode,
)
from penstock.job.work_source import Part
from penstock.trainer.training_evidence import announce

logger = logging.getLogger(__name__)

MAX_SLOTS: Final = 1 << 16
WAIT_SECONDS: Final = 1.0
REQUEST_TIMEOUT_SECONDS: Final = 10.0
GIVE_UP_SECONDS: Final = 900.0
_SMOOTHING: Final = 0.3

Batch = TypeVar("Batch")


class ShardError(Exception):
    """The trainer refuses to hand out shards, or is away for too long."""


class Leases:
    """The slots of this process: leased ahead, acknowledged one by one, in order.

    Iterating gives slot numbers (over all epochs); each must be `acknowledge`d, oldest first, when
    it has been consumed. Acknowledgements travel with the next request.
    """

    def __init__(self, data: DataSpec, give_up_seconds: float = GIVE_UP_SECONDS) -> None:
        self.order = data.order(1)
        self._data = data
        self._give_up_seconds = give_up_seconds
        announce(Part.SHARDS)
        address = settings.trainer_address()
        pod = settings.pod_identity()
        self._holder = consumer_name(pod.rank, pod.incarnation, secrets.token_hex(4))
        self._local: Ledger | None = None
        self._client: httpx.Client | None = None
        if address is None:
            self._local = Ledger(LedgerOptions(total_slots=self.order.total_slots))
        else:
            self._client = httpx.Client(
                base_url=f"http://{address}",
                auth=CallAuth(pod.token),
                headers=HEADERS,
                timeout=REQUEST_TIMEOUT_SECONDS,
                trust_env=False,
            )
        self._open: deque[tuple[int, int]] = deque()  # fence, slot: handed out, not acknowledged
        self._done: list[tuple[int, int, int]] = []
        self._slot_seconds: float | None = None
        self._since: float | None = None
        self._term = 20.0
        self._asked = time.monotonic()

    def __iter__(self) -> Iterator[int]:
        while (reply := self._next_lease()) is not None:
            assert reply.fence is not None
            for slot in range(reply.start, reply.stop):
                self._open.append((reply.fence, slot))
                if self._since is None:
                    self._since = time.monotonic()
                yield slot
                self._renew_in_time()

    def acknowledge(self) -> None:
        """The oldest slot that was handed out has been consumed."""
        if not self._open:
            raise ShardError("nothing is open: each shard is acknowledged once")
        fence, slot = self._open.popleft()
        if self._done and self._done[-1][0] == fence and self._done[-1][2] == slot:
            self._done[-1] = (fence, self._done[-1][1], slot + 1)
        else:
            self._done.append((fence, slot, slot + 1))
        now = time.monotonic()
        if self._since is not None:
            spent, before = now - self._since, self._slot_seconds
            mixed = spent if before is None else _SMOOTHING * spent + (1 - _SMOOTHING) * before
            self._slot_seconds = mixed
        self._since = now if self._open else None

    def close(self) -> None:
        """Hand in the last acknowledgements; what is still open goes back to the others.

        One attempt: what does not arrive is done again by others when the lease has expired.
        """
        if self._client is None or self._client.is_closed:
            return
        returned = tuple({fence for fence, _ in self._open})
        if self._done or returned:
            request = self._request(max_slots=0, returned=returned)
            try:
                self._client.post(LEASE_PATH, content=encode(request))
            except httpx.TransportError as error:
                logger.warning("the last acknowledgements did not reach the trainer: %r", error)
        self._open.clear()
        self._client.close()

    def _next_lease(self) -> LeaseReply | None:
        """The next lease; waits while others hold the rest. None at the end of the data."""
        while True:
            reply = self._ask(max_slots=MAX_SLOTS)
            if reply.fence is not None:
                return reply
            if reply.finished:
                return None
            if self._open:
                return None  # the rest is ours: the caller has to acknowledge first
            time.sleep(WAIT_SECONDS)

    def _renew_in_time(self) -> None:
        if self._client is not None and time.monotonic() - self._asked > self._term / 4:
            self._ask(max_slots=0)

    def _request(self, max_slots: int, returned: tuple[int, ...] = ()) -> LeaseRequest:
        done, self._done = self._done, []
        return LeaseRequest(
            holder=self._holder,
            data=self._data,
            max_slots=max_slots,
            completed=tuple(done),
            returned=returned,
            slot_seconds=self._slot_seconds,
        )

    def _ask(self, max_slots: int) -> LeaseReply:
        self._asked = time.monotonic()
        if self._local is not None:
            done, self._done = self._done, []
            return self._ask_locally(done, max_slots)
        reply = self._send(self._request(max_slots))
        self._term = reply.lease_seconds
        if reply.order_seed != self.order.seed:  # guarantee Unsharded: an order of our own
            self.order = replace(self.order, seed=reply.order_seed)
        for fence in reply.refused:
            logger.warning("lease %d had expired: others will do its samples again", fence)
        return reply

    def _ask_locally(self, done: list[tuple[int, int, int]], max_slots: int) -> LeaseReply:
        assert self._local is not None
        for fence, start, stop in done:
            self._local.complete(fence, start, stop)
        lease = self._local.lease(self._holder, 0.0, max_slots) if max_slots else None
        return LeaseReply(
            fence=lease.fence if lease else None,
            start=lease.start if lease else 0,
            stop=lease.stop if lease else 0,
            slots_per_step=1,
            lease_seconds=self._term,
            order_seed=self.order.seed,
            finished=self._local.finished,
        )

    def _send(self, request: LeaseRequest) -> LeaseReply:
        assert self._client is not None
        began, pause = time.monotonic(), 0.1
        while True:
            try:
                response = self._client.post(LEASE_PATH, content=encode(request))
            except httpx.TransportError as error:
                problem = repr(error)
            else:
                if response.status_code < 500:
                    if response.is_error:
                        raise ShardError(f"the trainer refused: {response.text[:1000]}")
                    return decode(LeaseReply, response.content)
                problem = f"status {response.status_code}"
            if time.monotonic() - began > self._give_up_seconds:
                raise ShardError(
                    f"the trainer was away for {self._give_up_seconds:.0f} s: {problem}"
                )
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


class ElasticSampler:
    """A batch sampler whose batches are leased: give it to a DataLoader as ``batch_sampler``.

    Every sample of each epoch goes to one process, whatever becomes of the others. A batch counts
    as consumed when it is acknowledged; `acknowledged` does that round a loop over the loader.
    """

    def __init__(
        self,
        dataset_size: int,
        batch_size: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        data = DataSpec(
            dataset_size=dataset_size,
            global_batch=batch_size,
            epochs=epochs,
            slots_per_step=1,
            seed=seed,
            shuffle=shuffle,
        )
        self.leases = Leases(data)

    def __iter__(self) -> Iterator[list[int]]:
        order = self.leases.order
        for number in self.leases:
            slot: Slot = order.slot(number)
            yield order.samples(slot).tolist()

    def acknowledged(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The loader's batches; each is acknowledged when the loop comes for the next one.

        A loop that is left early gives back what it had not acknowledged.
        """
        took = True
        try:
            while took:  # one more pass: by now the last batches have been acknowledged
                took = False
                for batch in loader:
                    took = True
                    yield batch
                    self.leases.acknowledge()
        finally:
            self.leases.close()


@dataclass(frozen=True)
class FileShard:
    """Records ``start..stop`` of one file."""

    path: str
    start: int
    stop: int


class FileShards:
    """Files cut into ranges of records, leased one after the other; see the module's docstring.

    A shard is acknowledged when the loop comes for the next one; a loop that is left early gives
    back what it had not acknowledged.
    """

    def __init__(
        self,
        files: Mapping[str, int],
        records_per_shard: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        """``files``: number of records by path; the same on every process."""
        if records_per_shard < 1:
            raise ValueError(f"records_per_shard: {records_per_shard}; at least 1")
        self.shards = [
            FileShard(path, start, min(start + records_per_shard, records))
            for path, records in sorted(files.items())
            for start in range(0, records, records_per_shard)
        ]
        data = DataSpec(
            dataset_size=len(self.shards),
            global_batch=1,
            epochs=epochs,
            slots_per_step=1,
            seed=seed,
            shuffle=shuffle,
        )
        self.leases = Leases(data)

    def __iter__(self) -> Iterator[FileShard]:
        took = True
        try:
            while took:
                took = False
                for number in self.leases:
                    took = True
                    [index] = self.leases.order.samples(self.leases.order.slot(number))
                    yield self.shards[int(index)]
                    self.leases.acknowledge()
        finally:
            self.leases.close()
