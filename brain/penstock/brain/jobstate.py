"""What the Brain knows of a job's life; less than the controller does."""

from enum import StrEnum


class JobPhase(StrEnum):
    """Where a job is in its life, as far as its trainer has told."""

    ACTIVE = "Active"
    LOST = "Lost"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good; a lost one may come back."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED}
