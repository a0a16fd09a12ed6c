"""Of members that are agents with processes of their own: who is through, and who failed first.

Pure, of the members' newest reports; `penstock.trainer.control.model.rendezvous` says when.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.job.protocol import MemberId, Phase
from penstock.trainer.control.model.members import Member


def are_through(members: Sequence[Member | None], expected: Collection[int]) -> bool:
    """Whether the processes of all members have ended well, or were drained for good.

    ``expected``: ranks that have a pod, or will have one.
    """
    if not any(member is not None and member.finished for member in members):
        return False
    return all(member is not None and _is_through(member, expected) for member in members)


def _is_through(member: Member, expected: Collection[int]) -> bool:
    if member.finished:
        return True
    left = member.report.phase is Phase.LEAVING and member.gone
    return left and member.id.rank not in expected


def leaves_in_order(member: Member) -> bool:
    """It is drained: the others can end their processes while the group is whole."""
    return member.report.launched and member.report.phase is Phase.LEAVING and not member.gone


def culprit_of(present: Sequence[Member], heard_seconds: float) -> MemberId | None:
    """Whose processes failed by themselves; None: somebody may have been lost before.

    Args:
        present: of the group, some of whose processes have failed.
        heard_seconds: so long after that a report of another member says that it outlived them.
    """
    failed = [(m.failed_since, m.id.rank, m) for m in present if m.failed_since is not None]
    since, _, first = min(failed, key=lambda each: each[:2])
    outlived = since + heard_seconds
    if all(m.failed_since is not None or m.seen >= outlived for m in present):
        return first.id
    return None
