"""What both forms of the SDK share: waiting, manifests in, models out. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.base import yaml_text as yamltext
from penstock.base.enums import Role
from penstock.base.targets import RoleTarget
from penstock.client import job_calls
from penstock.client.errors import (
    BrainUnavailableError,
    ClusterError,
    ClusterUnreachableError,
    JobEndedError,
    ObjectNotFoundError,
    WaitTimeoutError,
)
from penstock.client.kubernetes.cluster_client import WHOLE_SECONDS
from penstock.client.kubernetes.kubeconfig import Json
from penstock.crds.elasticjob import ElasticJob

ACTIVE: Final = "Active"
"""Phase of a job, as the Brain has it, in which there may be new plans."""

POLL_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 30.0
"""How long the API server, or the Brain, may be away while somebody waits."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class Absence:
    """How long a server has been away while somebody waits: a restart is borne, no more."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None

    def over(self) -> None:
        """It answers."""
        self._since = None

    def bear(self, error: ClusterUnreachableError | BrainUnavailableError) -> None:
        """It did not answer. Raises that error when it has been away for `AWAY_SECONDS`."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since > AWAY_SECONDS:
            raise error


class Patience:
    """When to go on waiting for a condition of a job, and when to give up."""

    def __init__(
        self,
        job: str,
        condition: str,
        timeout_seconds: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._job = job
        self._condition = condition
        self._clock = clock
        self._began = clock()
        self._timeout = timeout_seconds
        self._absence = Absence(clock)
        self._uid: str | None = None
        self._last = "it has no state yet"

    def seen(self, job: Json) -> bool:
        """Whether the job, as it was just read, is what was waited for.

        Raises:
            JobEndedError: The job has ended, or was deleted, and what was waited for cannot come
                about any more.
        """
        self._absence.over()
        uid = str(job["metadata"]["uid"])
        if self._uid not in (None, uid):
            raise JobEndedError(f"job {self._job} was deleted, and another one has its name")
        self._uid = uid
        if state := (job.get("status") or {}).get("state"):
            self._last = f"it is {state}"
        return job_calls.awaited(job, self._condition)

    def bear(self, error: ClusterUnreachableError | ObjectNotFoundError) -> None:
        """Bear an error while there is hope; raises it, or JobEndedError, where there is none."""
        if isinstance(error, ObjectNotFoundError):
            if self._uid is None:
                raise error
            raise JobEndedError(f"job {self._job} was deleted") from error
        self._absence.bear(error)

    def call_seconds(self) -> float:
        """How long the next look at the job may take: a server that hangs must not outlast us."""
        if self._timeout is None:
            return WHOLE_SECONDS
        left = self._began + self._timeout - self._clock()
        return min(WHOLE_SECONDS, max(0.1, left))

    def pause(self) -> float:
        """Seconds until the next look.

        Raises:
            WaitTimeoutError: The time is over.
        """
        if self._timeout is None:
            return POLL_SECONDS
        left = self._began + self._timeout - self._clock()
        if left <= 0:
            raise WaitTimeoutError(
                f"job {self._job} is not {self._condition} after {self._timeout:g} s; {self._last}"
            )
        return min(POLL_SECONDS, left)


def manifest_of(job: ElasticJob | Mapping[str, Any] | Path) -> Json:
    """The manifest of a model, a mapping or a YAML file.

    Raises:
        ValueError: It is not of that form.
        OSError: The system refuses.
    """
    if isinstance(job, ElasticJob):
        return job.model_dump(by_alias=True, exclude_none=True, mode="json")
    if isinstance(job, Path):
        return one_manifest(job.read_text(encoding="utf-8"), str(job))
    return dict(job)


def one_manifest(text: str, where: str) -> Json:
    """The one object in a YAML text.

    Raises:
        ValueError: It is none; the line at fault is named.
    """
    try:
        found = [each for each in yamltext.documents(text) if each is not None]
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if len(found) != 1 or not isinstance(found[0], dict):
        what = "something else" if len(found) == 1 else str(len(found))
        raise ValueError(f"{where}: one object expected, found {what}")
    manifest: Json = found[0]
    return manifest


def targets(roles: Mapping[Role, RoleTarget]) -> dict[Role, Json]:
    """Targets as they are spelt in a Scale."""
    return {
        role: target.model_dump(by_alias=True, exclude_none=True, mode="json")
        for role, target in roles.items()
    }


def parsed(model: type[ModelT], document: Json) -> ModelT:
    """An object of the cluster as its model.

    Raises:
        ClusterError: It cannot be read.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ClusterError(
            f"{document.get('kind')} {document.get('metadata', {}).get('name')} cannot be read: "
            f"{where}: {first['msg']}; is this client as new as the cluster's CRDs?"
        ) from error
