"""Training without servers: the whole model in this process, by the same rules and files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import Trouble
from penstock.job.storage import advice, cause, not_on_disk, not_saved
from penstock.parameter_server.arrays import Floats, Gradients, Rows, afresh
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.worker.checkpoint import ModelFiles
from penstock.parameter_server.worker.client import AppliedSlots, ParametersError, Pushed

logger = logging.getLogger(__name__)


class Alone:
    """A worker that is also its own trainer and server; slots come in order."""

    chief = True
    servers = 0
    order_seed: int | None = None

    def __init__(
        self,
        spec: ModelSpec,
        total_slots: int,
        dense: Floats,
        files: ModelFiles | None,
        save_every_slots: int,
    ) -> None:
        """Takes up the newest checkpoint, or begins afresh with these dense parameters.

        Raises:
            CheckpointError: the newest checkpoint is of another model or of other data.
        """
        self.dropped: dict[str, int] = {}
        self._spec = spec
        self._total = total_slots
        self._files = files
        self._save_every = save_every_slots
        self._store = Store(spec, range(spec.partitions))
        saved = files.newest() if files else None
        if files is not None and saved is not None:
            file = files.open(saved)
            for partition in range(spec.partitions):
                self._store.set_partition(partition, file.partition(partition))
            self._store.applied = RangeSet(file.applied)
            self._store.pushes = file.pushes
            done = self._store.applied.watermark >= total_slots
            rest = ": it has seen all the data, and nothing is left to train" if done else ""
            logger.info("took up the checkpoint %s%s", saved.path, rest)
        else:
            for partition in range(spec.partitions):
                self._store.set_partition(partition, afresh(spec, partition, dense))
        self._saved = self._store.applied.total
        self._failure: OSError | None = None  # of the newest save

    def next_slot(self) -> int | None:
        """The next slot; None at the end of the data."""
        watermark = self._store.applied.watermark
        return watermark if watermark < self._total else None

    def begin(self, slot: int) -> Floats | None:
        """The dense parameters."""
        return self._store.begin()

    def dense(self) -> Floats:
        """The dense parameters."""
        return self._store.begin()

    def pull(self, wanted: Sequence[tuple[int, Rows]]) -> list[Floats]:
        """The values of rows."""
        return [self._store.pull(space, rows) for space, rows in wanted]

    def ids(self, space: int) -> Rows:
        """The ids that have a row in a space with a vocabulary."""
        return self._store.ids(space)

    def push(self, slot: int, sparse: Sequence[Gradients], dense: Floats | None) -> Pushed:
        """Apply the gradients of a slot, and save if that is due."""
        applied = self._store.push(slot, sparse, dense)
        done = self._store.applied.total
        if done == self._total or (self._save_every and done - self._saved >= self._save_every):
            self._save()
        return Pushed.APPLIED if applied else Pushed.REPEATED

    def applied(self) -> list[AppliedSlots]:
        """What the parameters have seen."""
        return [AppliedSlots(list(self._store.applied), self._store.pushes)]

    def finish(self) -> None:
        """Nothing is left to do."""

    def tell(self, troubles: Sequence[Trouble]) -> None:
        """Nobody wants to know: the log has it."""

    def publish(self, result: dict[str, Any]) -> None:
        """Nobody wants to know."""

    def wait_for_save(self) -> None:
        """Saves are done at once; raises ParametersError if the last one failed."""
        if self._failure is not None and self._files is not None:
            why, what_to_do = cause(self._failure), advice(self._failure)
            raise ParametersError(not_on_disk(self._files.folder, why, what_to_do))

    def close(self, *, failed: bool = False) -> None:
        """Nothing is open."""

    def _save(self) -> None:
        if self._files is None:
            return
        self._saved = self._store.applied.total
        partitions = (self._store.partition(p) for p in range(self._spec.partitions))
        try:
            self._files.write(self._store.applied, self._store.pushes, partitions)
        except OSError as error:  # such as a full disk: the training is worth more than this save
            if self._failure is None:
                why = not_saved(self._files.folder, cause(error), advice(error))
                logger.warning("%s", why)
            self._failure = error
        else:
            self._failure = None
