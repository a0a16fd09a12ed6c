"""Both clients against a real service, every call once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.base.enums import Policy, Role
from penstock.base.targets import RoleTarget
from penstock.client import BrainClient, SampleBuffer
from penstock.client.errors import BrainRefusedError, NotFoundError
from penstock.wire import (
    AlgorithmPatch,
    Allocation,
    ClusterReplayRequest,
    ClusterSnapshot,
    JobRegistration,
    Node,
    Override,
    ProposalRequest,
    RankSample,
    Resolution,
    Sample,
    SampleBatch,
)
from tests.api.service import REGISTRATION, server
from tests.client.servers import REAL
from tests.patience import patient

JOB = JobRegistration.model_validate(REGISTRATION)


@contextmanager
def service(url: str) -> Iterator[str]:
    """The service in a thread of its own, for a client that blocks."""
    ready, stop, found = threading.Event(), threading.Event(), list[str]()

    async def main() -> None:
        async with server(url) as (address, _):
            found.append(address)
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(patient(20))
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join(patient(20))


def test_every_call(sqlite_url: str) -> None:
    with service(sqlite_url) as url, BrainClient(url, retry=REAL) as client:
        assert client.register("uid-1", JOB).current_plan == 1
        current = client.current_plan("uid-1")
        assert current is not None
        assert client.current_plan("uid-1", current.etag) is None

        buffer = SampleBuffer()
        for step in range(5):
            ranks = {0: RankSample(cpu_cores=0.25, memory_bytes=5, node="n1", incarnation=2)}
            buffer.add(
                Sample(
                    time=1.8e9 + step,
                    step=step,
                    steps_per_second=1.5,
                    world_size=1,
                    roles={Role.WORKER: ranks},
                )
            )
        batch = buffer.batch()
        assert batch is not None
        receipt = client.send_samples("uid-1", batch)
        assert (receipt.accepted, receipt.current_plan) == (5, 1)
        assert client.send_samples("uid-1", batch).repeated == 5
        (first, *_) = client.samples("uid-1", ranks=True)
        assert first.ranks is not None
        assert first.ranks[Role.WORKER][0].incarnation == 2
        assert first.roles[Role.WORKER].cpu_cores == 0.25
        assert list(client.samples("uid-1", resolution=Resolution.TEN_MINUTES)) == []
        assert client.send_samples("uid-1", SampleBatch()).accepted == 0

        target = Override(policy=Policy.PIN, roles={Role.WORKER: RoleTarget(replicas=2)})
        made = client.override("uid-1", target, etag=current.etag)
        assert made.value.roles[Role.WORKER].replicas == 2
        assert client.plan("uid-1", made.value.id).policy is Policy.PIN
        lifted = client.lift_override("uid-1")
        assert lifted is not None
        assert [plan.id for plan in client.plans("uid-1")] == [1, 2, 3]
        assert client.propose("uid-1", ProposalRequest(algorithm="cold_create")).plan is None

        assert client.ledger("uid-1") is None
        client.put_ledger("uid-1", 1, b"\x00\xff")
        ledger = client.ledger("uid-1")
        assert ledger is not None
        assert (ledger.sequence, ledger.content) == (1, b"\x00\xff")

        assert "cold_create" in {algorithm.name for algorithm in client.algorithms()}
        changed = client.configure_algorithm("cold_create", AlgorithmPatch(shadow=True))
        assert changed.shadow

        node = Node(name="n1", milli_cpu=8000, free_milli_cpu=1000, fragmentation=-0.5)
        client.put_snapshot(
            ClusterSnapshot(
                time=1.8e9,
                stranded_gpus=2.0,
                stranded_cpu_cores=0.0,
                nodes=[node],
                allocations=[Allocation(id="a", time=1.8e9, job_uid="uid-1", node="n1")],
            )
        )
        assert [each.name for each in client.nodes()] == ["n1"]
        assert [each.nodes for each in client.fragmentation()] == [{"n1": -0.5}]
        assert [each.node for each in client.allocations()] == ["n1"]

        assert client.costs(end=1.8e9).total.pod_seconds == 0
        with pytest.raises(BrainRefusedError, match="the scheduler has shown no nodes"):
            client.nodes_costs()
        with pytest.raises(NotFoundError, match="the scheduler has not shown"):
            client.cluster_replay(ClusterReplayRequest(policy="most"))

        assert client.finish("uid-1", "Succeeded").phase == "Succeeded"
        assert [job.uid for job in client.jobs(phase="Succeeded")] == ["uid-1"]
        assert [plan.id for plan in client.watch_plans("uid-1", after=1)] == [2, 3]
