"""The Brain's API for programs without an event loop."""

# Derived from async_brain_client.py; do not edit.

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal, Self, TypeVar

import httpx

from penstock.client.brain import calls
from penstock.client.brain.calls import (
    MAX_ANSWER_BYTES,
    Answer,
    Call,
    LedgerSnapshot,
    ModelT,
    Tagged,
)
from penstock.client.brain.event_stream import EventReader
from penstock.client.errors import BrainUnavailableError, NotFoundError, ProtocolError
from penstock.client.retry import RETRIED_STATUSES, RetryPolicy
from penstock.client.token import Token, authorization
from penstock.client.trust import Trust, refresh, verified_by
from penstock.wire import (
    AlgorithmPatch,
    AlgorithmView,
    Allocation,
    AvoidedNodes,
    ClusterReplay,
    ClusterReplayRequest,
    ClusterSnapshot,
    ClusterWhatIf,
    ClusterWhatIfRequest,
    Configuration,
    CostReport,
    CostsBy,
    Forecast,
    ForecastRequest,
    FragmentationView,
    InputView,
    Job,
    JobFinish,
    JobRegistration,
    ListResource,
    NodeOverrideBody,
    NodeRecord,
    NodeReport,
    NodesReport,
    NodeView,
    Override,
    Plan,
    ProfileBody,
    ProfileView,
    Proposal,
    ProposalRequest,
    Resolution,
    SampleBatch,
    SampleReceipt,
    SampleView,
    WhatIf,
    WhatIfRequest,
    Workload,
)

T = TypeVar("T")


class BrainClient:
    """A typed client of one Brain. Close it, or use it in a ``with`` statement.

    Every call is idempotent and is retried with back-off until `retry.total_seconds` have passed;
    then it raises BrainUnavailableError. A call that the Brain refuses raises BrainRefusedError at
    once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token = None,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        verify: Trust = True,
    ) -> None:
        """`verify`: what to trust of a Brain with TLS, or whether to check at all."""
        self._trust = verify
        self._token = token
        self._retry = retry or RetryPolicy()
        self._rng = random.Random()  # noqa: S311 - jitter, not secrets
        self._http = httpx.Client(
            base_url=url, transport=transport, verify=verified_by(verify), trust_env=False
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
        """Close the connections."""
        self._http.close()

    def register(self, uid: str, registration: JobRegistration) -> Job:
        """Register a job; its initial plan exists when this returns, or its failure is recorded."""
        return self._send(calls.register(uid, registration))

    def job(self, uid: str) -> Job:
        """One job.

        Raises:
            NotFoundError: There is none (404).
        """
        return self._send(calls.job(uid))

    def jobs(self, **filters: str | float | None) -> Iterator[Job]:
        """All jobs, newest first: `namespace`, `phase`, `user`, `model`, `since` narrow them."""
        return self._pages(calls.jobs(filters))

    def finish(self, uid: str, state: Literal["Succeeded", "Failed"], message: str = "") -> Job:
        """Say how the job ended."""
        return self._send(calls.finish(uid, JobFinish(state=state, message=message)))

    def send_samples(self, uid: str, batch: SampleBatch) -> SampleReceipt:
        """Hand in samples and events; the time of sending is filled in where it is absent."""
        if batch.sent is None:
            batch = batch.model_copy(update={"sent": time.time()})
        return self._send(calls.send_samples(uid, batch))

    def samples(
        self,
        uid: str,
        *,
        resolution: Resolution = Resolution.RAW,
        start: float | None = None,
        end: float | None = None,
        ranks: bool = False,
    ) -> Iterator[SampleView]:
        """The samples of a time range, oldest first."""
        return self._pages(calls.samples(uid, resolution, start, end, ranks))

    def plans(self, uid: str) -> Iterator[Plan]:
        """Every plan of a job, oldest first."""
        return self._pages(calls.plans(uid))

    def plan(self, uid: str, plan_id: int) -> Plan:
        """One plan.

        Raises:
            NotFoundError: There is none (404).
        """
        return self._send(calls.plan(uid, plan_id))

    def current_plan(self, uid: str, etag: str | None = None) -> Tagged[Plan] | None:
        """The plan in force with its ETag; None where it is still the one that has `etag`.

        Raises:
            NotFoundError: The job has no plan.
        """
        return self._send(calls.current_plan(uid, etag))

    def override(
        self, uid: str, override: Override, *, etag: str | None = None, key: str | None = None
    ) -> Tagged[Plan]:
        """Put a person's targets in force. With `etag`, only if that plan still is in force.

        `key` names this override, so that calling again with the same one changes nothing more.

        Raises:
            PreconditionFailedError: It is not.
        """
        return self._send(calls.override(uid, override, etag, key or uuid.uuid4().hex))

    def lift_override(self, uid: str) -> Plan | None:
        """Return the job to the Brain: the plan that is in force then, None where there is none."""
        return self._send(calls.lift_override(uid))

    def propose(self, uid: str, request: ProposalRequest | None = None) -> Proposal:
        """What the Brain would do; changes nothing."""
        return self._send(calls.propose(uid, request or ProposalRequest()))

    def put_ledger(self, uid: str, sequence: int, content: bytes) -> None:
        """Store the trainer's ledger.

        Raises:
            ConflictError: A newer one is stored.
        """
        self._send(calls.put_ledger(uid, sequence, content))

    def ledger(self, uid: str) -> LedgerSnapshot | None:
        """The ledger stored last; None where there is none."""
        try:
            return self._send(calls.ledger(uid))
        except NotFoundError:
            return None

    def algorithms(self) -> list[AlgorithmView]:
        """The algorithms and their parameters."""
        page = self._send(calls.algorithms())
        return page.items

    def configure_algorithm(self, name: str, patch: AlgorithmPatch) -> AlgorithmView:
        """Change an algorithm while the Brain runs."""
        return self._send(calls.configure_algorithm(name, patch))

    def put_snapshot(self, snapshot: ClusterSnapshot) -> None:
        """Say what the cluster looks like: for the scheduler."""
        self._send(calls.put_snapshot(snapshot))

    def put_workload(self, workload: Workload) -> None:
        """Say which pods are on which nodes, and which wait: for the scheduler."""
        self._send(calls.put_workload(workload))

    def cluster_what_if(self, asked: ClusterWhatIfRequest) -> ClusterWhatIf:
        """What other nodes would do to the jobs that run and wait."""
        return self._send(calls.cluster_what_if(asked))

    def cluster_replay(self, asked: ClusterReplayRequest) -> ClusterReplay:
        """What past jobs would have waited for with another placement policy."""
        return self._send(calls.cluster_replay(asked))

    def nodes(self) -> Iterator[NodeView]:
        """The nodes as the scheduler saw them last, by name."""
        return self._pages(calls.nodes())

    def node_records(self) -> Iterator[NodeRecord]:
        """What checks and people say of nodes, by name."""
        return self._pages(calls.node_records())

    def override_node(self, node: str, body: NodeOverrideBody) -> NodeRecord:
        """Have a node avoided, or used whatever checks find, for some time."""
        return self._send(calls.override_node(node, body))

    def lift_node_override(self, node: str) -> NodeRecord:
        """Let checks decide about a node again.

        Raises:
            NotFoundError: Nothing is known of it (404).
        """
        return self._send(calls.lift_node_override(node))

    def report_nodes(self, uid: str, body: NodeReport) -> AvoidedNodes:
        """Say what a job's check found of its nodes; which are avoided then."""
        return self._send(calls.report_nodes(uid, body))

    def fragmentation(
        self,
        *,
        resolution: Resolution = Resolution.MINUTE,
        start: float | None = None,
        end: float | None = None,
    ) -> Iterator[FragmentationView]:
        """Fragmentation over time, oldest first."""
        return self._pages(calls.fragmentation(resolution, start, end))

    def costs(
        self,
        *,
        by: CostsBy = CostsBy.JOB,
        namespace: str | None = None,
        start: float | None = None,
        end: float | None = None,
        limit: int = 1000,
    ) -> CostReport:
        """What jobs, users or namespaces cost between two moments; the last day where none are."""
        return self._send(calls.costs(by, namespace, start, end, limit))

    def nodes_costs(self, *, start: float | None = None, end: float | None = None) -> NodesReport:
        """What the nodes had between two moments, and where it went."""
        return self._send(calls.nodes_costs(start, end))

    def forecast(self, asked: ForecastRequest) -> Forecast:
        """How long a job would take, and what it would use and cost, from those like it."""
        return self._send(calls.forecast(asked))

    def allocations(self, *, since: float | None = None) -> Iterator[Allocation]:
        """What the scheduler has decided, newest first."""
        return self._pages(calls.allocations(since))

    def job_allocations(self, uid: str) -> Iterator[Allocation]:
        """What the scheduler has decided about one job, newest first."""
        return self._pages(calls.job_allocations(uid))

    def put_profile(self, uid: str, body: ProfileBody) -> None:
        """Leave what was measured of a job's input."""
        self._send(calls.put_profile(uid, body))

    def profile(self, uid: str) -> ProfileView:
        """What was measured of a job's input last."""
        return self._send(calls.profile(uid))

    def job_input(self, uid: str) -> InputView:
        """Where the time of a job's input goes, and which data workers it should have."""
        return self._send(calls.job_input(uid))

    def what_if(self, uid: str, configurations: Sequence[Configuration]) -> WhatIf:
        """What one training process would do with other resources."""
        body = WhatIfRequest(configurations=list(configurations))
        return self._send(calls.what_if(uid, body))

    def profiles(
        self,
        *,
        pipeline: str | None = None,
        model: str | None = None,
        machine: str | None = None,
    ) -> Iterator[ProfileView]:
        """Profiles with these keys, newest first."""
        return self._pages(calls.profiles(pipeline, model, machine))

    def watch_plans(
        self, uid: str, *, after: int = 0, idle_seconds: float = 60.0
    ) -> Iterator[Plan]:
        """Plans with an id above `after` as they are made, until the server ends the stream.

        A stream that is silent (heartbeats included) for `idle_seconds` raises
        BrainUnavailableError; call again with the last id to go on without a gap. Events that are
        no plans raise ProtocolError.
        """
        reader = EventReader()
        path = calls.watch_path(uid)
        timeout = httpx.Timeout(self._retry.attempt_seconds, read=idle_seconds)
        began = time.monotonic()
        try:
            headers = {"Last-Event-ID": str(after), **authorization(self._token)}
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    _raise_for(path, response)
                for chunk in response.iter_raw():
                    for event in reader.feed(chunk):
                        yield Plan.model_validate_json(event.data, extra="ignore")
        except ValueError as error:
            raise ProtocolError(f"GET {path}: the stream cannot be read: {error}") from error
        except (httpx.HTTPError, OSError) as error:
            raise BrainUnavailableError(
                f"GET {path}",
                attempts=1,
                seconds=time.monotonic() - began,
                cause=f"{type(error).__name__}: {error}",
            ) from error

    def _pages(self, first: Call[ListResource[ModelT]]) -> Iterator[ModelT]:
        call: Call[ListResource[ModelT]] | None = first
        while call is not None:
            page = self._send(call)
            yield from page.items
            call = calls.following(call, page)

    def _send(self, call: Call[T]) -> T:
        began = time.monotonic()
        deadline = began + self._retry.total_seconds
        attempt = 0
        while True:
            attempt += 1
            headers: dict[str, str] = {}
            try:
                answer = self._attempt(call, deadline)
            except (httpx.HTTPError, OSError) as error:  # OSError: the token's file is not there
                cause = f"{type(error).__name__}: {error}"
            else:
                if answer.status not in RETRIED_STATUSES:
                    return call.result(answer)
                cause, headers = f"HTTP {answer.status}", dict(answer.headers)
            pause = self._retry.pause_seconds(attempt, self._rng, headers)
            now = time.monotonic()
            if now + pause >= deadline:
                raise BrainUnavailableError(
                    call.name, attempts=attempt, seconds=now - began, cause=cause
                )
            time.sleep(pause)

    def _attempt(self, call: Call[T], deadline: float) -> Answer:
        usual = max(0.05, min(self._retry.attempt_seconds, deadline - time.monotonic()))
        seconds = max(usual, call.patience_seconds)
        refresh(self._trust)
        end = time.monotonic() + seconds
        shown = authorization(self._token)
        with self._http.stream(
            call.method,
            call.path,
            params=dict(call.query),
            headers={**call.headers, **shown},
            content=call.body,
            timeout=httpx.Timeout(seconds, connect=usual),
        ) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise ProtocolError(f"{call.name}: the answer exceeds {MAX_ANSWER_BYTES} bytes")
                # The time-out of the transport is per read: a trickle would never end it.
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"no complete answer in {seconds:.1f} s")
            return Answer(response.status_code, response.headers, bytes(body))


def _raise_for(path: str, response: httpx.Response) -> None:
    answer = Answer(response.status_code, response.headers, response.read())
    call: Call[None] = Call(method="GET", path=path, read=lambda _: None)
    call.result(answer)
    raise ProtocolError(f"GET {path}: status {response.status_code} is not expected of a stream")
