"""What a trainer says in its log of how its job gets on: each news once."""

from __future__ import annotations

import logging

from penstock.trainer.control.coordinator import Coordinator

logger = logging.getLogger(__name__)


class ProgressLog:
    """The log of one job; remembers what it has said."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._news = ""
        self._stragglers: set[int] = set()
        self._transition = 0  # number of the newest one

    def advance(self, now: float) -> None:
        """Say what is new; called at every tick."""
        summary = self._coordinator.summary(now)
        in_group = summary.training and summary.group
        news = f"group {summary.group} of {summary.world_size}" if in_group else ""
        news = news or summary.message
        if news and news != self._news:
            steps = f" at step {summary.committed_steps} of {summary.total_steps}"
            logger.info("%s%s", news, steps if summary.total_steps else "")
        self._news = news
        for rank in summary.stragglers.keys() - self._stragglers:
            ratio = summary.stragglers[rank]
            logger.warning(
                "worker %d is a straggler: %.1f times the usual time per slot", rank, ratio
            )
        self._stragglers |= summary.stragglers.keys()
        for transition in self._coordinator.servers.transitions_after(self._transition):
            logger.info("%s", transition)
            self._transition = transition.number
