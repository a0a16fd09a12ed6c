from __future__ import annotations

from dataclasses import replace

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


def accelerated(pod: str, job: str = "a", key: float = 0.0, **more: float) -> DataWorker:
    return replace(worker(pod, job, key, **more), accelerators=1)


def test_accelerated_data_workers_are_the_first_to_go() -> None:
    workers = [worker("cpu", "b", 9.0), accelerated("gpu", of_job=1)]
    plan = reclaim(8000, [], workers, lambda _: False, accelerators=1)
    assert pods(plan) == ([], [], ["gpu"]), "it frees the cores as well"
    assert plan is not None
    assert plan.freed_accelerators == 1
    plan = reclaim(8000, [], workers, lambda _: False, accelerators=0)
    assert pods(plan)[2] == ["cpu"], "the last one of a job stays while others will do"
    two = [worker("cpu", "b", 9.0), accelerated("gpu", of_job=2)]
    assert pods(reclaim(8000, [], two, lambda _: False, accelerators=0))[2] == ["gpu"]
    assert pods(reclaim(8000, [], two, lambda _: True, accelerators=0))[1] == ["gpu"]


def test_they_stay_where_nobody_wants_an_accelerator() -> None:
    workers = [worker("cpu", "b", 0.0, of_job=1), accelerated("gpu", key=9.0, of_job=5)]
    assert pods(reclaim(8000, [], workers, lambda _: False)) == ([], [], ["cpu"])
    assert reclaim(9000, [], workers, lambda _: False) is None


def test_as_many_go_as_accelerators_are_lacking_and_their_cores_spare_a_surplus() -> None:
    workers = [accelerated("x", key=1.0), accelerated("y", key=3.0), accelerated("z", key=2.0)]
    plan = reclaim(4000, [Surplus("s", 4000)], workers, lambda _: False, accelerators=2)
    assert pods(plan) == ([], [], ["y", "z"])
    plan = reclaim(18_000, [Surplus("s", 4000)], workers, lambda _: False, accelerators=2)
    assert pods(plan) == (["s"], [], ["y", "z"])
    assert reclaim(0, [], workers, lambda _: False, accelerators=4) is None


WORKERS = st.lists(
    st.builds(
        DataWorker,
        st.uuids().map(str),
        st.sampled_from("abc"),
        st.integers(1000, 8000),
        st.floats(0, 10),
        st.integers(1, 4),
        accelerators=st.integers(0, 1),
    ),
    max_size=8,
)


@given(
    milli_cpu=st.integers(0, 40_000),
    lacking=st.none() | st.integers(0, 4),
    workers=WORKERS,
    movable=st.booleans(),
)
def test_it_is_enough_and_no_accelerator_is_given_up_that_nobody_needs(
    milli_cpu: int, lacking: int | None, workers: list[DataWorker], movable: bool
) -> None:
    plan = reclaim(
        milli_cpu, [Surplus("s", 2000)], workers, lambda _: movable, accelerators=lacking
    )
    able = [one for one in workers if lacking is not None or not one.accelerators]
    there = 2000 + sum(one.milli_cpu for one in able)
    enough = milli_cpu <= there and (lacking or 0) <= sum(one.accelerators for one in able)
    assert (plan is not None) == enough
    if plan is None:
        return
    taken = [*plan.move, *plan.drain]
    assert len({one.pod for one in taken}) == len(taken)
    assert plan.freed_milli_cpu >= milli_cpu
    assert plan.freed_accelerators >= (lacking or 0)
    if lacking is None:
        assert not plan.freed_accelerators
    if not milli_cpu:
        assert plan.freed_accelerators == (lacking or 0)
        assert all(one.accelerators for one in taken)
    if any(not one.accelerators for one in plan.move) and movable:
        assert all(one in taken for one in able if one.accelerators), "they move first"
