"""What jobs cost: the sums of what their pods were given, over a time range, with a price.

Read from the roll-ups, so a bill lags by up to a minute, and a moment is counted once, whatever was
summed up meanwhile. Time in which no sample came (pods that wait or start) is in no bill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.brain.configuration import PriceSettings
from penstock.brain.errors import CostRangeError, HistoryError
from penstock.brain.model.capacity import Part, shared_out
from penstock.brain.model.prices import Amount, hourly, priced
from penstock.brain.model.rollups import MINUTE, TEN_MINUTES, start_of
from penstock.brain.model.spent import Spent, load, total
from penstock.brain.store.cluster import ClusterModels
from penstock.brain.store.database import Database
from penstock.brain.store.rollups import SpentRow, spent_pages

MOST_SECONDS: Final = 92 * 86_400.0
"""The longest range that is summed up at once."""
MOST_ROWS: Final = 2_000_000
"""Roll-ups that are read for one bill: 1,000 jobs over two weeks."""

SUMMED_SECONDS: Final = 120.0
"""After that samples are in the roll-ups."""

Key = tuple[str, ...]


class CostsBy(StrEnum):
    """What one line of a bill is about."""

    JOB = "job"
    USER = "user"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of a bill. What it is not about is empty; `amount` is None without prices."""

    namespace: str = ""
    user: str = ""
    job: str = ""
    uid: str = ""
    spent: Spent
    amount: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Lines, the dearest first, and their sum."""

    start: float
    end: float
    currency: str | None
    lines: Sequence[CostLine]
    total: CostLine


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesLine:
    """What one part had: amounts times seconds, and what they cost."""

    core_seconds: float
    gib_seconds: float
    accelerator_seconds: float
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesBill:
    """What nodes had between two moments, and where it went: the parts add up to the total.

    `covered_seconds` of this time are known; `OTHERS` may be below zero, where pods of jobs were
    given more than they request.
    """

    start: float
    end: float
    covered_seconds: float
    node_seconds: float
    currency: str | None
    parts: Mapping[Part, NodesLine]
    total: NodesLine


class CostService:
    """The bills of one Brain."""

    def __init__(
        self, database: Database, prices: PriceSettings | None, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._prices = prices
        self._clock = clock

    def configure(self, prices: PriceSettings | None) -> None:
        """Take over other prices: they hold for all bills from now on, of the past as well."""
        self._prices = prices

    @property
    def currency(self) -> str | None:
        """Of the prices; None where there are none."""
        return None if self._prices is None else self._prices.currency

    def amount(self, spent: Spent) -> Amount | None:
        """What was spent at the present prices."""
        return priced(spent, self._prices)

    def hourly(self, milli_cpu: int, memory_bytes: int, accelerators: int) -> float | None:
        """What so much costs in an hour at the present prices; None without prices."""
        if self._prices is None:
            return None
        return hourly(self._prices, milli_cpu, memory_bytes, accelerators)

    async def bill(
        self, by: CostsBy, start: float | None, end: float | None, namespace: str | None
    ) -> Bill:
        """What was spent between two moments; the last day where none are given.

        Raises:
            CostRangeError: The range is empty, too long or has too many samples.
        """
        until = self._clock() if end is None else end
        since = max(0.0, until - 86_400.0) if start is None else start
        if since >= until:
            raise CostRangeError(f"start = {since:.0f}: must be before end = {until:.0f}")
        if until - since > MOST_SECONDS:
            raise CostRangeError(
                f"start = {since:.0f}: at most {MOST_SECONDS / 86_400:.0f} days before end = "
                f"{until:.0f}; ask for shorter ranges and add them up"
            )
        sums: dict[Key, Spent] = {}
        rows = 0
        async with self._database.read_pages() as session:
            async for page in spent_pages(session, since, until, namespace):
                rows += len(page)
                if rows > MOST_ROWS:
                    raise CostRangeError(
                        f"start = {since:.0f}: there are over {MOST_ROWS:,} records up to end = "
                        f"{until:.0f}; ask for a shorter range, or name a namespace"
                    )
                sums = await asyncio.to_thread(_added, sums, page, by)
        lines = [self._line(key, spent) for key, spent in sums.items()]
        lines.sort(key=lambda line: (-_weight(line), line.namespace, line.user, line.uid))
        return Bill(
            start=since,
            end=until,
            currency=self.currency,
            lines=lines,
            total=self._line((), total(sums.values())),
        )

    async def nodes(self, start: float | None, end: float | None) -> NodesBill:
        """Where what the nodes had between two moments went; the last day where none are given.

        The range is taken in whole ten minutes, as is what jobs were given.

        Raises:
            CostRangeError: The range is empty, too long or has too many samples.
            HistoryError: The scheduler has shown nothing in this time.
        """
        newest = start_of(self._clock() - SUMMED_SECONDS, MINUTE)
        until = newest if end is None else min(start_of(end, TEN_MINUTES), newest)
        since = start_of(until - 86_400.0 if start is None else start, TEN_MINUTES)
        given = (await self.bill(CostsBy.NAMESPACE, max(0.0, since), until, None)).total.spent
        async with self._database.read() as session:
            had = await ClusterModels(self._database, session).capacity(since, until)
        if had["covered_seconds"] <= 0:
            raise HistoryError(
                f"start = {since:.0f}: up to end = {until:.0f} the scheduler has shown no nodes; "
                "`penstock doctor` looks why, and what was before this release is not known"
            )
        parts = shared_out(had, given)
        return NodesBill(
            start=since,
            end=until,
            covered_seconds=had["covered_seconds"],
            node_seconds=had["node_seconds"],
            currency=self.currency,
            parts={part: self._nodes_line(own) for part, own in parts.items()},
            total=self._nodes_line(total(parts.values())),
        )

    def _nodes_line(self, own: Spent) -> NodesLine:
        amount = self.amount(own)
        return NodesLine(
            core_seconds=own.core_seconds,
            gib_seconds=own.gib_seconds,
            accelerator_seconds=own.accelerator_seconds,
            cost=None if amount is None else amount.cost,
        )

    def _line(self, key: Key, spent: Spent) -> CostLine:
        namespace, user, job, uid = (*key, "", "", "", "")[:4]
        return CostLine(
            namespace=namespace,
            user=user,
            job=job,
            uid=uid,
            spent=spent,
            amount=self.amount(spent),
        )


def _added(sums: Mapping[Key, Spent], page: Sequence[SpentRow], by: CostsBy) -> dict[Key, Spent]:
    found: dict[Key, list[Spent]] = {key: [spent] for key, spent in sums.items()}
    for row in page:
        own = total(load(row.spent).values())
        found.setdefault(_key(row, by), []).append(own)
    return {key: total(parts) for key, parts in found.items()}


def _key(row: SpentRow, by: CostsBy) -> Key:
    match by:
        case CostsBy.JOB:
            return (row.namespace, row.user, row.name, row.uid)
        case CostsBy.USER:
            return ("", row.user)
        case CostsBy.NAMESPACE:
            return (row.namespace,)


def _weight(line: CostLine) -> float:
    return line.spent.core_seconds if line.amount is None else line.amount.cost
