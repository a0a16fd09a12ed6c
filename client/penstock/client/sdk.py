"""`Penstock`: jobs, from submission to their samples, for programs without an event loop.

    with Penstock() as penstock:
        job = penstock.submit(Path("job.yaml"))
        penstock.wait(job.metadata.name)

One door to the cluster and to its Brain. The job is read from the cluster by name; the Brain, which
knows jobs by uid, is found by itself and asked only where a call says so.
"""

# Derived from async_sdk.py; do not edit.

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.base.enums import Policy, Role
from penstock.base.targets import RoleTarget
from penstock.client import frames, job_calls
from penstock.client.brain.brain_address import BrainAddress
from penstock.client.brain.brain_client import BrainClient
from penstock.client.brain.brain_finder import BrainFinder, BrainSearch
from penstock.client.errors import (
    BrainUnavailableError,
    ClusterUnreachableError,
    ObjectNotFoundError,
)
from penstock.client.kubernetes import resources
from penstock.client.kubernetes.cluster_client import WHOLE_SECONDS, ClusterClient
from penstock.client.kubernetes.kubeconfig import Json, read_access
from penstock.client.kubernetes.resources import JOBS, SCALES
from penstock.client.retry import RetryPolicy
from penstock.client.token import Token
from penstock.client.waiting import (
    ACTIVE,
    POLL_SECONDS,
    Absence,
    Patience,
    manifest_of,
    parsed,
    targets,
)
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.scale import Scale
from penstock.wire import Plan, Proposal, ProposalRequest, Resolution, SampleView


class Penstock:
    """One namespace of one cluster, and its Brain. Close it, or use it in a ``with`` statement.

    Every method may raise `ClusterError` (what the API server refuses, or that it is away), and
    those that ask the Brain `BrainError`; both are `PenstockError`.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        namespace: str | None = None,
        brain_url: str | None = None,
        brain_token: Token = None,
        brain_account: str | None = None,
        system_namespace: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Without arguments: as kubectl would.

        `brain_token`: what the Brain is shown, in place of what `find_brain` would choose.
        `brain_account`, `system_namespace`: as whom to call a Brain that is found, NAMESPACE/NAME
        of a ServiceAccount, and where to look for it; see `find_brain`. `retry`: how patient to be
        with the Brain.

        Raises:
            KubeconfigError: There is none, or it cannot be read.
        """
        access = read_access(kubeconfig, context)
        self.namespace = namespace or access.namespace
        self.cluster = ClusterClient(access)
        self._finder = BrainFinder(
            BrainSearch(access, brain_url, brain_token, brain_account, system_namespace, retry)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and a port forwarded to the Brain.

        Who still waits elsewhere then gets a RuntimeError, as does any later call.
        """
        self._finder.close()
        self.cluster.close()

    @property
    def brain(self) -> BrainClient:
        """The Brain's client; it is found on the first use.

        Raises:
            BrainAddressError: Nobody said where the Brain is, and it could not be found.
        """
        return self._finder.client()

    @property
    def brain_address(self) -> BrainAddress | None:
        """Where the Brain was found and how; None before it is looked for."""
        return self._finder.address

    def submit(self, job: ElasticJob | Mapping[str, Any] | Path) -> ElasticJob:
        """Create a job from a model, a manifest or a YAML file, and return it as it was stored.

        Raises:
            InvalidObjectError: The API server refuses it; its `fields` say what is wrong.
            ObjectConflictError: A job of that name exists.
            ValueError: It is no ElasticJob.
            OSError: There is no file.
        """
        return _job(self.cluster.send(job_calls.submit(manifest_of(job), self.namespace)))

    def job(self, name: str) -> ElasticJob:
        """A job as it is.

        Raises:
            ObjectNotFoundError: There is none (404).
        """
        return _job(self._read(name))

    def jobs(self) -> list[ElasticJob]:
        """The jobs of the namespace."""
        return [_job(each) for each in self.cluster.list(JOBS, self.namespace)]

    def delete(self, name: str) -> None:
        """Delete a job, and with it all that belongs to it.

        Raises:
            ObjectNotFoundError: There is none (404).
        """
        self.cluster.send(resources.delete(JOBS, name, self.namespace))

    def wait(
        self, name: str, condition: str = "Succeeded", *, timeout_seconds: float | None = None
    ) -> ElasticJob:
        """Wait until a condition of the job is True, and return the job.

        Raises:
            JobEndedError: The job ends otherwise or is deleted.
            WaitTimeoutError: `timeout_seconds` have passed.
            ClusterUnreachableError: The API server is away for 30 s.
        """
        patience = Patience(name, condition, timeout_seconds, time.monotonic)
        while True:
            try:
                found = self._read(name, patience.call_seconds())
            except (ClusterUnreachableError, ObjectNotFoundError) as error:
                patience.bear(error)
            else:
                if patience.seen(found):
                    return _job(found)
            time.sleep(patience.pause())

    def scale(self, name: str, roles: Mapping[Role, RoleTarget], *, message: str = "") -> Scale:
        """Say what roles of a job should be, until the Brain says otherwise."""
        return self._scale(name, roles, Policy.APPLY, message)

    def pin(self, name: str, roles: Mapping[Role, RoleTarget], *, message: str = "") -> Scale:
        """Say what roles of a job should be, until `release`."""
        return self._scale(name, roles, Policy.PIN, message)

    def release(self, name: str, role: Role | None = None) -> int:
        """Return a job, or one role of it, to the Brain; how many pins there were."""
        job = self._read(name)
        scales = job_calls.scales_of(job, self.cluster.list(SCALES, self.namespace))
        found = job_calls.pins(scales, role)
        if job_calls.made_through_brain(found):
            brain = self.brain
            brain.lift_override(job["metadata"]["uid"])
        for pin in found:
            with suppress(ObjectNotFoundError):  # the Brain, or somebody else, was faster
                self.cluster.send(job_calls.unpin(pin))
        return len(found)

    def suspend(self, name: str) -> ElasticJob:
        """Drain a job: its pods go, its state stays."""
        return _job(self.cluster.send(job_calls.suspend(name, self.namespace, True)))

    def resume(self, name: str) -> ElasticJob:
        """Let a suspended job go on."""
        return _job(self.cluster.send(job_calls.suspend(name, self.namespace, False)))

    def plans(self, name: str) -> list[Plan]:
        """Every plan of a job, oldest first. NotFoundError: the Brain has no such job."""
        uid, brain = self._uid(name), self.brain
        return list(brain.plans(uid))

    def watch_plans(self, name: str, *, after: int = 0) -> Iterator[Plan]:
        """Plans with an id above `after` as they are made, until the job ends.

        A stream that breaks is taken up where it was; BrainUnavailableError where the Brain is away
        for more than half a minute.
        """
        uid = self._uid(name)
        brain, absence = self.brain, Absence(time.monotonic)
        while True:
            try:
                for plan in brain.watch_plans(uid, after=after):
                    absence.over()
                    after = plan.id
                    yield plan
                job = brain.job(uid)
                if job.phase != ACTIVE:
                    # What was made between the end of the stream and that of the job.
                    for plan in brain.plans(uid):
                        if plan.id > after:
                            after = plan.id
                            yield plan
                    return
                absence.over()
            except BrainUnavailableError as error:
                absence.bear(error)
            time.sleep(POLL_SECONDS)

    def propose(self, name: str, request: ProposalRequest | None = None) -> Proposal:
        """What the Brain would do with a job now; changes nothing."""
        uid, brain = self._uid(name), self.brain
        return brain.propose(uid, request)

    def samples(
        self,
        name: str,
        *,
        resolution: Resolution = Resolution.RAW,
        start: float | None = None,
        end: float | None = None,
        ranks: bool = False,
    ) -> list[SampleView]:
        """The samples of a time range (seconds since the epoch), oldest first."""
        uid, brain = self._uid(name), self.brain
        found = brain.samples(uid, resolution=resolution, start=start, end=end, ranks=ranks)
        return list(found)

    def samples_frame(
        self,
        name: str,
        *,
        resolution: Resolution = Resolution.RAW,
        start: float | None = None,
        end: float | None = None,
    ) -> Any:
        """The same as a ``pandas.DataFrame`` indexed by time.

        Raises:
            ImportError: pandas is not installed.
        """
        return frames.frame(self.samples(name, resolution=resolution, start=start, end=end))

    def _read(self, name: str, seconds: float = WHOLE_SECONDS) -> Json:
        call = resources.get(JOBS, name, self.namespace)
        return self.cluster.send(call, seconds=seconds)

    def _uid(self, name: str) -> str:
        job = self._read(name)
        return str(job["metadata"]["uid"])

    def _scale(
        self, name: str, roles: Mapping[Role, RoleTarget], policy: Policy, message: str
    ) -> Scale:
        call = job_calls.scale(
            self._read(name),
            targets(roles),
            now_seconds=time.time(),
            policy=policy,
            message=message,
        )
        return parsed(Scale, self.cluster.send(call))


def _job(document: Json) -> ElasticJob:
    return parsed(ElasticJob, document)
