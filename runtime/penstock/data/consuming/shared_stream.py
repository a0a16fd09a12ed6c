"""One epoch of batches that are made once for several jobs, in free order.

Data workers make them all while there are any. Where there are none the program makes its batches
itself, of tiles that it lacks, so that an epoch ends in any case with every sample once.
"""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.data.consuming.batch_stream import BatchStream
from penstock.data.sharing.pipeline import SharedPipeline
from penstock.data.window.free_window import FreeWindow
from penstock.data.window.reorder_buffer import Failure

WITHOUT_SECONDS: Final = 0.2
"""So long a program waits for a data worker where there was one; then it makes a batch itself.

Less than `SHARED_WAIT_SECONDS`, after which it looks: so it waits once. Another data worker that is
started takes far longer than a batch."""

LOOK_SECONDS: Final = 0.25
"""After so long a wait for a data worker it is looked at whether that stands still."""


class SharedStream(BatchStream):
    """See the module's docstring; its source's pipeline is that of its own program."""

    def __init__(
        self, *arguments: Any, shared: SharedPipeline, rest: list[int], **options: Any
    ) -> None:
        """``rest``: samples of the last batch, where that is of no tiles."""
        self._shared = shared
        self._rest = rest
        self._served_at = time.monotonic()
        super().__init__(*arguments, **options)

    @property
    def tiles(self) -> dict[str, Any]:
        """What the program has had of the epoch, for its checkpoint."""
        return self._free.ledger.snapshot()

    @property
    def finished(self) -> bool:
        """Whether the program has got every batch."""
        return self._free.finished

    @property
    def _free(self) -> FreeWindow:
        window = self.queue.window
        assert isinstance(window, FreeWindow), "of a loader that shares"
        return window

    def _tend(self) -> bool:
        super()._tend()
        if not self.queue.portable:
            return False
        now = time.monotonic()
        if self.queue.packed is not None and self._pool.serves(self.queue):
            self._served_at = now
        return now - self._served_at < WITHOUT_SECONDS

    def _drop_overdue(self) -> None:
        super()._drop_overdue()
        self._pool.pass_over(self.queue, LOOK_SECONDS)
        self._pool.request(self.queue)  # data workers are waited for no longer than for a while

    def _refill(self) -> None:
        self._pool.request(self.queue)

    def _make_here(self, tiles: Any, failures: list[Failure]) -> tuple[bool, Any]:
        """Make a batch in this process; False when all of its samples were bad."""
        return super()._make_here(self._shared.indices(tiles) if tiles else self._rest, failures)
