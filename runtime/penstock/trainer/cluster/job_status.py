"""The trainer's one field of its job's status, ``status.problems``: kept as it sees things.

Level-triggered: what the job is seen to say is compared with what it should say, and written where
the two differ, on condition of the version that was seen; so a write never reaches another job of
the same name. Nothing here ever disturbs the trainer. Where the API server is away, an older CRD
drops the field, or an older role does not allow it, this is said once and tried again with growing
pauses. What is new, over or fatal is written at once; other words for the same are not worth a
write each, and wait for `WORDS_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.crds.conditions import JobReason
from penstock.crds.policy import TRAINER_FIELD
from penstock.trainer.cluster.kube import Json, KubeClient, KubeError
from penstock.trainer.control.model.problems import Problems, as_status

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
WORDS_SECONDS: Final = 5.0
"""Least seconds between two writes for words alone."""
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_CONFLICT: Final = 409


class ProblemStatus:
    """Writes the problems of one job to its status."""

    def __init__(
        self,
        kube: KubeClient,
        uid: str,
        problems: Problems,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self._kube = kube
        self._uid = uid
        self._problems = problems
        self._retry_seconds = retry_seconds
        self._clock_zero = datetime.now(UTC) - timedelta(seconds=time.monotonic())
        self._job: Json | None = None
        self._failures = 0
        self._wrote_at = float("-inf")

    def seen(self, job: Json) -> None:
        """The job is this now."""
        self._job = job if job["metadata"].get("uid") == self._uid else None

    def shows(self, reason: JobReason) -> bool:
        """Whether the job, as it was last seen, says so."""
        return self._job is not None and any(
            problem.get("reason") == reason for problem in written(self._job)
        )

    async def run(self, quiet_seconds: float = 0.0) -> None:
        """Keep the status as it should be until cancelled.

        Args:
            quiet_seconds: write nothing for so long. What an earlier trainer has written stays
                until those whose words it was had the time to repeat them.
        """
        await asyncio.sleep(quiet_seconds)
        while True:
            pause = LOOK_SECONDS if await self._attempt() else self._pause()
            await asyncio.sleep(pause)

    async def settle(self, seconds: float) -> None:
        """The last chance: try for so long at most that the status is as it should be."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._attempt(at_once=True):  # noqa: ASYNC110  (each is a new attempt)
                    await asyncio.sleep(self._pause())
        except TimeoutError:
            logger.warning("left before status.%s of the job was written", TRAINER_FIELD)

    def _pause(self) -> float:
        if self._failures == 0:  # somebody else was faster
            return LOOK_SECONDS
        return self._retry_seconds[min(self._failures, len(self._retry_seconds)) - 1]

    async def _attempt(self, *, at_once: bool = False) -> bool:
        """Write what differs; whether the status is as it should be, or may wait."""
        wanted = as_status(self._problems.current(), self._clock_zero)
        try:
            if self._job is None and wanted:
                self.seen(await self._kube.job())
                if self._job is None:
                    self._failed("another job has its name by now")
                    return False
            if self._job is None or written(self._job) == wanted:
                return True
            young = time.monotonic() - self._wrote_at < WORDS_SECONDS
            if young and not at_once and _gist(written(self._job)) == _gist(wanted):
                return True
            version = str(self._job["metadata"]["resourceVersion"])
            answer = await self._kube.set_job_status(version, {TRAINER_FIELD: wanted or None})
            self.seen(answer)
        except KubeError as error:
            if error.code == _CONFLICT:
                self._job = None
                await self._look()
            else:
                self._failed(str(error))
            return False
        if written(answer) != wanted:
            self._failed("the cluster's ElasticJob has no such field: update its CRD")
            return False
        if self._failures:
            logger.info("status.%s of the job is written again", TRAINER_FIELD)
        self._failures = 0
        self._wrote_at = time.monotonic()
        return True

    async def _look(self) -> None:
        try:
            self.seen(await self._kube.job())
        except KubeError as error:
            self._failed(str(error))

    def _failed(self, why: str) -> None:
        if self._failures == 0:
            logger.warning(
                "status.%s of the job cannot be written: %s; trying on, and going on without",
                TRAINER_FIELD,
                why,
            )
        self._failures += 1


def written(job: Json) -> list[Any]:
    """What a job's status says of its problems."""
    return list((job.get("status") or {}).get(TRAINER_FIELD) or ())


def _gist(problems: list[Any]) -> set[tuple[str, bool]]:
    """What is wrong, apart from its words."""
    return {(str(one.get("reason")), bool(one.get("fatal"))) for one in problems}
