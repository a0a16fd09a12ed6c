"""What jobs say of the group that they share batches with: kept, planned with, and shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from prometheus_client import generate_latest

from penstock.base.enums import JobPhase, Trigger
from penstock.brain.model.share_figures import ShareFigures, load
from penstock.brain.service.samples import Reading
from tests.brain.brains import START, Clock, open_brain, reading, registration

FIGURES = ShareFigures(
    group="sweep",
    members=3,
    data_workers=4,
    own_data_workers=1,
    milli_cpu=1500.0,
    made=100,
    taken=280,
    lag_tiles=7,
)


def shared(at: float, rate: float, figures: ShareFigures = FIGURES) -> Reading:
    return replace(
        reading(at),
        enqueued_per_second=rate,
        dequeued_per_second=rate,
        ideal_per_second=rate,
        share=figures,
    )


def test_a_job_is_planned_for_with_all_members_of_its_group(database_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(database_url, clock=clock) as brain:
            for uid, space in (("uid-b", "default"), ("uid-a", "default"), ("uid-c", "far")):
                await brain.jobs.register(registration(uid, name=uid, namespace=space))
                await brain.samples.add(uid, [shared(START, 20.0)])
            await brain.jobs.register(registration("uid-d", name="uid-d"))
            await brain.samples.add("uid-d", [shared(START, 90.0, replace(FIGURES, group="o"))])
            await brain.jobs.register(registration("uid-e", name="uid-e"))
            await brain.samples.add("uid-e", [reading(START)])
            clock.advance(5)
            await brain.samples.add("uid-b", [shared(clock.now, 30.0)])

            async def members(uid: str) -> list[tuple[str, float, int]]:
                loaded = await brain.planner.load(uid, Trigger.INTERVAL)
                return [
                    (one.uid, one.batches_per_second, one.data_workers)
                    for one in loaded.case.record.history().group
                ]

            assert await members("uid-a") == [("uid-a", 20.0, 1), ("uid-b", 30.0, 1)]
            assert await members("uid-c") == [("uid-c", 20.0, 1)]
            assert await members("uid-e") == []
            row = await brain.jobs.get("uid-a")
            assert await brain.samples.share_group(row) == (FIGURES, ["uid-a", "uid-b"])
            await brain.jobs.finish("uid-b", JobPhase.SUCCEEDED, "")
            assert await members("uid-a") == [("uid-a", 20.0, 1)], "one that has ended is none"
            clock.advance(120)
            assert await members("uid-a") == [], "nor one that is silent"
            assert await brain.samples.share_group(row) is None

    asyncio.run(run())


def test_a_group_is_on_the_metrics_once_and_each_members_lag(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_brain(sqlite_url, clock=clock) as brain:
            for uid, taken in (("uid-a", 200), ("uid-b", 280)):
                await brain.jobs.register(registration(uid, name=uid))
                figures = replace(FIGURES, taken=taken)
                await brain.samples.add(uid, [shared(START, 20.0, figures)])
            await brain.samples.observe()
            shown = generate_latest(brain.metrics.registry).decode()
            assert 'penstock_share_made{group="sweep",namespace="default"} 100.0' in shown
            assert 'penstock_share_taken{group="sweep",namespace="default"} 280.0' in shown
            assert (
                'penstock_share_lag_tiles{group="sweep",job="uid-a",namespace="default"} 7.0'
                in (shown)
            )
            ratio = 'penstock_share_shared_ratio{group="sweep",namespace="default"} 0.64'
            assert ratio in shown
            clock.advance(300)
            await brain.samples.observe()
            assert "penstock_share_made{" not in generate_latest(brain.metrics.registry).decode()

    asyncio.run(run())


def test_figures_that_another_release_wrote_are_none() -> None:
    assert load(FIGURES.dump()) == FIGURES
    assert load(None) is None
    assert load("{}") is None
    assert load("no JSON") is None
    assert ShareFigures(group="g").shared_ratio == 0.0
