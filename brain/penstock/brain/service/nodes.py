"""What is known of nodes: taken in from the checks of jobs, asked for, overruled by people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import JobPhase
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.errors import JobFinishedError, NodeNotFoundError
from penstock.brain.model.avoidance import AVOID, CLEAR, GOOD, Standing, avoid_for, avoided
from penstock.brain.service.cluster import ClusterService
from penstock.brain.store.audit import Audit
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.nodes import Nodes
from penstock.brain.store.tables import NodeRow

MOST_NODES: Final = 20_000
"""Nodes that are remembered: as many as no cluster has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one job's check found of one node."""

    node: str
    verdict: str
    what: str
    ratio: float
    hardware: str
    compute: float | None
    memory: float | None
    link: float | None


class NodeService:
    """The nodes of one Brain."""

    def __init__(
        self,
        database: Database,
        cluster: ClusterService,
        clock: Callable[[], float],
        metrics: BrainMetrics,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics

    async def report(self, uid: str, measured: Sequence[Measured]) -> None:
        """Take in what a job's check found.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended, and measures nothing more.
        """
        now = self._clock()
        by_name = {one.node: one for one in measured}
        async with self._database.write() as session:
            job = await Jobs(self._database, session).get(uid)
            if JobPhase(job.phase).finished:
                raise JobFinishedError(f"job {uid} has ended ({job.phase}): no check is taken")
            nodes = Nodes(session)
            known = await nodes.named(by_name.keys())
            room = MOST_NODES - await nodes.count() if set(by_name) - set(known) else 0
            for name, one in by_name.items():
                row = known.get(name)
                if row is None:
                    if room <= 0:
                        continue
                    room -= 1
                    row = NodeRow(name=name, changed_seconds=now)
                    nodes.add(row)
                _take_in(row, one, uid, now)
        for one in by_name.values():
            self._metrics.node_checks.labels(one.verdict).inc()

    async def avoided(self) -> list[str]:
        """The nodes that new pods are to be kept away from, the surest first."""
        now = self._clock()
        async with self._database.read() as session:
            nodes = Nodes(session)
            rows = await nodes.standing(now)
            if not rows:
                return []
            known = await nodes.count()
        snapshot = await self._cluster.newest()
        there = known if snapshot is None else len(snapshot.nodes)
        return avoided([standing(row) for row in rows], there, now)

    async def page(self, after: str | None, limit: int) -> Sequence[NodeRow]:
        """What is known, by name; `after` is the last one seen."""
        async with self._database.read() as session:
            return await Nodes(session).page(after, limit)

    async def override(
        self, name: str, *, avoid: bool, seconds: float, why: str, author: str
    ) -> NodeRow:
        """Have a person's word count for so long, whatever checks say."""
        now = self._clock()
        async with self._database.write() as session:
            nodes = Nodes(session)
            row = await nodes.get(name)
            if row is None:
                row = NodeRow(name=name, changed_seconds=now)
                nodes.add(row)
            row.override = AVOID if avoid else CLEAR
            row.override_until_seconds = now + seconds
            row.override_by, row.override_why = author[:253], why
            row.changed_seconds = now
            Audit(session).add(
                time_seconds=now,
                actor=author,
                action=f"node.{row.override.lower()}",
                subject=name,
                detail={"seconds": seconds, "why": why},
            )
        return row

    async def lift(self, name: str, author: str) -> NodeRow:
        """Let checks decide about a node again.

        Raises:
            NodeNotFoundError: Nothing is known of it.
        """
        now = self._clock()
        async with self._database.write() as session:
            row = await Nodes(session).get(name)
            if row is None:
                raise NodeNotFoundError(
                    f"nothing is known of node {name!r}: `penstock nodes list` has those that are"
                )
            row.override, row.override_until_seconds = "", None
            row.override_by, row.override_why = "", ""
            row.changed_seconds = now
            Audit(session).add(
                time_seconds=now, actor=author, action="node.lift", subject=name, detail={}
            )
        return row

    async def observe(self) -> None:
        """Bring the gauge up to date, before somebody reads it."""
        self._metrics.nodes_avoided.set(len(await self.avoided()))


def standing(row: NodeRow) -> Standing:
    """What counts of a node."""
    return Standing(
        name=row.name,
        verdict=row.verdict,
        ratio=row.ratio,
        avoid_until=row.avoid_until_seconds,
        override=row.override,
        override_until=row.override_until_seconds,
    )


def _take_in(row: NodeRow, one: Measured, uid: str, now: float) -> None:
    bad = one.verdict != GOOD
    # The same job looks again while it replaces its pods: that is one finding, not several.
    again = bad and row.job_uid == uid and row.times > 0
    row.times = (row.times if again else row.times + 1) if bad else 0
    row.avoid_until_seconds = now + avoid_for(row.times) if bad else None
    row.verdict, row.what, row.ratio = one.verdict, one.what, one.ratio
    row.hardware = one.hardware
    row.compute, row.memory, row.link = one.compute, one.memory, one.link
    row.measured_seconds, row.job_uid, row.changed_seconds = now, uid, now
