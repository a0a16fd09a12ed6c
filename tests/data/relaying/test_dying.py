"""A batch that kills data workers of the stage before is tried by nobody after them."""

from __future__ import annotations

import threading
from typing import Any

from penstock.data import Loader
from penstock.data.errors import BadSampleError
from penstock.data.pipeline import Stage
from penstock.data.protocol import ConsumerEntry
from penstock.data.relaying.relay import Relay
from penstock.data.serving.consumer_connection import Request
from penstock.data.serving.worker import DataWorker
from tests.data.planes import TOKEN, consumer, eventually

DEADLY = 1  # of the first step, which is asked of the relay as soon as it can be


class Rows:
    """Samples of which one may not be touched."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> dict[str, int]:
        assert index != DEADLY, "nobody tries it here"
        return {"index": index}


class Dying(Relay):
    """In the place of one whose data workers have died on a sample."""

    def take(self, request: Request) -> tuple[bool, Any]:
        if DEADLY in request.indices:
            raise BadSampleError("three workers died")
        return super().take(request)


def test_it_is_left_out_and_named() -> None:
    with consumer() as of:
        entry = ConsumerEntry(name=of.name, address=of.address, local=of.local)
        relay = Dying(TOKEN, "127.0.0.1")
        worker = DataWorker(token=TOKEN, consumers=(entry,), before=relay)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            eventually(lambda: of.workers)
            stages = [Stage(dict, batched=True)]
            loader = Loader(Rows(), 4, shuffle=False, stages=stages, skip_bad=True, consumer=of)
            batches = iter(loader)
            (queue,) = of.pool.makers.queues.values()
            eventually(lambda: of.pool.serves(queue))
            got = [index for batch in batches for index in batch["index"].tolist()]
        finally:
            worker.leave()
            thread.join(20)
    assert not thread.is_alive()
    assert got == list(range(4, 80))
    assert [bad.index for bad in loader.quarantine] == [0, 1, 2, 3]
