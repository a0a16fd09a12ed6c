"""Jobs that share batches, as the allocation sees them: one need, one gain, one change at a time.

What feeds the fastest member of a share group feeds all of them (`penstock.throughput.decision.
share_group`). So a model's prediction for each member is cut to its part of the group's need, the
gain of one more data worker is what all members gain by it, and a report counts only once the
newest change of any member has had its effect. A member gives nothing up while another waits for
data: it drains when the group needs less, and not when it alone does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.model.job_view import JobView
from penstock.scheduler.tuning import Predicted
from penstock.throughput.decision.share_group import divide


@dataclass(frozen=True, slots=True)
class Having:
    """What one member has, and what a model says that it needs by itself.

    ``active``: it reports, and its data workers are the scheduler's business.
    """

    cores: int
    predicted: Predicted | None
    active: bool


def members_by_job(jobs: Mapping[str, JobView]) -> dict[str, tuple[str, ...]]:
    """The members of the share group of each job that has one with others, by uid; sorted."""
    groups: dict[tuple[str, str], list[str]] = {}
    for uid, job in jobs.items():
        if job.share_group:
            groups.setdefault((job.namespace, job.share_group), []).append(uid)
    return {uid: tuple(sorted(uids)) for uids in groups.values() if len(uids) > 1 for uid in uids}


def parts(members: Mapping[str, Having]) -> dict[str, Predicted]:
    """What each active member of a group is to be told that it needs.

    Empty where no model says anything of any. What members have that are not asked, because a
    person decides about them or they do not report yet, is counted towards the need.
    """
    said = {uid: one.predicted for uid, one in members.items() if one.active and one.predicted}
    if not said:
        return {}
    need = max(one.data_workers * one.cores for one in said.values())
    others = sum(one.cores for one in members.values() if not one.active)
    have = {uid: one.cores for uid, one in members.items() if one.active}
    cores = divide(max(0, need - others), have)
    count = sum(one.active or one.cores > 0 for one in members.values())
    return {uid: _part(one, cores[uid], need, count) for uid, one in said.items()}


def _part(predicted: Predicted, cores: int, need: int, members: int) -> Predicted:
    """The promise of a part is that part of the whole promise, and is so kept with the others'."""
    workers = -(-cores // max(1, predicted.cores))
    share = min(1.0, cores / need) if need else 0.0
    return replace(
        predicted,
        data_workers=workers,
        throughput=1 + share * (predicted.throughput - 1),
        why=f"{predicted.why} ({cores} of {need} cores for the {members} jobs of its share group)",
    )


def gain_of_all(job: JobRates, members: Iterable[JobRates]) -> float:
    """Throughput that one more data worker of a job adds, to all who share with it."""
    return sum((one.gain / one.next_milli_cpu * job.next_milli_cpu for one in members), start=0.0)
