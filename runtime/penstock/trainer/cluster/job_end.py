"""When a trainer may leave its job, and when it has to because the job was refused."""

from __future__ import annotations

import logging
from typing import Final

from penstock.trainer.cluster.job_status import TrainerStatus
from penstock.trainer.control import queries
from penstock.trainer.control.coordinator import Coordinator

logger = logging.getLogger(__name__)

LINGER_SECONDS: Final = 2.0
FAREWELL_SECONDS: Final = 90.0
"""How long parameter servers get to hear that the job is done."""
LATECOMER_SECONDS: Final = 60.0
"""How long workers that have just been started get to ask, and to hear that all is done."""
STATUS_SECONDS: Final = 10.0
"""How long a refused job's workers are not told, while its status cannot be written."""


class End:
    """When a job that is done can be left alone: its trainer is the only one who can say so.

    Whoever repeats its last report gets `LINGER_SECONDS`. Workers that were started just before the
    end have not asked yet and would find nobody: they get `LATECOMER_SECONDS` altogether.
    A job that was refused is never done: the controller ends it, and its trainer with it.
    """

    def __init__(self) -> None:
        self._done_since: float | None = None
        self._first_done: float | None = None
        self._told: set[int] = set()

    def reached(self, coordinator: Coordinator, now: float) -> bool:
        """Whether the trainer may exit now; called at every tick."""
        if not coordinator.done():
            self._done_since = None
            return False
        if self._done_since is None:
            self._done_since = now
        if self._first_done is None:
            self._first_done = now
        if now - self._done_since <= LINGER_SECONDS:
            return False
        if (
            not queries.has_said_farewell(coordinator.state, now)
            and now - self._done_since <= FAREWELL_SECONDS
        ):
            return False
        late = queries.find_latecomers(coordinator.state, now)
        if late and now - self._first_done <= LATECOMER_SECONDS:
            if not late <= self._told:
                logger.info("the data are exhausted; workers %s have yet to hear it", sorted(late))
            self._told |= late
            return False
        if late:
            logger.warning("the data are exhausted; workers %s never asked", sorted(late))
        else:
            logger.info("the data are exhausted and all ranks are done")
        return True


class RefusalNotice:
    """Tells of a refusal in the right order: the job's status first, then those who end by it.

    Else the controller would restart them.
    """

    def __init__(self, coordinator: Coordinator, status: TrainerStatus | None) -> None:
        """``status``: of the job in its cluster; None: there is no cluster."""
        self._coordinator = coordinator
        self._status = status
        self._refused_at: float | None = None

    def advance(self, now: float) -> None:
        """Let the workers be told once the job's status shows it; called at every tick."""
        refusal = self._coordinator.problems.fatal
        if refusal is None or self._coordinator.state.copies.shown:
            return
        if self._refused_at is None:
            self._refused_at = now
        shown = self._status is None or self._status.shows(refusal.reason)
        if shown or now - self._refused_at > STATUS_SECONDS:
            self._coordinator.confirm_refusal_shown()

    def all_told(self, now: float) -> bool:
        """Without a cluster: whether the job was refused and nobody is left who has to hear it."""
        if self._status is not None or self._refused_at is None:
            return False
        lingered = now - self._refused_at > LINGER_SECONDS
        return lingered and not self._coordinator.state.agents.any_worker_runs(now)
