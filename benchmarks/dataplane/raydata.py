"""Ray Data as a system: one task at a time makes the batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from benchmarks.dataplane.measure import ready_batch, serve


def main() -> None:
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    import ray

    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
        object_store_memory=1 << 30,
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False

    def start(size: int, tensors: int) -> Iterator[Any]:
        made: dict[str, Any] = {}

        def make(_: Any) -> Any:
            if not made:
                made.update({k: a[None] for k, a in ready_batch(size, tensors).items()})
            return made

        dataset = ray.data.range(1 << 16).map_batches(make, batch_size=1)
        yield from dataset.iter_batches(batch_size=1, prefetch_batches=2)

    serve(start)


if __name__ == "__main__":
    main()
