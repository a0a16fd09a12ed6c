"""The trainer's fields of its job's status, ``problems``, ``input`` and an estimate of its end.

Level-triggered: what the job is seen to say is compared with what it should say, and written where
the two differ, on condition of the version that was seen; so a write never reaches another job of
the same name. Nothing here ever disturbs the trainer. Where the API server is away, an older CRD
drops the field, or an older role does not allow it, this is said once and tried again with growing
pauses. What is new, over or fatal is written at once; other words for the same are not worth a
write each, and wait for `WORDS_SECONDS`, other numbers of the input for `NUMBERS_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.crds.conditions import JobReason
from penstock.crds.policy import ESTIMATE_FIELD, INPUT_FIELD, PROBLEMS_FIELD, TRAINER_FIELDS
from penstock.trainer.cluster.kube import Json, KubeClient, KubeError
from penstock.trainer.control.model.problems import Problems, as_status

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
WORDS_SECONDS: Final = 5.0
"""Least seconds between two writes for words alone."""
NUMBERS_SECONDS: Final = 30.0
"""Least seconds between two writes for numbers of the input alone."""
INPUT_SECONDS: Final = 1.0
"""How often is looked what there is to say of the input: as often as it is reported."""
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_FORBIDDEN: Final = 403
_CONFLICT: Final = 409
_FIELDS: Final = " and ".join(f"status.{field}" for field in TRAINER_FIELDS)


class TrainerStatus:
    """Writes what the trainer knows of one job to its status."""

    def __init__(
        self,
        kube: KubeClient,
        uid: str,
        problems: Problems,
        told_input: Callable[[], Json | None] = lambda: None,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        told_end: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Nothing is written yet.

        Args:
            kube: where the job is.
            uid: of the job.
            problems: what goes wrong.
            told_input: the value of ``status.input``, as it should be now; None: absent.
            retry_seconds: pauses after failures.
            told_end: the value of ``status.estimatedCompletionTime``.
        """
        self._kube = kube
        self._uid = uid
        self._problems = problems
        self._told_input = told_input
        self._told_end = told_end
        self._end: str | None = None
        self._retry_seconds = retry_seconds
        self._clock_zero = datetime.now(UTC) - timedelta(seconds=time.monotonic())
        self._job: Json | None = None
        self._failures = 0
        self._wrote_at = self._looked_at = float("-inf")
        self._input: Json | None = None

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
            logger.warning("left before %s of the job were written", _FIELDS)

    def _pause(self) -> float:
        if self._failures == 0:  # somebody else was faster
            return LOOK_SECONDS
        return self._retry_seconds[min(self._failures, len(self._retry_seconds)) - 1]

    async def _attempt(self, *, at_once: bool = False) -> bool:
        """Write what differs; whether the status is as it should be, or may wait."""
        wanted: Json = {
            PROBLEMS_FIELD: as_status(self._problems.current(), self._clock_zero),
            INPUT_FIELD: self._look_at_input(at_once=at_once),
            ESTIMATE_FIELD: self._end,
        }
        due: Json = {}
        try:
            if self._job is None and any(wanted.values()):
                self.seen(await self._kube.job())
                if self._job is None:
                    self._failed("another job has its name by now")
                    return False
            if self._job is None or not (due := _differing(self._job, wanted)):
                return True
            young = time.monotonic() - self._wrote_at < _patience(self._job, wanted)
            if young and not at_once:
                return True
            version = str(self._job["metadata"]["resourceVersion"])
            answer = await self._kube.set_job_status(version, due)
            self.seen(answer)
        except KubeError as error:
            if error.code == _CONFLICT:
                self._job = None
                await self._look()
            elif error.code == _FORBIDDEN and due.get(ESTIMATE_FIELD):
                # A policy of an earlier release knows no such field; the others go without it.
                self._told_end, self._end = lambda: None, None
                logger.warning(
                    "status.%s is not written: %s; update the policies with the CRDs",
                    ESTIMATE_FIELD,
                    error,
                )
            else:
                self._failed(str(error))
            return False
        dropped = _differing(answer, wanted)
        if PROBLEMS_FIELD in dropped:
            self._failed(f"the cluster's ElasticJob has no {PROBLEMS_FIELD}: update its CRD")
            return False
        if dropped:  # not tried again: that would hold up the problems
            if INPUT_FIELD in dropped:
                self._told_input, self._input = lambda: None, None
            if ESTIMATE_FIELD in dropped:
                self._told_end, self._end = lambda: None, None
            logger.warning(
                "the cluster's ElasticJob has no %s: update its CRD; going on without",
                " and no ".join(f"status.{field}" for field in dropped),
            )
        if self._failures:
            logger.info("%s of the job are written again", _FIELDS)
        self._failures = 0
        self._wrote_at = time.monotonic()
        return True

    def _look_at_input(self, *, at_once: bool) -> Json | None:
        now = time.monotonic()
        if at_once or now - self._looked_at >= INPUT_SECONDS:
            self._input, self._looked_at = self._told_input(), now
            self._end = self._told_end()
        return self._input

    async def _look(self) -> None:
        try:
            self.seen(await self._kube.job())
        except KubeError as error:
            self._failed(str(error))

    def _failed(self, why: str) -> None:
        if self._failures == 0:
            logger.warning(
                "%s of the job cannot be written: %s; trying on, and going on without",
                _FIELDS,
                why,
            )
        self._failures += 1


def written(job: Json) -> list[Any]:
    """What a job's status says of its problems."""
    return list((job.get("status") or {}).get(PROBLEMS_FIELD) or ())


def _differing(job: Json, wanted: Json) -> Json:
    """The fields that a job's status does not have as wanted, and what to write there."""
    status = job.get("status") or {}
    return {
        field: value or None
        for field, value in wanted.items()
        if (status.get(field) or None) != (value or None)
    }


def _patience(job: Json, wanted: Json) -> float:
    """For how long after a write what differs may wait."""
    status = job.get("status") or {}
    has, should = status.get(INPUT_FIELD) or {}, wanted[INPUT_FIELD] or {}
    if _gist(written(job)) != _gist(wanted[PROBLEMS_FIELD]) or _states(has) != _states(should):
        return 0.0
    return NUMBERS_SECONDS if written(job) == wanted[PROBLEMS_FIELD] else WORDS_SECONDS


def _gist(problems: list[Any]) -> set[tuple[str, bool]]:
    """What is wrong, apart from its words."""
    return {(str(one.get("reason")), bool(one.get("fatal"))) for one in problems}


def _states(said: Json) -> set[tuple[str, str]]:
    """Where the partition of each loader or function is, apart from numbers and words."""
    partition = said.get("partition") or ()
    return {(str(one.get("name")), str(one.get("state"))) for one in partition}
