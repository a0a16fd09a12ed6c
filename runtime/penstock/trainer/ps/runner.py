"""What a session stands on: a worker of parameter servers, or the whole model in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.job.protocol import Trouble
from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.parameter_server.worker.client import AppliedSlots, Pushed


class Runner(Protocol):
    """See the module's docstring."""

    dropped: dict[str, int]

    @property
    def chief(self) -> bool:
        """Whether this worker speaks for all."""

    @property
    def servers(self) -> int:
        """Servers of the present layout; 0 without any."""

    @property
    def order_seed(self) -> int | None:
        """The seed of the order of samples, where the trainer says it."""

    def next_slot(self) -> int | None:
        """The next slot to train on; None at the end of the data."""

    def begin(self, slot: int) -> Floats | None:
        """The dense parameters to train the slot on; None: take another slot."""

    def dense(self) -> Floats:
        """The dense parameters as they are now."""

    def pull(self, wanted: Sequence[tuple[int, Rows]]) -> list[Floats]:
        """The values of rows."""

    def ids(self, space: int) -> Rows:
        """The ids that have a row in a space with a vocabulary, ascending."""

    def push(self, slot: int, sparse: Sequence[Gradients], dense: Floats | None) -> Pushed:
        """Apply the gradients of the slot that was begun last."""

    def applied(self) -> list[AppliedSlots]:
        """What each server's parameters have seen."""

    def finish(self) -> None:
        """The loop has ended."""

    def tell(self, troubles: Sequence[Trouble]) -> None:
        """What this process cannot write at present."""

    def publish(self, result: dict[str, Any]) -> None:
        """Make the final figures known."""

    def wait_for_save(self) -> None:
        """The trained model is on disk, if it is to be. Raises ParametersError: it is not."""

    def close(self, *, failed: bool = False) -> None:
        """Leave."""
