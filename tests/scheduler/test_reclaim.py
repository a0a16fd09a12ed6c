from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.reclaim import DataWorker, Reclaim, Surplus, reclaim


def worker(pod: str, job: str, key: float, of_job: int = 2, **more: float) -> DataWorker:
    return DataWorker(pod, job, 8000, key, of_job, **more)


def pods(plan: Reclaim | None) -> tuple[list[str], list[str], list[str]]:
    assert plan is not None
    return (
        [part.pod for part in plan.shrink],
        [part.pod for part in plan.move],
        [part.pod for part in plan.drain],
    )


def test_surplus_comes_first_and_only_as_much_as_is_needed() -> None:
    plan = reclaim(
        6000, [Surplus("a", 5000), Surplus("b", 3000)], [worker("w", "j", 1)], lambda _: True
    )
    assert plan is not None
    assert plan.shrink == (Surplus("a", 5000), Surplus("b", 1000))
    assert plan.freed_milli_cpu == 6000


def test_then_workers_move_and_then_they_go_largest_key_first() -> None:
    workers = [worker("low", "a", 1.0), worker("high", "b", 3.0), worker("middle", "c", 2.0)]
    plan = reclaim(16_000, [], workers, lambda found: found.pod == "low")
    assert pods(plan) == ([], ["low"], ["high"])


def test_a_job_that_was_moved_lately_is_not_moved_again() -> None:
    lately = worker("w", "a", 1.0, moved_seconds_ago=299.0)
    assert pods(reclaim(8000, [], [lately], lambda _: True)) == ([], [], ["w"])


def test_the_last_worker_of_a_job_is_spared_while_another_will_do() -> None:
    workers = [worker("only", "a", 9.0, of_job=1), worker("one", "b", 1.0), worker("two", "b", 1.0)]
    assert pods(reclaim(8000, [], workers, lambda _: False)) == ([], [], ["one"])
    assert pods(reclaim(24_000, [], workers, lambda _: False))[2] == ["one", "only", "two"]


def test_nobody_gives_anything_up_in_vain() -> None:
    asked: list[str] = []

    def elsewhere(found: DataWorker) -> bool:
        asked.append(found.pod)
        return True

    assert reclaim(9000, [Surplus("a", 500)], [worker("w", "j", 1.0)], elsewhere) is None
    assert asked == []


WORKERS = st.lists(
    st.builds(
        DataWorker,
        st.uuids().map(str),
        st.sampled_from("abc"),
        st.integers(1000, 8000),
        st.floats(0, 10),
        st.integers(1, 4),
    ),
    max_size=8,
)


@given(milli_cpu=st.integers(0, 40_000), workers=WORKERS, movable=st.booleans())
def test_a_plan_frees_enough_and_takes_each_pod_once(
    milli_cpu: int, workers: list[DataWorker], movable: bool
) -> None:
    plan = reclaim(milli_cpu, [Surplus("s", 2000)], workers, lambda _: movable)
    there = 2000 + sum(found.milli_cpu for found in workers)
    assert (plan is None) == (milli_cpu > there)
    if plan is not None:
        assert plan.freed_milli_cpu >= milli_cpu
        taken = [*(part.pod for part in plan.move), *(part.pod for part in plan.drain)]
        assert len(taken) == len(set(taken))
