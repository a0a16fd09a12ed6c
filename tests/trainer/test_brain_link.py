"""The trainer's line to the Brain: what is kept while it is away, and said when it is back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from penstock.base.enums import EventKind, Role, Strategy
from penstock.base.fields import EXACT_INT_MAX
from penstock.client import AsyncBrainClient, RetryPolicy
from penstock.crds.conditions import JobReason
from penstock.data import job_input
from penstock.data.dispatcher import Dispatcher
from penstock.data.protocol import (
    ConsumerReport,
    InputOptions,
    InputTotals,
    MakingTotals,
    QueueState,
    SharedTotals,
    ShareOptions,
    WorkerReport,
)
from penstock.job.protocol import (
    AgentReport,
    DataSpec,
    GpuUsage,
    MemberId,
    Phase,
    SessionReport,
    Usage,
)
from penstock.trainer.brain import brain_connection
from penstock.trainer.brain.brain_connection import BrainConnection
from penstock.trainer.brain.job_sampler import JobSampler
from penstock.trainer.cluster.job_view import RolePods
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.journal import restore
from penstock.wire import JobEvent, JobRegistration, RoleDescription
from penstock.wire.samples import GPU_FIELDS, SampleBatch, ShareSample

UID = "u-1"
REGISTRATION = JobRegistration(
    name="j",
    namespace="default",
    strategy=Strategy.ALL_REDUCE,
    roles={Role.WORKER: RoleDescription(max_replicas=4)},
)


class FakeBrain:
    """Answers as the Brain's API does, remembers what it was told, and can be away."""

    def __init__(self) -> None:
        self.away = False
        self.known = False
        self.older = False
        self.told: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.dropped = 0
        self.warning = ""
        self.ledger: tuple[int, bytes] | None = None
        self.finished: dict[str, Any] | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("away", request=request)
        action = request.url.path.removeprefix(f"/v1/jobs/{UID}").strip("/")
        if request.method == "PUT" and action == "":
            told = json.loads(request.content)
            self.told.append(told)
            if self.older and "total_steps" in told:
                return _problem(422)
            self.known = True
            return httpx.Response(200, json=self._job())
        if not self.known:
            return _problem(404)
        if action == "":
            return httpx.Response(200, json=self._job())
        # A handler found by its name.
        return getattr(self, f"_{action.replace('/', '_')}")(request)  # type: ignore[no-any-return]

    def _samples(self, request: httpx.Request) -> httpx.Response:
        batch = json.loads(request.content)
        self.samples += batch["samples"]
        self.events += batch["events"]
        self.dropped += batch["dropped"]
        accepted = len(batch["samples"])
        said = {"accepted": accepted, "repeated": 0, "warning": self.warning}
        return httpx.Response(200, json=said)

    def _finish(self, request: httpx.Request) -> httpx.Response:
        self.finished = json.loads(request.content)
        return httpx.Response(200, json=self._job())

    def _plans_current(self, request: httpx.Request) -> httpx.Response:
        return _problem(404)

    @staticmethod
    def _job() -> dict[str, Any]:
        times = {"registered_seconds": 1.0, "last_seen_seconds": 1.0}
        return {**REGISTRATION.model_dump(mode="json"), "uid": UID, "phase": "Active", **times}


def _problem(status: int) -> httpx.Response:
    content = {
        "type": "urn:penstock:problem:not-found",
        "title": "Not found",
        "status": status,
        "detail": "no such job",
    }
    return httpx.Response(status, json=content)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brain_connection, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(brain_connection, "REGISTER_RETRY_SECONDS", 0.02)


def books() -> Coordinator:
    found = Coordinator(JobFacts(), identity="t")
    report = SessionReport(
        member=MemberId(rank=0, incarnation=0, nonce="n"),
        phase=Phase.READY,
        address="h:1",
        data=DataSpec(dataset_size=100, global_batch=10, epochs=1),
    )
    found.handle_session_report(report, 0.0)
    return found


def run(
    fake: FakeBrain,
    work: Callable[[BrainConnection], Awaitable[None]],
    found: Coordinator | None = None,
    dispatcher: Dispatcher | None = None,
) -> None:
    async def main() -> None:
        client = AsyncBrainClient(
            "http://brain",
            transport=httpx.MockTransport(fake),
            retry=RetryPolicy(total_seconds=0.05, attempt_seconds=0.05, first_seconds=0.01),
        )
        link = BrainConnection(client, UID, found or books(), dispatcher)
        try:
            await work(link)
        finally:
            await link.close()

    asyncio.run(main())


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not ready():  # noqa: ASYNC110  (other tasks of this loop change it)
            await asyncio.sleep(0.01)


def test_what_the_brain_warns_of_is_a_problem_of_the_job_until_it_is_over() -> None:
    fake, found = FakeBrain(), books()
    fake.warning = "the job is expected to cost more than its budget of 25 EUR"

    async def work(link: BrainConnection) -> None:
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        await until(lambda: bool(found.problems.current()))
        [problem] = found.problems.current()
        assert (problem.reason, problem.message) == (JobReason.BUDGET_NOT_KEPT, fake.warning)
        assert not problem.fatal
        fake.warning = ""
        await until(lambda: not found.problems.current())
        for task in tasks:
            task.cancel()

    run(fake, work, found)


def test_samples_wait_while_the_brain_is_away_and_arrive_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeBrain()

    async def work(link: BrainConnection) -> None:
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        await until(lambda: len(fake.samples) >= 2)
        fake.away = True
        await asyncio.sleep(0.3)
        before = len(fake.samples)
        fake.away = False
        await until(lambda: len(fake.samples) >= before + 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with caplog.at_level("WARNING"):
        run(fake, work)
    times = [sample["time"] for sample in fake.samples]
    assert times == sorted(times)
    assert len(set(times)) == len(times)
    assert fake.dropped == 0
    assert sum("(samples)" in record.getMessage() for record in caplog.records) == 1


def test_a_brain_that_lost_its_store_is_told_of_the_job_again() -> None:
    fake = FakeBrain()

    async def work(link: BrainConnection) -> None:
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        await until(lambda: bool(fake.samples))
        fake.known = False
        await until(lambda: fake.known)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(fake, work)


def test_the_end_is_said_with_the_last_samples() -> None:
    fake = FakeBrain()

    async def work(link: BrainConnection) -> None:
        registering = asyncio.create_task(link.register(lambda: REGISTRATION))
        await until(lambda: fake.known)
        await asyncio.sleep(0.05)
        await link.finish("100 samples seen")
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(fake, work)
    assert fake.finished == {"state": "Succeeded", "message": "100 samples seen"}


def test_a_brain_that_is_away_at_the_end_does_not_keep_the_trainer() -> None:
    fake = FakeBrain()

    async def work(link: BrainConnection) -> None:
        registering = asyncio.create_task(link.register(lambda: REGISTRATION))
        await until(lambda: fake.known)
        await asyncio.sleep(0.05)
        fake.away = True
        async with asyncio.timeout(2):
            await link.finish("over")
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(fake, work)
    assert fake.finished is None


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_brain_that_begins_again_at_the_end_is_waited_for(
    comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain_connection, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(brain_connection, "AWAY_SECONDS", 60.0 if comes_back else 0.3)
    fake = FakeBrain()

    async def work(link: BrainConnection) -> None:
        registering = asyncio.create_task(link.register(lambda: REGISTRATION))
        await until(lambda: fake.known)
        await asyncio.sleep(0.05)
        fake.away = True
        waiting = asyncio.create_task(link.wait_until_back())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        fake.away = not comes_back
        async with asyncio.timeout(30):
            await waiting
        await link.finish("over")
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(fake, work)
    assert (fake.finished is not None) == comes_back


def test_the_copy_of_the_ledger_can_be_taken_up() -> None:
    before = books()
    assert before.state.ledger is not None
    lease = before.state.ledger.lease("group-1", 0.0, 100)
    assert lease
    before.state.ledger.complete(lease.fence, 0, 50)

    async def copy() -> bytes | None:
        client = AsyncBrainClient("http://brain", transport=httpx.MockTransport(FakeBrain()))
        link = BrainConnection(client, UID, before)
        try:
            return link.copies.make()
        finally:
            await link.close()

    content = asyncio.run(copy())
    assert content
    assert len(content) < 1000
    after = Coordinator(JobFacts(), identity="later")
    restore(content, "the copy", after, now=0.0)
    assert after.state.committed_steps == before.state.committed_steps > 0


def test_a_job_that_cannot_be_described_is_said_once_and_registered_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake, tried = FakeBrain(), 0

    def describe() -> JobRegistration:
        nonlocal tried
        tried += 1
        if tried < 4:
            return JobRegistration.model_validate({"name": ""})
        return REGISTRATION

    async def work(link: BrainConnection) -> None:
        registering = asyncio.create_task(link.register(describe))
        await until(lambda: fake.known or registering.done())
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    with caplog.at_level("WARNING"):
        run(fake, work)
    assert fake.known
    [said] = [record.getMessage() for record in caplog.records if "register" in record.getMessage()]
    assert "\n" not in said


@pytest.mark.parametrize("older", [False, True])
def test_what_becomes_known_of_a_job_is_told_and_to_an_older_brain_what_it_knows(
    older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain_connection, "REGISTER_RETRY_SECONDS", 0.01)
    fake, now = FakeBrain(), REGISTRATION
    fake.older = older
    more = REGISTRATION.model_copy(update={"global_batch": 8, "total_steps": 400})

    async def work(link: BrainConnection) -> None:
        nonlocal now
        registering = asyncio.create_task(link.register(lambda: now))
        await until(lambda: fake.known)
        now = more
        await until(lambda: len(fake.told) >= (3 if older else 2))
        await asyncio.sleep(0.1)  # it is not told again and again
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(fake, work)
    assert fake.told[-1].get("total_steps") == (None if older else 400)
    assert len(fake.told) == (3 if older else 2)


@pytest.mark.parametrize(("limit", "ideal"), [("", 16), ("memory", 4)])
def test_a_sample_says_how_long_the_training_waits_and_what_data_workers_use(
    limit: str, ideal: float
) -> None:
    fake = FakeBrain()
    found, dispatcher = Coordinator(JobFacts(), identity="t"), Dispatcher("d")
    usage = Usage(cpu_cores=1.5, memory_bytes=5)
    now = time.monotonic()
    found.handle_agent_report(AgentReport(role="worker", rank=0, incarnation=0, usage=usage), now)
    queue = QueueState(
        enqueued_per_second=4,
        dequeued_per_second=4,
        received_bytes_per_second=9e6,
        wait_share=0.75,
        limit=limit,
    )
    dispatcher.consumer(ConsumerReport(name="c", address="h:1", queue=queue, taken=12), now)
    served = WorkerReport(name="w", rank=3, incarnation=1, cpu_cores=0.9, memory_bytes=7)
    dispatcher.worker(served, now)

    async def work(link: BrainConnection) -> None:
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        await until(lambda: bool(fake.samples))
        for task in tasks:
            task.cancel()

    run(fake, work, found, dispatcher)
    sample = fake.samples[-1]
    assert sample["step"] == 12, "a program that does not use the API takes one batch a step"
    assert sample["queue"]["ideal_per_second"] == ideal, "more would have nothing to do"
    assert sample["queue"]["received_bytes_per_second"] == 9e6
    assert sample["roles"]["worker"]["0"]["wait_share"] == 0.75
    maker = sample["roles"]["dataWorker"]["3"]
    assert (maker["cpu_cores"], maker["memory_bytes"], maker["incarnation"]) == (0.9, 7, 1)


def test_accelerated_data_workers_are_told_apart_by_their_pods() -> None:
    dispatcher = Dispatcher("d")
    for name, used in (("job-data-worker-0-0", 0.9), ("job-accelerated-data-worker-0-0", 0.2)):
        dispatcher.worker(WorkerReport(name=name, rank=0, cpu_cores=used), 0.0)
    sampler = JobSampler(Coordinator(JobFacts(), identity="t"), dispatcher)
    accelerated = frozenset({"job-accelerated-data-worker-0-0"})
    sampler.note_pods(RolePods({}, {}, frozenset(), accelerated))
    roles = sampler.measure(3.0, 1.0).roles
    assert roles[Role.DATA_WORKER][0].cpu_cores == 0.9
    assert roles[Role.ACCELERATED_DATA_WORKER][0].cpu_cores == 0.2


def test_processes_of_one_data_worker_are_one_pod_of_the_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher = Dispatcher("d")
    for name, rank in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
        its = WorkerReport(name=name, rank=rank, cpu_cores=0.75, memory_bytes=4, processes=2)
        dispatcher.worker(its, 0.0)
    sampler = JobSampler(Coordinator(JobFacts(), identity="t"), dispatcher)
    ranks = sampler.measure(3.0, 1.0).roles[Role.DATA_WORKER]
    assert {rank: (one.cpu_cores, one.memory_bytes) for rank, one in ranks.items()} == {
        0: (1.5, 8),
        1: (1.5, 8),
    }
    noted: list[int] = []
    monkeypatch.setattr(sampler._input, "note", lambda _, workers, __: noted.append(workers))
    sampler.measure_input(1.0)
    assert noted == [2]


def with_gpus() -> Coordinator:
    found = Coordinator(JobFacts(), identity="t")
    gpus = (
        GpuUsage(uuid="GPU-a", utilization=0.25, memory_bytes=2, memory_total_bytes=8),
        GpuUsage(uuid="GPU-b", utilization=0.75, memory_bytes=3, power_watts=400),
        GpuUsage(uuid="MIG-c"),
    )
    usage = Usage(cpu_cores=1.5, memory_bytes=5, gpus=gpus)
    now = time.monotonic()
    for rank, used in enumerate((usage, usage.model_copy(update={"gpus": ()}))):
        report = AgentReport(role="worker", rank=rank, incarnation=0, usage=used)
        found.handle_agent_report(report, now)
    return found


def test_a_sample_sums_up_the_devices_of_each_pod_that_has_any() -> None:
    ranks = JobSampler(with_gpus()).measure(1.0, time.monotonic()).roles[Role.WORKER]
    own = ranks[0]
    assert (own.gpus, own.gpu_utilization, own.gpu_power_watts) == (3, 0.5, 400)
    assert (own.gpu_memory_bytes, own.gpu_memory_total_bytes) == (5, 8)
    assert ranks[1].model_dump(include=set(GPU_FIELDS)) == dict.fromkeys(GPU_FIELDS)


class OldBrain(FakeBrain):
    """A Brain of the release before: it refuses what it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def _samples(self, request: httpx.Request) -> httpx.Response:
        if b'"gpu' in request.content:
            self.refused += 1
            return _problem(422)
        return super()._samples(request)


def test_a_brain_of_the_release_before_hears_all_but_the_gpus(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = OldBrain()

    async def work(link: BrainConnection) -> None:
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        await until(lambda: len(fake.samples) > 3)
        assert fake.refused == 1, "it was asked again and again"
        monkeypatch.setattr(brain_connection, "OLD_BRAIN_SECONDS", 0.0)
        link._plain_until = 0.0
        await until(lambda: fake.refused > 2)
        for task in tasks:
            task.cancel()

    with caplog.at_level("WARNING"):
        run(fake, work, with_gpus())
    assert fake.samples[-1]["roles"]["worker"]["0"]["cpu_cores"] == 1.5
    assert "does not hear of GPUs" in caplog.text
    assert "trying on" not in caplog.text


def test_a_death_is_told_once_while_its_pod_is_there_even_if_the_brain_was_away() -> None:
    died = JobEvent(time=10.0, kind=EventKind.OUT_OF_MEMORY, role=Role.WORKER, rank=1)
    other = JobEvent(time=12.0, kind=EventKind.FAILED, role=Role.PS, rank=0)
    fake = FakeBrain()
    fake.away = True

    async def work(link: BrainConnection) -> None:
        link.note_pods(RolePods({}, {}, frozenset()), [died])
        tasks = [
            asyncio.create_task(link.register(lambda: REGISTRATION)),
            asyncio.create_task(link.send_samples()),
        ]
        link.note_pods(RolePods({}, {}, frozenset()), [other, died])
        fake.away = False
        await until(lambda: len(fake.events) == 2)
        link.note_pods(RolePods({}, {}, frozenset()), [died])
        sent = len(fake.samples)
        await until(lambda: len(fake.samples) >= sent + 3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(fake, work)
    assert [(one["kind"], one["rank"]) for one in fake.events] == [
        ("OutOfMemory", 1),
        ("Failed", 0),
    ]


def test_what_the_training_processes_count_reaches_the_brain_as_a_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_input, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(job_input, "SKIPPED_SECONDS", 0.0)
    fake, dispatcher, kept = FakeBrain(), Dispatcher("d"), []
    fake._profile = lambda request: (  # type: ignore[attr-defined]  # found by its name
        kept.append(json.loads(request.content)) or httpx.Response(204)
    )

    def taken(batches: int) -> ConsumerReport:
        made = MakingTotals(batches=batches, seconds=0.1 * batches, cpu_seconds=0.1 * batches)
        totals = InputTotals(
            seconds=0.06 * batches,
            taken=batches,
            waited_seconds=0.04 * batches,
            batch_bytes=1000,
            cores=2,
            local_workers=2,
            local=made,
        )
        return ConsumerReport(name="c", address="h:1", input=totals)

    async def run() -> None:
        client = AsyncBrainClient("http://brain", transport=httpx.MockTransport(fake))
        link = BrainConnection(client, UID, books(), dispatcher)
        tasks = [asyncio.create_task(link.register(lambda: REGISTRATION))]
        tasks.append(asyncio.create_task(link.send_samples()))
        count = 0
        async with asyncio.timeout(30):
            while not kept:
                count += 10
                dispatcher.consumer(taken(count), time.monotonic())
                await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await link.close()

    asyncio.run(run())
    assert kept[0]["source"] == "job"
    assert kept[0]["content"]["resources"]["workers"] == 2
    assert kept[0]["content"]["stalled"] == pytest.approx(0.67, abs=0.02)


def test_a_program_without_the_api_trains_as_many_steps_as_it_takes_batches() -> None:
    dispatcher = Dispatcher("d")
    queue = QueueState(dequeued_per_second=3.0)
    for rank in (0, 1):
        report = ConsumerReport(name=f"c{rank}", address="h:1", rank=rank, taken=7, queue=queue)
        dispatcher.consumer(report, 0.0)
    sample = JobSampler(Coordinator(JobFacts(), identity="t"), dispatcher).measure(3.0, 1.0)
    assert (sample.step, sample.steps_per_second) == (7, 3.0)


def test_a_sample_says_what_the_share_group_does_and_names_none_but_its_own_pods() -> None:
    options = InputOptions(share=ShareOptions(group="sweep"))
    dispatcher = Dispatcher("d", lambda: options)
    totals = SharedTotals(made=10, taken=70, members=8)
    own = WorkerReport(name="own", rank=0, cpu_cores=1.0, shared=totals)
    dispatcher.worker(own, 0.0)
    dispatcher.worker(own, 0.0, guest=True)
    dispatcher.worker(own.model_copy(update={"name": "far", "rank": 1}), 0.0, guest=True)
    sampler = JobSampler(Coordinator(JobFacts(), identity="t"), dispatcher)
    sample = sampler.measure(3.0, 1.0)
    assert sample.share == ShareSample(
        group="sweep",
        members=8,
        data_workers=2,
        own_data_workers=1,
        cpu_cores=2.0,
        made=20,
        taken=140,
    )
    assert list(sample.roles[Role.DATA_WORKER]) == [0], "the other one is another job's"
    plain = SampleBatch(samples=[sample]).for_release_before()
    assert plain.samples[0].share is None


def test_what_another_job_says_of_its_data_workers_ends_no_trainer() -> None:
    options = InputOptions(share=ShareOptions(group="sweep"))
    dispatcher = Dispatcher("d", lambda: options)
    absurd = SharedTotals(made=1 << 63, taken=1 << 63, held_bytes=1 << 63, members=1 << 63)
    for number in range(3):
        guest = WorkerReport(name=f"w{number}", cpu_cores=100_000, shared=absurd)
        dispatcher.worker(guest, 0.0, guest=True)
    sample = JobSampler(Coordinator(JobFacts(), identity="t"), dispatcher).measure(3.0, 1.0)
    assert sample.share is not None
    assert (sample.share.made, sample.share.cpu_cores) == (EXACT_INT_MAX, 100_000)
