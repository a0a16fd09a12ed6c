"""Whoever subscribes before looking misses nothing, and nothing is left behind."""

from __future__ import annotations

import asyncio

from penstock.brain.control.plan_subscribers import PlanSubscribers


def test_a_change_between_looking_and_waiting_is_seen() -> None:
    async def run() -> None:
        watchers = PlanSubscribers()
        with watchers.subscribed("a") as changed:
            changed.clear()
            watchers.wake("a")  # while the subscriber looks
            await asyncio.wait_for(changed.wait(), 1)

    asyncio.run(run())


def test_only_the_jobs_own_watchers_wake_and_all_of_them() -> None:
    watchers = PlanSubscribers()
    with (
        watchers.subscribed("a") as one,
        watchers.subscribed("a") as two,
        watchers.subscribed("b") as other,
    ):
        assert (len(watchers), sorted(watchers.jobs())) == (3, ["a", "b"])
        watchers.wake("a")
        assert (one.is_set(), two.is_set(), other.is_set()) == (True, True, False)
        watchers.wake_all()
        assert other.is_set()
    assert (len(watchers), watchers.jobs()) == (0, [])


def test_a_revision_of_another_brain_wakes_once() -> None:
    watchers = PlanSubscribers()
    with watchers.subscribed("a") as changed:
        watchers.notice({"a": 1, "b": 1})
        changed.clear()
        watchers.notice({"a": 1})
        assert not changed.is_set()
        watchers.notice({"a": 2})
        assert changed.is_set()
