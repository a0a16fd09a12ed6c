"""Every call of the Brain's API as a value: what to send and how to read the answer.

The two clients (`brain_client` and `async_brain_client` beside this) only carry these out, so they
cannot differ in what they say. Unknown fields of an answer are ignored: a
trainer in an old image must be able to talk to a newer Brain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from penstock.client.errors import ProtocolError, refusal
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
    Problem,
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
ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_ANSWER_BYTES: Final = 16 * 1024**2
REPLAY_PATIENCE_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request and the reader of its answer."""

    method: str
    path: str
    read: Callable[[Answer], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    patience_seconds: float = 0.0
    """Of an answer that takes work: one attempt may take at least so long."""
    expected: frozenset[int] = frozenset({200, 201, 204})

    @property
    def name(self) -> str:
        """The call for error messages."""
        return f"{self.method} {self.path}"

    def result(self, answer: Answer) -> T:
        """What the answer says.

        Raises:
            BrainRefusedError: The Brain understood the call and refused it.
            ProtocolError: A message that is not what it should be.
        """
        if answer.status not in self.expected:
            raise refusal(self.name, _problem(answer))
        try:
            return self.read(answer)
        except (ValidationError, ValueError) as error:
            raise ProtocolError(f"{self.name}: the answer cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Tagged(Generic[T]):
    """A value and its ETag, to be given back as ``If-Match`` or ``If-None-Match``."""

    value: T
    etag: str


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The trainer's ledger as it was stored last."""

    sequence: int
    content: bytes


def register(uid: str, registration: JobRegistration) -> Call[Job]:
    return _json("PUT", _job(uid), Job, registration)


def job(uid: str) -> Call[Job]:
    return _json("GET", _job(uid), Job)


def jobs(filters: Mapping[str, str | float | None]) -> Call[ListResource[Job]]:
    return _page("/v1/jobs", Job, filters)


def finish(uid: str, end: JobFinish) -> Call[Job]:
    return _json("POST", f"{_job(uid)}/finish", Job, end)


def send_samples(uid: str, batch: SampleBatch) -> Call[SampleReceipt]:
    return _json("POST", f"{_job(uid)}/samples", SampleReceipt, batch)


def samples(
    uid: str, resolution: Resolution, start: float | None, end: float | None, ranks: bool
) -> Call[ListResource[SampleView]]:
    query = {
        "resolution": resolution.value,
        "start": start,
        "end": end,
        "ranks": "true" if ranks else None,
    }
    return _page(f"{_job(uid)}/samples", SampleView, query)


def plans(uid: str) -> Call[ListResource[Plan]]:
    return _page(f"{_job(uid)}/plans", Plan, {})


def plan(uid: str, plan_id: int) -> Call[Plan]:
    return _json("GET", f"{_job(uid)}/plans/{plan_id}", Plan)


def current_plan(uid: str, etag: str | None) -> Call[Tagged[Plan] | None]:
    def read(answer: Answer) -> Tagged[Plan] | None:
        return None if answer.status == 304 else _tagged_plan(answer)

    return Call(
        method="GET",
        path=f"{_job(uid)}/plans/current",
        read=read,
        headers={} if etag is None else {"If-None-Match": etag},
        expected=frozenset({200, 304}),
    )


def override(uid: str, body: Override, etag: str | None, key: str) -> Call[Tagged[Plan]]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    if etag is not None:
        headers["If-Match"] = etag
    return Call(
        method="POST",
        path=f"{_job(uid)}/plans",
        read=_tagged_plan,
        headers=headers,
        body=_dump(body),
    )


def lift_override(uid: str) -> Call[Plan | None]:
    def read(answer: Answer) -> Plan | None:
        return Plan.model_validate_json(answer.body, extra="ignore") if answer.body else None

    return Call(method="DELETE", path=f"{_job(uid)}/override", read=read)


def propose(uid: str, request: ProposalRequest) -> Call[Proposal]:
    return _json("POST", f"{_job(uid)}/plans/propose", Proposal, request)


def put_ledger(uid: str, sequence: int, content: bytes) -> Call[None]:
    return Call(
        method="PUT",
        path=f"{_job(uid)}/ledger",
        read=lambda _: None,
        query={"sequence": str(sequence)},
        headers={"Content-Type": "application/octet-stream"},
        body=content,
    )


def ledger(uid: str) -> Call[LedgerSnapshot]:
    def read(answer: Answer) -> LedgerSnapshot:
        return LedgerSnapshot(int(answer.headers.get("ledger-sequence", "")), answer.body)

    return Call(method="GET", path=f"{_job(uid)}/ledger", read=read)


def algorithms() -> Call[ListResource[AlgorithmView]]:
    return _page("/v1/algorithms", AlgorithmView, {})


def configure_algorithm(name: str, patch: AlgorithmPatch) -> Call[AlgorithmView]:
    return _json("PATCH", f"/v1/algorithms/{quote(name, safe='')}", AlgorithmView, patch)


def put_snapshot(snapshot: ClusterSnapshot) -> Call[None]:
    return Call(
        method="PUT",
        path="/v1/cluster/snapshot",
        read=lambda _: None,
        headers={"Content-Type": "application/json"},
        body=_dump(snapshot),
    )


def put_workload(workload: Workload) -> Call[None]:
    return Call(
        method="PUT",
        path="/v1/cluster/workload",
        read=lambda _: None,
        headers={"Content-Type": "application/json"},
        body=workload.model_dump_json(exclude_defaults=True).encode(),
    )


def cluster_what_if(asked: ClusterWhatIfRequest) -> Call[ClusterWhatIf]:
    return _json("POST", "/v1/cluster/whatif", ClusterWhatIf, asked)


def cluster_replay(asked: ClusterReplayRequest) -> Call[ClusterReplay]:
    call = _json("POST", "/v1/cluster/replay", ClusterReplay, asked)
    return replace(call, patience_seconds=REPLAY_PATIENCE_SECONDS)


def nodes() -> Call[ListResource[NodeView]]:
    return _page("/v1/cluster/nodes", NodeView, {})


def node_records() -> Call[ListResource[NodeRecord]]:
    return _page("/v1/nodes", NodeRecord, {})


def override_node(node: str, body: NodeOverrideBody) -> Call[NodeRecord]:
    return _json("PUT", f"{_node(node)}/override", NodeRecord, body)


def lift_node_override(node: str) -> Call[NodeRecord]:
    return _json("DELETE", f"{_node(node)}/override", NodeRecord)


def report_nodes(uid: str, body: NodeReport) -> Call[AvoidedNodes]:
    return _json("POST", f"{_job(uid)}/nodes", AvoidedNodes, body)


def fragmentation(
    resolution: Resolution, start: float | None, end: float | None
) -> Call[ListResource[FragmentationView]]:
    query = {"resolution": resolution.value, "start": start, "end": end}
    return _page("/v1/cluster/fragmentation", FragmentationView, query)


def costs(
    by: CostsBy, namespace: str | None, start: float | None, end: float | None, limit: int
) -> Call[CostReport]:
    query = {"by": by.value, "namespace": namespace, "start": start, "end": end, "limit": limit}
    asked = {name: str(value) for name, value in query.items() if value is not None}
    return replace(_json("GET", "/v1/costs", CostReport), query=asked)


def nodes_costs(start: float | None, end: float | None) -> Call[NodesReport]:
    asked = {
        name: str(value) for name, value in (("start", start), ("end", end)) if value is not None
    }
    return replace(_json("GET", "/v1/costs/nodes", NodesReport), query=asked)


def forecast(asked: ForecastRequest) -> Call[Forecast]:
    return _json("POST", "/v1/forecasts", Forecast, asked)


def allocations(since: float | None) -> Call[ListResource[Allocation]]:
    return _page("/v1/cluster/allocations", Allocation, {"since": since})


def job_allocations(uid: str) -> Call[ListResource[Allocation]]:
    return _page(f"{_job(uid)}/allocations", Allocation, {})


def put_profile(uid: str, body: ProfileBody) -> Call[None]:
    return Call(
        method="PUT",
        path=f"{_job(uid)}/profile",
        read=lambda _: None,
        headers={"Content-Type": "application/json"},
        body=_dump(body),
    )


def profile(uid: str) -> Call[ProfileView]:
    return _json("GET", f"{_job(uid)}/profile", ProfileView)


def job_input(uid: str) -> Call[InputView]:
    return _json("GET", f"{_job(uid)}/input", InputView)


def what_if(uid: str, body: WhatIfRequest) -> Call[WhatIf]:
    return _json("POST", f"{_job(uid)}/whatif", WhatIf, body)


def profiles(
    pipeline: str | None, model: str | None, machine: str | None
) -> Call[ListResource[ProfileView]]:
    query = {"pipeline": pipeline, "model": model, "machine": machine}
    return _page("/v1/profiles", ProfileView, query)


def following(
    call: Call[ListResource[ModelT]], page: ListResource[ModelT]
) -> Call[ListResource[ModelT]] | None:
    """The call for the page after `page`, the answer to `call`; None after the last one.

    Raises:
        ProtocolError: The server leads back to the same page: that would never end.
    """
    if page.continue_ is None:
        return None
    if page.continue_ == call.query.get("continue"):
        raise ProtocolError(f"{call.name}: the page after {page.continue_!r} is that page again")
    return replace(call, query={**call.query, "continue": page.continue_})


def watch_path(uid: str) -> str:
    """The path of the stream of a job's plans."""
    return f"{_job(uid)}/plans/watch"


def _job(uid: str) -> str:
    return f"/v1/jobs/{quote(uid, safe='')}"


def _node(name: str) -> str:
    return f"/v1/nodes/{quote(name, safe='')}"


def _dump(body: BaseModel) -> bytes:
    return body.model_dump_json(exclude_none=True).encode()


def _json(
    method: str, path: str, answer: type[ModelT], body: BaseModel | None = None
) -> Call[ModelT]:
    return Call(
        method=method,
        path=path,
        read=lambda got: answer.model_validate_json(got.body, extra="ignore"),
        headers={} if body is None else {"Content-Type": "application/json"},
        body=None if body is None else _dump(body),
    )


def _page(
    path: str, item: type[ModelT], query: Mapping[str, str | float | None]
) -> Call[ListResource[ModelT]]:
    # The item's class is known at run time only.
    adapter: TypeAdapter[ListResource[ModelT]] = TypeAdapter(ListResource[item])  # type: ignore[valid-type]
    return Call(
        method="GET",
        path=path,
        read=lambda got: adapter.validate_json(got.body, extra="ignore"),
        query={name: str(value) for name, value in query.items() if value is not None},
    )


def _tagged_plan(answer: Answer) -> Tagged[Plan]:
    return Tagged(
        Plan.model_validate_json(answer.body, extra="ignore"), answer.headers.get("etag", "")
    )


def _problem(answer: Answer) -> Problem:
    try:
        return Problem.model_validate_json(answer.body)
    except ValidationError:
        text = answer.body[:200].decode(errors="replace")
        detail: dict[str, Any] = {"type": "about:blank", "title": "Unexpected answer"}
        status = answer.status if 400 <= answer.status <= 599 else 599
        return Problem(status=status, detail=f"HTTP {answer.status}: {text}", **detail)
