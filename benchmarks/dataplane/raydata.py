"""Ray Data as a system: one task at a time makes the batches.

It is told of two CPUs: with one, its reading and its mapping wait for each other for ever (2.60).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from benchmarks.dataplane.measure import Request, ready_batch, serve
from benchmarks.dataplane.workloads import BATCH, KINDS, collate

BATCHES = 1 << 12
"""In one pass over the dataset."""


def main() -> None:
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # it listens on this machine only
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        object_store_memory=1 << 30,
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False

    def start(wanted: Request) -> Iterator[Any]:
        kind = wanted.get("workload")
        size = BATCH[kind] if kind else 1
        made: dict[str, Any] = {}

        def make(rows: Any) -> Any:
            if kind:
                dataset = made.setdefault("dataset", KINDS[kind]())
                return collate([dataset[int(one)] for one in rows["id"]])
            if not made:
                batch = ready_batch(wanted["bytes"], wanted["tensors"])
                made.update({name: array[None] for name, array in batch.items()})
            return made

        # A block is handed on when it is whole: of large ones nothing comes for half a minute.
        rows = ray.data.range(size * BATCHES, override_num_blocks=BATCHES // 4)
        dataset = rows.map_batches(make, batch_size=size, concurrency=1)
        while True:
            yield from dataset.iter_batches(batch_size=size, prefetch_batches=2)

    serve(start)


if __name__ == "__main__":
    main()
