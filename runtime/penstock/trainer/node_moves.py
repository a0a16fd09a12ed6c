"""Carries out what the checks of pods find: to the Brain, and ranks to other nodes.

A rank whose node is bad gets a Scale: its next incarnation, and the nodes that it is to avoid (its
own and those that the Brain has on record, at most `MOST_AVOIDED`). The controller starts the
new pod beside the old one, which stays, and begins after a while, where there is no room elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.enums import Policy, Role, Source
from penstock.base.targets import RankTarget, RoleTarget
from penstock.crds import labels
from penstock.crds.group import API_VERSION, SCALE_KIND
from penstock.crds.scale import JobReference, Scale, ScaleSpec
from penstock.job.identities import PodIdentity
from penstock.trainer.brain.node_reports import NodeReports
from penstock.trainer.cluster.kube import KubeClient, KubeError
from penstock.trainer.nodecheck.cohort import CheckedNode, PodChecks

logger = logging.getLogger(__name__)

REASON: Final = "BadNode"
MOST_AVOIDED: Final = 16
LOOK_SECONDS: Final = 0.1
ASK_SECONDS: Final = 15.0
RETRY_SECONDS: Final = 1.0
MOST_UNSENT: Final = 512
"""Findings that wait for a Brain that is away; the newest stay."""
_TRIES: Final = 5

Json = dict[str, Any]


class NodeMoves:
    """The moves of one job."""

    def __init__(
        self,
        checks: PodChecks,
        kube: KubeClient | None,
        records: NodeReports | None,
        identity: PodIdentity,
    ) -> None:
        self._checks = checks
        self._kube = kube
        self._records = records
        self._identity = identity
        self._avoided: list[str] = []
        self._unsent: list[CheckedNode] = []

    async def run(self, asked_for: Callable[[], bool]) -> None:
        """Carry out until cancelled; ``asked_for``: whether the job wants its nodes checked."""
        asked, known = float("-inf"), False
        while True:
            self._checks.advance(time.monotonic())
            found = self._checks.take_found()
            if found:
                await self._move(found)
                self._unsent = [*self._unsent, *found][-MOST_UNSENT:]
            pause = RETRY_SECONDS if self._unsent or not known else ASK_SECONDS
            due = time.monotonic() - asked >= pause and (self._unsent or asked_for())
            if self._records is not None and due:
                asked = time.monotonic()
                avoided = await self._records.send(self._unsent)
                if avoided is not None:
                    known, self._unsent, self._avoided = True, [], avoided
                    self._checks.avoid(avoided)
            await asyncio.sleep(LOOK_SECONDS)

    async def _move(self, found: Sequence[CheckedNode]) -> None:
        for one in found:
            if one.why:
                then = "its rank goes to another node" if one.replaced else "it stays"
                logger.warning("worker-%d: %s; %s", one.rank, one.why, then)
        bad = [one for one in found if one.replaced]
        if not bad or self._kube is None:
            return
        scale = scale_for(bad, self._avoided, self._identity, time.time())
        for _ in range(_TRIES):
            try:
                await self._kube.create_scale(scale)
                return
            except KubeError as error:
                logger.warning("no rank is put on another node yet: %s", error)
                if 400 <= error.code < 500 and error.code != 429:
                    return
            await asyncio.sleep(1.0)


def scale_for(
    bad: Sequence[CheckedNode], avoided: Sequence[str], identity: PodIdentity, now: float
) -> Json:
    """The Scale that puts ranks on other nodes.

    Args:
        bad: pods whose nodes are bad.
        avoided: nodes that are avoided for other reasons, the surest first.
        identity: of the trainer.
        now: the present time, by which the Scale is named.
    """
    own = list(dict.fromkeys(one.node for one in bad))
    ranks = {
        one.rank: RankTarget(
            min_incarnation=one.incarnation + 1,
            avoid_nodes=list(dict.fromkeys([one.node, *own, *avoided]))[:MOST_AVOIDED],
        )
        for one in bad
    }
    scale = Scale(
        metadata={
            "name": f"{identity.job}-{int(now * 1000):013d}-nodes",
            "namespace": identity.namespace,
            "labels": {labels.JOB: identity.job, labels.JOB_UID: identity.uid},
        },
        spec=ScaleSpec(
            job_ref=JobReference(name=identity.job, uid=identity.uid),
            roles={Role.WORKER: RoleTarget(ranks=ranks)},
            source=Source.BRAIN,
            policy=Policy.APPLY,
            reason=REASON,
            message="; ".join(one.why for one in bad)[:1024],
        ),
    )
    written = scale.model_dump(by_alias=True, exclude_none=True, mode="json")
    return {"apiVersion": API_VERSION, "kind": SCALE_KIND, **written}
