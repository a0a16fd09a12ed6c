"""One event at work: the state, the time, and what has been decided so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.data.ledger import Ledger, SampleOrder
from penstock.job.protocol import DataSpec
from penstock.trainer.control.model.events import Instruction, Say
from penstock.trainer.control.model.job import DEFAULT_SLOTS_PER_STEP, RefusedError
from penstock.trainer.control.model.saved_state import ledger_options
from penstock.trainer.control.model.state import State


@dataclass
class StepContext:
    """Whatever handles an event is given this, and may raise RefusedError or LedgerError."""

    state: State
    now: float
    instructions: list[Instruction] = field(default_factory=list)

    def say(self, level: int, text: str) -> None:
        """Have a line written to the log."""
        self.instructions.append(Say(level, text))

    def refuse_copies(self) -> None:
        """Nobody of a job that was refused is served."""
        if (refusal := self.state.copies.refusal) is not None:
            raise RefusedError(refusal.message)

    def check_data(self, data: DataSpec) -> SampleOrder:
        """The order of samples that these data have, or would have, in this job; changes nothing.

        Raises:
            RefusedError: the job began with others.
        """
        state = self.state
        if state.data is not None and state.order is not None:
            _require_same(state.data, data)
            return state.order
        slots = data.slots_per_step or state.facts.slots_per_step or DEFAULT_SLOTS_PER_STEP
        return data.order(min(slots, data.global_batch))

    def open_data(self, data: DataSpec) -> tuple[Ledger, SampleOrder]:
        """Somebody says what is trained on: the ledger begins, or it has to be the same.

        Raises:
            RefusedError: the job began with others.
        """
        state, order = self.state, self.check_data(data)
        if state.data is None:
            state.data, state.order = data, order
            state.rendezvous.slots_per_step = order.slots_per_step
            if state.ledger is None:
                alone = state.holders.active and not state.servers.active
                options = ledger_options(state.facts, state.order, alone=alone)
                state.ledger = Ledger(options, state.fence_floor)
        assert state.ledger is not None
        return state.ledger, order


def _require_same(ours: DataSpec, theirs: DataSpec) -> None:
    for name in DataSpec.model_fields:
        before, now = getattr(ours, name), getattr(theirs, name)
        if before != now:
            raise RefusedError(
                f"data.{name}: {now}; the job began with {before}, and the order of samples "
                "stays as it was for the whole job"
            )
