"""The cluster as the scheduler sees it, kept for people: now, and over time.

The scheduler pushes a whole snapshot every now and then. Of the past, one snapshot is kept for
each minute of a day and each ten minutes of two weeks, with the fragmentation of every node alone.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.brain.errors import NoWorkloadError
from penstock.brain.model import capacity
from penstock.brain.model.rollups import MINUTE, TEN_MINUTES, start_of
from penstock.brain.store.cluster import ClusterModels
from penstock.brain.store.database import Database
from penstock.brain.store.tables import AllocationRow

_LARGEST_SECONDS: Final = 30.0
"""How long the size of the largest node is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one moment; `nodes` as they were sent."""

    time_seconds: float
    stranded_gpus: float
    stranded_cpu_cores: float
    nodes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The fragmentation of every node at one moment, by name."""

    time_seconds: float
    stranded_gpus: float
    stranded_cpu_cores: float
    nodes: Mapping[str, float]


class ClusterService:
    """The read models of one Brain."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._largest: int | None = None
        self._largest_read = float("-inf")

    async def put(
        self, snapshot: Snapshot, allocations: Sequence[tuple[float, str, Mapping[str, Any]]]
    ) -> None:
        """Store a snapshot and the decisions (time, key, content) since the last one.

        A snapshot that is older than the one that is stored changes nothing but the past.
        """
        figures = {
            "sent_seconds": snapshot.time_seconds,
            "stranded_gpus": snapshot.stranded_gpus,
            "stranded_cpu_cores": snapshot.stranded_cpu_cores,
        }
        history = _pack({node["name"]: node["fragmentation"] for node in snapshot.nodes})
        had = capacity.amounts(snapshot.nodes, snapshot.stranded_gpus, snapshot.stranded_cpu_cores)
        async with self._database.write() as session:
            models = ClusterModels(self._database, session)
            before = await models.sent_last()
            await models.add_capacity(capacity.minutes(had, before, snapshot.time_seconds))
            await models.put(0, 0.0, {**figures, "content": _pack(list(snapshot.nodes))})
            for resolution in (MINUTE, TEN_MINUTES):
                start = start_of(snapshot.time_seconds, resolution)
                await models.put(resolution, start, {**figures, "content": history})
            await models.add_allocations(
                {
                    "time_seconds": at,
                    "key": key,
                    "content": json.dumps(content),
                    "job_uid": content.get("job_uid"),
                }
                for at, key, content in allocations
            )

    async def largest_node(self) -> int | None:
        """Milli-cores of the largest node that takes pods, where the scheduler has said any."""
        now = self._clock()
        if now - self._largest_read >= _LARGEST_SECONDS or now < self._largest_read:
            snapshot = await self.newest()
            nodes = [] if snapshot is None else snapshot.nodes
            sizes = [int(node["milli_cpu"]) for node in nodes if not node["cordoned"]]
            self._largest = max(sizes, default=0) or None
            self._largest_read = now
        return self._largest

    async def newest(self) -> Snapshot | None:
        """The newest snapshot; None where the scheduler has sent none."""
        async with self._database.read() as session:
            row = await ClusterModels(self._database, session).newest()
        if row is None:
            return None
        return Snapshot(
            time_seconds=row.sent_seconds,
            stranded_gpus=row.stranded_gpus,
            stranded_cpu_cores=row.stranded_cpu_cores,
            nodes=_unpack(row.content),
        )

    async def put_workload(self, time_seconds: float, content: str) -> None:
        """Keep the pods of the cluster and their nodes, as they were sent; older ones are not."""
        packed = await asyncio.to_thread(zlib.compress, content.encode(), 1)
        async with self._database.write() as session:
            await ClusterModels(self._database, session).put_workload(time_seconds, packed)

    async def workload(self) -> str:
        """What `put_workload` kept last.

        Raises:
            NoWorkloadError: The scheduler has sent nothing.
        """
        async with self._database.read() as session:
            row = await ClusterModels(self._database, session).workload()
        if row is None:
            raise NoWorkloadError(
                "the scheduler has not shown the Brain which nodes and pods there are: `penstock "
                "doctor` looks why (a scheduler of an older release does not)"
            )
        return (await asyncio.to_thread(zlib.decompress, row.content)).decode()

    async def fragmentation(
        self,
        resolution: int,
        *,
        start: float | None,
        end: float | None,
        after: float | None,
        limit: int,
    ) -> list[Fragmentation]:
        """Fragmentation over time, oldest first."""
        async with self._database.read() as session:
            rows = await ClusterModels(self._database, session).page(
                resolution, start=start, end=end, after=after, limit=limit
            )
        return [
            Fragmentation(
                time_seconds=row.time_seconds,
                stranded_gpus=row.stranded_gpus,
                stranded_cpu_cores=row.stranded_cpu_cores,
                nodes=_unpack(row.content),
            )
            for row in rows
        ]

    async def allocations(
        self, *, since: float | None, before: int | None, limit: int, job_uid: str | None = None
    ) -> Sequence[AllocationRow]:
        """Decisions of the scheduler, newest first; about one job, where it is given."""
        async with self._database.read() as session:
            return await ClusterModels(self._database, session).allocations(
                since=since, before=before, limit=limit, job_uid=job_uid
            )


def _pack(content: Any) -> bytes:
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def _unpack(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))
