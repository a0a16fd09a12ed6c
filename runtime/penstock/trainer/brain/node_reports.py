"""What a job's checks find of nodes goes to the Brain, and which nodes others have found bad."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.client import AsyncBrainClient, BrainError
from penstock.trainer.brain.failure_log import FailureLog
from penstock.trainer.nodecheck.check import Verdict
from penstock.trainer.nodecheck.cohort import CheckedNode
from penstock.wire.nodes import MAX_MEASURED, MeasuredNode, NodeReport, NodeVerdict

_SAID = {
    Verdict.GOOD: NodeVerdict.GOOD,
    Verdict.SLOW: NodeVerdict.SLOW,
    Verdict.FAILING: NodeVerdict.FAILING,
}


class NodeReports:
    """One job's reports of nodes."""

    def __init__(
        self,
        client: AsyncBrainClient,
        uid: str,
        failures: FailureLog,
        registered: Callable[[], bool],
    ) -> None:
        """``registered``: whether the Brain knows the job; before that it takes no report."""
        self._registered = registered
        self._client = client
        self._uid = uid
        self._failures = failures

    async def send(self, checked: Iterable[CheckedNode]) -> list[str] | None:
        """Say what was found, if anything; the nodes that are avoided. None: nobody could say."""
        if not self._registered():
            return None
        report = NodeReport(nodes=merged(checked)[:MAX_MEASURED])
        try:
            avoided = await self._client.report_nodes(self._uid, report)
        except BrainError as error:
            self._failures.note_failure("nodes", error)
            return None
        self._failures.note_success("nodes")
        return list(avoided.nodes)


def merged(checked: Iterable[CheckedNode]) -> list[MeasuredNode]:
    """By node: a node of which one pod says that it is good is good."""
    found: dict[str, MeasuredNode] = {}
    for one in checked:
        said = _SAID.get(one.finding.verdict)
        if said is None or not one.node:
            continue
        before = found.get(one.node)
        if before is not None and (before.verdict is NodeVerdict.GOOD or said is before.verdict):
            continue
        own = one.measured
        found[one.node] = MeasuredNode(
            node=one.node,
            verdict=said,
            what=one.finding.what or "",
            ratio=min(one.finding.ratio, 1e9),
            hardware=one.hardware,
            compute=own.compute if own else None,
            memory=own.memory if own else None,
            link=own.link if own else None,
        )
    return list(found.values())
