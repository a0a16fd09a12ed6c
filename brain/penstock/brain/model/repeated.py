"""Which of a job's work was done before: steps that are trained again after a failure; pure.

A training that loses its state goes back to what it has saved, so that its steps go down and come
up again. Until they are where they once were, what its pods do they have done before. Nothing
counts of the sample in which the steps go down, for it is not known how much of it was training;
and nothing of jobs whose samples say no samples per second, as their steps are counted by process
and begin anew with each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Repeated:
    """Goes through the samples of one job in their order.

    Attributes:
        before: the step of the newest sample; None: of those before nothing is known.
        peak: the highest step that was reached.
    """

    before: int | None = None
    peak: int = 0

    def share(self, step: int, samples_per_second: float) -> float:
        """The share of a sample's interval in which steps were trained again, 0 to 1."""
        before, peak = self.before, self.peak
        self.before, self.peak = step, max(peak, step)
        if before is None or samples_per_second <= 0 or step < before or before >= peak:
            return 0.0
        return 1.0 if step <= peak else (peak - before) / (step - before)
