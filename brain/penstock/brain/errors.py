"""What the Brain refuses, and why; the API turns each into one stable type of problem."""

from __future__ import annotations


class BrainError(Exception):
    """The Brain cannot do what was asked; the text says what was wrong and what to do."""


class JobNotFoundError(BrainError):
    """No job has this uid."""

    def __init__(self, uid: str) -> None:
        super().__init__(f"no job has uid {uid!r}: register it with PUT /v1/jobs/{{uid}}")


class JobFinishedError(BrainError):
    """The job has ended and takes nothing more."""


class JobConflictError(BrainError):
    """The uid belongs to a job of another name, namespace or strategy."""


class PlanNotFoundError(BrainError):
    """The job has no plan of this id."""


class NoPlanError(BrainError):
    """The job has no plan in force."""


class NoOverrideError(BrainError):
    """No override stands that could be lifted."""


class NoLedgerError(BrainError):
    """No ledger has been stored for the job."""


class NoProfileError(BrainError):
    """Nothing has been measured of the job's input."""


class NodeNotFoundError(BrainError):
    """Nothing is known of the node."""


class NoWorkloadError(BrainError):
    """The scheduler has not shown which pods the cluster has."""


class StaleLedgerError(BrainError):
    """The stored ledger is newer."""


class PreconditionFailedError(BrainError):
    """The plan in force is not the one that the caller has read."""


class IdempotencyConflictError(BrainError):
    """The key was used for something else."""


class CostRangeError(BrainError):
    """Costs are not told for such a time range."""


class PricingError(BrainError):
    """Jobs, options or prices that no plan can be made of."""


class HistoryError(BrainError):
    """What is stored of past jobs is too little, or too much, for an answer."""
