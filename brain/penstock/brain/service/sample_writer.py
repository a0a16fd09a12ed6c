"""Writes the samples of many jobs in one transaction: group commit.

A transaction costs about the same for one batch as for fifty. So a batch waits for the transaction
that is under way, if any, and then shares the next one with everything that came in meanwhile; its
sender is answered when it is committed. A batch that spoils a transaction is written alone, so that
it cannot spoil the others'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from penstock.brain.errors import BrainError, JobFinishedError, JobNotFoundError
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import JobProgress, Jobs, JobState
from penstock.brain.store.samples import Samples

MOST_AT_ONCE: Final = 128
MOST_WAITING: Final = 4096


class OverloadedError(BrainError):
    """More batches wait than can be written soon; send them again later."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one sender handed in, as rows; `progress` is None where there is no sample."""

    uid: str
    samples: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    progress: JobProgress


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch."""

    accepted: int
    current_plan: int | None
    warning: str = ""


@dataclass(slots=True)
class _Waiting:
    batch: Batch
    done: asyncio.Future[Written] = field(repr=False)


class SampleWriter:
    """Writes batches; needs no task of its own: the first to come writes for all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, batch: Batch) -> Written:
        """Write a batch and wait until it is committed.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended and takes nothing more.
            OverloadedError: More batches wait than can be written soon.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise OverloadedError(f"{MOST_WAITING} batches wait to be written: send it again later")
        done: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(batch, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._drain(), name="sample-writer")
        return await done

    async def close(self) -> None:
        """Wait until everything that came in is written."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _drain(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            try:
                results = await self._write(group)
            except (SQLAlchemyError, OSError) as error:
                if len(group) == 1:
                    _fail(group[0], error)
                else:
                    await self._write_alone(group)
                continue
            except BaseException as error:
                for each in group:
                    _fail(each, error)
                raise
            _answer(group, results)

    async def _write_alone(self, group: Sequence[_Waiting]) -> None:
        for each in group:
            try:
                _answer([each], await self._write([each]))
            except (SQLAlchemyError, OSError) as error:
                _fail(each, error)

    async def _write(self, group: Sequence[_Waiting]) -> list[Written | BrainError]:
        async with self._database.write() as session:
            jobs, samples = Jobs(self._database, session), Samples(self._database, session)
            states = await jobs.states({each.batch.uid for each in group})
            taken = [each.batch for each in group if _refusal(states, each.batch) is None]
            added = await samples.add([row for batch in taken for row in batch.samples])
            await samples.add_events([row for batch in taken for row in batch.events])
            await jobs.progressed([batch.progress for batch in taken])
        results: list[Written | BrainError] = []
        for each in group:
            refusal = _refusal(states, each.batch)
            if refusal is not None:
                results.append(refusal)
                continue
            new = 0
            for row in each.batch.samples:
                key = (each.batch.uid, row["time_seconds"])
                if key in added:
                    added.discard(key)  # the same sample twice in one group is new once
                    new += 1
            _, plan, warning = states[each.batch.uid]
            results.append(Written(new, plan, warning))
        return results


def _refusal(states: Mapping[str, JobState], batch: Batch) -> BrainError | None:
    if batch.uid not in states:
        return JobNotFoundError(batch.uid)
    phase = states[batch.uid][0]
    if phase.finished:
        return JobFinishedError(f"job {batch.uid} has ended ({phase}): no samples are taken")
    return None


def _answer(group: Sequence[_Waiting], results: Sequence[Written | BrainError]) -> None:
    for each, result in zip(group, results, strict=True):
        if each.done.done():
            continue  # the sender has gone away
        if isinstance(result, BrainError):
            each.done.set_exception(result)
        else:
            each.done.set_result(result)


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)
