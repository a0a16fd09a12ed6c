"""One step of the machine while it is being taken: what it reads, changes and asks for.

The ledger is the trainer's. A step reads it, and what it wants changed becomes an instruction; for
the rest of the step it looks at a copy on which that is done already.
"""

from __future__ import annotations

import copy
import logging

from penstock.data.ledger import Ledger
from penstock.data.ledger.ranges import RangeSet
from penstock.parameter_server.control.events import AdoptProgress, EndLeases, Instruction, Say
from penstock.parameter_server.control.records.checkpointing import can_save
from penstock.parameter_server.control.records.workers import WorkerState
from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import Applied


class Decision:
    """See the module's docstring."""

    def __init__(self, state: State, ledger: Ledger | None, now: float) -> None:
        self.state = state
        self.now = now
        self.instructions: list[Instruction] = []
        self._ledger = ledger
        self._copied = False

    @property
    def ledger(self) -> Ledger | None:
        """To be read, never written; None before the job's data are known."""
        return self._ledger

    @property
    def chief(self) -> WorkerState | None:
        """Who is chief, or would be if one was elected now; None: nobody is left."""
        return self.state.workers.find_chief(self.now)

    def end_leases(self, holder: str) -> None:
        """End all leases of a holder."""
        self._own().release(holder)
        self.instructions.append(EndLeases(holder))

    def adopt_progress(self, position: int) -> None:
        """Take the slots below a position for consumed. Raises LedgerError: there is none such."""
        self._own().adopt(position)
        self.instructions.append(AdoptProgress(position))

    def booked(self) -> Applied:
        """The slots that the ledger has for consumed, to be compared with what servers applied."""
        assert self._ledger is not None
        ranges = self._ledger.snapshot()["consumed"]
        return Applied.of(RangeSet((start, stop) for start, stop in ranges), 0)

    def info(self, text: str) -> None:
        """Say something in the log."""
        self.instructions.append(Say(logging.INFO, text))

    def warn(self, text: str) -> None:
        """Say in the log what should not be."""
        self.instructions.append(Say(logging.WARNING, text))

    def error(self, text: str) -> None:
        """Say in the log what was lost."""
        self.instructions.append(Say(logging.ERROR, text))

    # ------------------------------------------------------------------ changes that many make

    def serve(self) -> None:
        """The servers of the present layout are to serve (again)."""
        self.state.phase, self.state.goal = Phase.OPENING, None
        self.state.revisions.bump(self.now)

    def elect(self) -> None:
        """Make another worker chief where the last one has gone, or may not go on."""
        self.state.workers.elect(self.now)

    def drop_layout(self) -> None:
        """There is no layout any more."""
        state = self.state
        state.layout = state.next = None
        state.phase, state.goal = Phase.INITIALIZING, None
        state.repair.end()
        state.servers.clear_mismatches()
        state.checkpoints.drop()
        state.initializing_since = None
        state.backoff.cancel()
        state.revisions.bump(self.now)

    def begin_copy(self, slots: int) -> None:
        """Have every server keep a copy as it is now."""
        self.state.phase = Phase.COPYING
        self.state.checkpoints.begin(slots)
        self.state.revisions.bump(self.now)

    def is_kept(self) -> bool:
        """Whether all that can be saved of a job that is suspended has been."""
        kept = self.state.suspension.is_saved(self.state.checkpoints.saved)
        return kept or not can_save(self.chief)

    def abandon(self, lost: list[ServerId]) -> None:
        """What the layout held is lost as a whole: parameters depend on one another."""
        state, now = self.state, self.now
        names = ", ".join(str(server) for server in lost)
        what = f"{names} lost" if names else "servers differ"
        if not state.transitions.current:
            known = [state.servers.get(server) for server in lost]
            seen = [server.seen for server in known if server is not None]
            state.transitions.begin(what, min([*seen, now]))
            state.transitions.reached("notice", now)
        else:
            state.transitions.name(what)
        self.warn(f"{what}: going back to the newest checkpoint")
        state.rolling_back = True
        self.drop_layout()

    def _own(self) -> Ledger:
        assert self._ledger is not None
        if not self._copied:
            self._ledger, self._copied = copy.deepcopy(self._ledger), True
        return self._ledger
