"""What is found of nodes, as a Scale and as a report to the Brain."""

from __future__ import annotations

import asyncio

from penstock.crds import environment
from penstock.crds.scale import Scale
from penstock.job.settings import pod_identity
from penstock.trainer.brain.node_reports import merged
from penstock.trainer.node_moves import MOST_AVOIDED, NodeMoves, scale_for
from penstock.trainer.nodecheck.check import Finding, Verdict
from penstock.trainer.nodecheck.cohort import CheckedNode, PodChecks
from penstock.trainer.nodecheck.messages import RoundMeasured
from penstock.trainer.nodecheck.outliers import Speed
from penstock.wire.nodes import NodeVerdict

SLOW = Finding(Verdict.SLOW, Speed.COMPUTE, 4.0)


def checked(rank: int, node: str, finding: Finding) -> CheckedNode:
    measured = RoundMeasured(number=0, compute=1e9, memory=2e9, link=3e9)
    return CheckedNode(rank, 1, node, "EPYC", finding, measured, True, f"node {node} is slow")


def test_the_scale_moves_the_ranks_and_no_others() -> None:
    avoided = [f"other-{number}" for number in range(30)]
    bad = [checked(2, "n2", SLOW), checked(5, "n5", SLOW)]
    written = scale_for(bad, avoided, pod_identity({environment.JOB_UID: "uid"}), 12.5)
    scale = Scale.model_validate(written)
    worker = written["spec"]["roles"]["worker"]
    assert set(worker) == {"ranks"}
    assert set(worker["ranks"]) == {"2", "5"}
    assert worker["ranks"]["2"]["minIncarnation"] == 2
    assert worker["ranks"]["2"]["avoidNodes"][:3] == ["n2", "n5", "other-0"]
    assert len(worker["ranks"]["5"]["avoidNodes"]) == MOST_AVOIDED
    assert scale.spec.reason == "BadNode"


def test_a_node_with_a_good_pod_is_good() -> None:
    good = Finding(Verdict.GOOD)
    found = merged(
        [
            checked(0, "n1", SLOW),
            checked(1, "n1", good),
            checked(2, "n2", SLOW),
            checked(3, "n3", Finding(Verdict.UNKNOWN)),
            checked(4, "", SLOW),
        ]
    )
    assert {one.node: one.verdict for one in found} == {
        "n1": NodeVerdict.GOOD,
        "n2": NodeVerdict.SLOW,
    }
    assert (found[1].what, found[1].ratio, found[1].link) == ("compute", 4.0, 3e9)


def test_a_check_whose_pods_have_begun_comes_to_its_end() -> None:
    """They do not ask any more: what they have measured is written down nevertheless."""
    advanced = asyncio.Event()

    class Checks(PodChecks):
        def advance(self, now: float) -> None:
            super().advance(now)
            advanced.set()

    async def run() -> None:
        moves = NodeMoves(Checks(), None, None, pod_identity({}))
        async with asyncio.timeout(30):
            moving = asyncio.create_task(moves.run(lambda: True))
            await advanced.wait()
            moving.cancel()

    asyncio.run(run())
