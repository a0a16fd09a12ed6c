"""Waste by name: repeated work of jobs, and all that the nodes had, which the parts add up to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.service import Api, api, sample
from tests.api.test_costs import BEGIN, GIB, PRICED
from tests.brain.brains import Clock

NODES, CORES, GPUS = 4, 8, 4


def pods(count: int, *, used: float, cores: float) -> dict[str, Any]:
    pod = {
        "cpu_cores": used,
        "cpu_limit_cores": cores,
        "memory_bytes": 8 * GIB,
        "memory_limit_bytes": 8 * GIB,
        "gpus": 2,
        "gpu_utilization": 0.5,
    }
    return {"worker": {str(rank): pod for rank in range(count)}}


async def steps(
    service: Api, clock: Clock, uid: str, reached: list[int], roles: dict[str, Any], at: float
) -> None:
    """A job that has reached these steps, one every 15 s."""
    await service.register(uid, name=uid)
    batch = [
        sample(
            at + 15 * (index + 1) - 1,
            interval_seconds=15,
            step=step,
            samples_per_second=32.0,
            roles=roles,
        )
        for index, step in enumerate(reached)
    ]
    for start in range(0, len(batch), 40):
        part = batch[start : start + 40]
        clock.now = max(clock.now, part[-1]["time"] + 1)
        answer = await service.http.post(f"/v1/jobs/{uid}/samples", json={"samples": part})
        assert answer.status_code == 200, answer.text


async def show(service: Api, now: float, busy: int, *, bound: int = 0) -> None:
    """Four nodes with eight cores and four accelerators; pods with all of a node's cores and two
    of its accelerators on ``busy`` of them, and others on ``bound`` more that hold cores alone."""
    nodes = []
    for index in range(NODES):
        taken, eaten = index < busy, busy <= index < busy + bound
        nodes.append(
            {
                "name": f"n{index}",
                "milli_cpu": 1000 * CORES,
                "free_milli_cpu": 0 if taken or eaten else 1000 * CORES,
                "memory_bytes": 16 * GIB,
                "free_memory_bytes": 8 * GIB if taken else 16 * GIB,
                "accelerators": GPUS,
                "free_accelerators": 2 if taken else GPUS,
                "fragmentation": -0.5 if taken else -1 if eaten else 0,
            }
        )
    body = {
        "time": now,
        "stranded_gpus": 2 * busy + GPUS * bound,
        "stranded_cpu_cores": 0,
        "nodes": nodes,
    }
    answer = await service.http.put("/v1/cluster/snapshot", json=body)
    assert answer.status_code == 204, answer.text


def test_work_that_is_done_again_is_named_and_not_idle(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            roles = pods(2, used=6, cores=8)
            # It fails at 200 and goes on from 120 in the fifth sample: the next four train again.
            reached = [50, 100, 150, 200, 120, 140, 160, 180, 200, 250, 300]
            await steps(service, clock, "fails", reached[:6], roles, BEGIN)
            await service.brain.sweeper.sweep()
            await steps(service, clock, "fails", reached, roles, BEGIN)
            await steps(service, clock, "clean", list(range(10, 120, 10)), roles, BEGIN)
            for late in (200, 1500):  # minutes first, ten minutes after
                clock.now = BEGIN + late
                await service.brain.sweeper.sweep()
                bill = (await service.http.get("/v1/costs")).json()
                lines = {line["job"]: line for line in bill["lines"]}
                again = 4 * 15 * 2  # seconds of pods
                assert lines["fails"]["repeated_core_seconds"] == pytest.approx(6 * again)
                assert lines["fails"]["repeated_accelerator_seconds"] == pytest.approx(again)
                assert lines["fails"]["repeated_cost"] == pytest.approx(6 * again)
                assert lines["clean"]["repeated_core_seconds"] == 0
                whole = lines["fails"]["core_seconds"]
                assert whole == pytest.approx(8 * 11 * 15 * 2)
                assert lines["fails"]["idle_core_seconds"] == pytest.approx(whole / 4)

    asyncio.run(run())


def test_the_parts_add_up_to_what_the_nodes_had(sqlite_url: str) -> None:
    """Half an hour: two nodes train for all of it, a third for ten minutes, others hold the
    fourth's cores for the last ten."""

    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            for tick in range(181):  # as often as a scheduler does
                now = 10.0 * tick
                clock.now = BEGIN + now
                busy = 3 if 600 < now <= 1200 else 2
                await show(service, BEGIN + now, busy, bound=1 if now > 1200 else 0)
            roles = pods(2, used=4, cores=8)
            # A failure on the way: of 120 samples the sixtieth goes back by 20 steps of 10 each.
            reached = [10 * (i + 1) for i in range(59)] + [10 * (i + 40) for i in range(61)]
            await steps(service, clock, "long", reached, roles, BEGIN)
            short = pods(1, used=8, cores=8)
            await steps(service, clock, "short", list(range(1, 41)), short, BEGIN + 600)
            clock.now = BEGIN + 1800 + 130
            await service.brain.sweeper.sweep()
            span = {"start": BEGIN, "end": BEGIN + 1800}
            found = (await service.http.get("/v1/costs/nodes", params=span)).json()
            assert (found["start"], found["end"]) == (BEGIN, BEGIN + 1800)
            assert found["covered_seconds"] == pytest.approx(1800)
            assert found["node_seconds"] == pytest.approx(NODES * 1800, rel=1e-3)
            total, parts = found["total"], found["parts"]
            assert total["core_seconds"] == pytest.approx(NODES * CORES * 1800, rel=1e-3)
            assert total["accelerator_seconds"] == pytest.approx(NODES * GPUS * 1800, rel=1e-3)
            for name in ("core_seconds", "gib_seconds", "accelerator_seconds", "cost"):
                together = sum(part[name] for part in parts.values())
                assert together == pytest.approx(total[name], rel=1e-3)
            cores = {name: part["core_seconds"] for name, part in parts.items()}
            # By hand: two pods for 1,800 s and one for 600, half of the first two idle.
            assert cores["Idle"] == pytest.approx(2 * 4 * 1800, rel=1e-3)
            assert cores["Repeated"] == pytest.approx(2 * 4 * 19 * 15, rel=1e-3)
            assert cores["Used"] + cores["Repeated"] == pytest.approx(
                2 * 4 * 1800 + 8 * 600, rel=1e-3
            )
            assert cores["Others"] == pytest.approx(8 * 600, rel=1e-3)
            assert cores["Stranded"] == 0
            gpus = {name: part["accelerator_seconds"] for name, part in parts.items()}
            assert gpus["Stranded"] == pytest.approx(2 * 2 * 1800 + 2 * 600 + 4 * 600, rel=1e-3)
            assert gpus["Others"] == pytest.approx(0, abs=1e-3 * total["accelerator_seconds"])

    asyncio.run(run())


def test_what_was_not_shown_is_not_covered_and_without_anything_there_is_no_bill(
    sqlite_url: str,
) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            clock.now = BEGIN + 3600
            answer = await service.http.get("/v1/costs/nodes")
            assert answer.status_code == 422
            assert answer.json()["type"] == "urn:penstock:problem:history"
            assert "the scheduler has shown no nodes" in answer.text
            for at in (0.0, 10.0, 1000.0, 1000.0, 990.0):  # silent between, once more, and late
                await show(service, BEGIN + at, 0)
            found = (await service.http.get("/v1/costs/nodes")).json()
            assert found["covered_seconds"] == pytest.approx(10 + 120)
            assert found["node_seconds"] == pytest.approx(NODES * 130)
            assert found["total"].get("cost") is None
            assert (await service.http.get("/v1/costs/nodes?start=9&end=8")).status_code == 422

    asyncio.run(run())
