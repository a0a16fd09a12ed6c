"""What outlives a trainer beside its ledger: the plain data at the head of its journal, read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.enums import Guarantee
from penstock.data.ledger import LedgerOptions, SampleOrder, SnapshotError
from penstock.job.protocol import DataSpec, EpochAudit
from penstock.trainer.control.model.job import JobFacts


@dataclass(frozen=True)
class SavedState:
    """The state of an earlier trainer, without its ledger: `queries.state_to_save`, read."""

    data: DataSpec
    order: SampleOrder
    group: int
    """The newest group's number; 0: there was none."""
    holders: bool
    """Whether workers lease on their own."""
    servers: Mapping[str, Any] | None
    """As `ServerCoordinator.extra`."""
    audits: tuple[EpochAudit, ...]
    result: dict[str, Any] | None

    @classmethod
    def read(cls, extra: Mapping[str, Any]) -> SavedState:
        """From plain data. Raises SnapshotError."""
        try:
            data = DataSpec.model_validate(extra["data"])
            return cls(
                data=data,
                order=data.order(int(extra["slots_per_step"])),
                group=int(extra["group"]),
                holders=bool(extra["holders"]),
                servers=extra.get("servers"),
                audits=tuple(EpochAudit.model_validate(audit) for audit in extra["audits"]),
                result=extra.get("result"),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise SnapshotError(f"the saved state is damaged: {error!r}") from error

    def ledger_options(self, facts: JobFacts) -> LedgerOptions:
        """The options of the ledger that it belongs to."""
        return ledger_options(facts, self.order, alone=self.holders and self.servers is None)


def ledger_options(facts: JobFacts, order: SampleOrder, *, alone: bool) -> LedgerOptions:
    """The options of a job's ledger.

    A weaker guarantee changes something only for holders that lease on their own (``alone``):
    a group's model takes its history along, so that it always has each sample exactly once, and
    parameter servers take each slot once.
    """
    weaker = alone and facts.guarantee is Guarantee.AT_MOST_ONCE
    return LedgerOptions(
        total_slots=order.total_slots,
        lease_seconds=facts.lease_seconds,
        guarantee=Guarantee.AT_MOST_ONCE if weaker else Guarantee.EXACTLY_ONCE,
        skip_bad=facts.skip_bad,
    )
