"""Past jobs with another placement policy, over REST: from what the Brain stored of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.api.replaying import MOST_ASKED, Replayer, ReplayTask
from penstock.brain.service.sample_writer import OverloadedError
from penstock.scheduler.capacity.replay import OutOfTimeError, RecordedJob, RecordedPods
from penstock.scheduler.capacity.workload import Workload
from tests.api.service import Api, api, sample
from tests.api.test_costs import BEGIN, GIB
from tests.api.test_forecasts import finish
from tests.api.test_what_if import push, refused
from tests.brain.brains import Clock
from tests.scheduler.capacity.clusters import cluster, hosted

HOUR = 3600.0


async def train(
    service: Api, clock: Clock, uid: str, at: float, cores: float, minutes: int, *, wait: int = 0
) -> None:
    """A job that comes at a time and has one pod, sampled every minute, after so many of them."""
    clock.now = at
    await service.register(uid, name=uid)
    pod = {"cpu_cores": 1, "cpu_limit_cores": cores, "memory_bytes": GIB}
    batch = [
        sample(at + 60 * (wait + index + 1) - 1, interval_seconds=60, roles={"worker": {"0": pod}})
        for index in range(minutes)
    ]
    clock.now = batch[-1]["time"] + 1
    answer = await service.http.post(f"/v1/jobs/{uid}/samples", json={"samples": batch})
    assert answer.status_code == 200, answer.text
    await finish(service, uid)


async def history(service: Api, clock: Clock, blocks: int) -> None:
    """Every two hours two jobs of four cores for an hour, and one of eight for ten minutes."""
    for block in range(blocks):
        at = BEGIN + 2 * HOUR * block
        await train(service, clock, f"one-{block}", at, 4, 60)
        await train(service, clock, f"two-{block}", at + 60, 4, 60)
        await train(service, clock, f"whole-{block}", at + 120, 8, 10, wait=1)
        clock.now = at + 1.5 * HOUR
        await service.brain.sweeper.sweep()


async def ask(service: Api, status: int = 200, **question: Any) -> dict[str, Any]:
    answer = await service.http.post("/v1/cluster/replay", json=question)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def two_nodes() -> Workload:
    return cluster([hosted("a", 8), hosted("b", 8)])


def test_a_policy_that_spreads_makes_jobs_wait_that_did_not(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            await history(service, clock, 8)
            await service.register("mute", name="mute")
            clock.now = BEGIN + 18 * HOUR
            await push(service, two_nodes(), clock.now)
            found = await ask(service, policy="spread", hours=19)
            assert (found["policy_before"], found["policy"]) == ("stranding", "spread")
            assert (found["jobs"], found["ended"], found["never"]) == (24, 24, 0)
            assert (found["silent"], found["running_before"]) == (1, 0)
            assert (found["earlier"], found["later"], found["repetitions"]) == (0, 8, 8)
            assert found["waited_jobs"]["before"]["value"] == 0
            assert found["waited_jobs"]["after"]["value"] == 8
            # Each of them waits until the first of four cores ends: an hour less two minutes.
            wait = found["mean_wait_seconds"]
            assert wait["change"]["value"] == pytest.approx(8 * 58 * 60 / 24, rel=0.01)
            assert wait["change"]["low"] > 0
            assert wait["before"]["value"] + wait["change"]["value"] == wait["after"]["value"]
            completion = found["mean_completion_seconds"]["change"]["value"]
            assert completion == pytest.approx(wait["change"]["value"])
            # As recorded: a third of the jobs had their first sample in the minute after the next.
            assert found["recorded_mean_wait_seconds"] == pytest.approx(60 / 3, abs=1)
            assert any("nodes of now" in note for note in found["notes"])
            assert any("sent no sample" in note for note in found["notes"])
            part = await ask(service, policy="most", hours=19)
            assert any("does not tell them apart" in note for note in part["notes"])

    asyncio.run(run())


def test_jobs_of_before_take_room_and_the_rest_of_their_time(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            await history(service, clock, 8)
            clock.now = BEGIN + 17 * HOUR
            recorded = await service.brain.recorded.read(BEGIN + 600, clock.now)
            first = recorded.jobs[0]
            assert first.registered_seconds < BEGIN + 600
            assert first.train_seconds == pytest.approx(50 * 60)
            assert (first.roles["worker"].count, first.roles["worker"].milli_cpu) == (1, 4000)
            whole = next(job for job in recorded.jobs if job.uid == "whole-3")
            assert whole.train_seconds == pytest.approx(600)
            assert whole.began_seconds - whole.registered_seconds == 60
            assert whole.ended

    asyncio.run(run())


def test_a_thin_history_is_told_and_no_figure_is(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            found = await ask(service, 404, policy="most")
            assert found["type"] == "urn:penstock:problem:no-workload"
            await history(service, clock, 2)
            await push(service, two_nodes(), clock.now)
            found = await ask(service, 422, policy="most", hours=24)
            assert found["type"] == "urn:penstock:problem:history"
            assert "hours = 24: 6 jobs came in this time and trained" in found["detail"]
            assert "penstock sim fgd" in found["detail"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({}, "policy"),
        ({"policy": "best"}, "another one is one of random, bestfit, fgd, spread, most"),
        ({"policy": "stranding"}, "the scheduler places by 'stranding'"),
        ({"policy": "most", "hours": 0}, "hours"),
        ({"policy": "most", "hours": 10_000}, "hours"),
        ({"policy": "m" * 40}, "policy"),
    ],
)
def test_what_makes_no_sense_is_refused(
    sqlite_url: str, question: dict[str, Any], said: str
) -> None:
    asyncio.run(refused(sqlite_url, "/v1/cluster/replay", question, said))


def test_no_jobs_make_no_difference() -> None:
    task = ReplayTask(
        nodes=two_nodes().nodes, jobs=[], before="stranding", after="most", span_seconds=HOUR
    )

    async def run() -> None:
        found = await Replayer().run(task)
        assert (found.jobs, found.repetitions) == (0, 8)

    asyncio.run(run())


def test_out_of_time_is_told_across_the_process() -> None:
    pods = RecordedPods(count=1, milli_cpu=1000, memory_bytes=GIB)
    job = RecordedJob(uid="j", arrived_seconds=1.0, train_seconds=5.0, pods=(pods,))
    task = ReplayTask(
        nodes=two_nodes().nodes, jobs=[job], before="stranding", after="most", span_seconds=HOUR
    )

    async def run() -> None:
        with pytest.raises(OutOfTimeError):
            await Replayer().run(task, budget_seconds=0.0)

    asyncio.run(run())


def test_more_askers_than_a_few_are_sent_away() -> None:
    task = ReplayTask(
        nodes=two_nodes().nodes, jobs=[], before="stranding", after="most", span_seconds=HOUR
    )

    async def run() -> None:
        replayer = Replayer()
        asked = [asyncio.create_task(replayer.run(task)) for _ in range(MOST_ASKED + 1)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        away = [one for one in found if isinstance(one, OverloadedError)]
        assert len(away) == 1
        assert len(found) - len(away) == MOST_ASKED
        assert all(getattr(one, "jobs", None) == 0 for one in found if one not in away)
        again = await replayer.run(task)
        assert again.jobs == 0, "those that are done leave room"

    asyncio.run(run())
