"""Data workers of all members of a share group serve the training processes of all members."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.data import Loader
from penstock.data.dispatcher import FORGET_SECONDS, Dispatcher
from penstock.data.protocol import (
    ConsumerEntry,
    ConsumerReport,
    InputOptions,
    SharedTotals,
    ShareOptions,
    WorkerReply,
    WorkerReport,
    decode,
    encode,
)
from penstock.data.serving import group_reports
from penstock.data.serving.group_reports import MAX_MEMBERS, GroupReports
from tests.data import groups
from tests.data.groups import GROUP_TOKEN, Group, Job
from tests.data.planes import Noise, eventually, same

pytestmark = pytest.mark.slow

REPORT = WorkerReport(name="w")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with groups.sharing(tmp_path) as made:
        yield made


def served(job: Job, count: int) -> Callable[[], bool]:
    """Whether so many data workers are connected to a job's training process."""
    return lambda: len(job.consumer.workers) == count


def heard_at(job: Job) -> float:
    """When a data worker, of whichever job, last reported to a job's dispatcher."""
    books = job.served.dispatcher
    return max(seen.at for seen in [*books._guests.values(), *books._workers.values()])


def heard_after(job: Job, moment: float) -> Callable[[], bool]:
    """Whether one has reported since."""
    return lambda: heard_at(job) > moment


def test_a_member_without_data_workers_is_served_by_those_of_another(group: Group) -> None:
    rich, poor = Job(group, "rich"), Job(group, "poor")
    rich.add_worker()
    for one in (rich, poor):
        eventually(served(one, 1), 60)
    expected = list(Loader(Noise(), 4, seed=7))

    def made_by_the_others() -> bool:
        got = list(Loader(Noise(seconds=0.005), 4, seed=7, consumer=poor.consumer))
        assert same(got, expected)
        return poor.consumer.counts.arrived > 0

    eventually(made_by_the_others, 60)  # at first it may still be loading its modules
    now = time.monotonic()
    assert [len(poor.served.dispatcher.workers(now)), len(poor.served.dispatcher.guests(now))] == [
        0,
        1,
    ]
    assert [len(rich.served.dispatcher.workers(now)), len(rich.served.dispatcher.guests(now))] == [
        1,
        0,
    ]


def test_a_member_that_ends_takes_its_own_data_workers_and_no_other(group: Group) -> None:
    ends, stays = Job(group, "ends"), Job(group, "stays")
    ends.add_worker()
    stays.add_worker()
    for one in (ends, stays):
        eventually(served(one, 2), 60)
    loader = Loader(Noise(400, seconds=0.002), 4, seed=7, consumer=stays.consumer)
    batches = iter(loader)
    got = [next(batches) for _ in range(10)]
    ends.end()
    eventually(served(stays, 1), 30)
    got += list(batches)
    assert same(got, list(Loader(Noise(400), 4, seed=7)))


def test_a_member_that_joins_is_served_by_all_who_are_there(group: Group) -> None:
    first = Job(group, "first")
    first.add_worker()
    eventually(served(first, 1), 60)
    late = Job(group, "late")
    eventually(served(late, 1), 30)


def test_a_dispatcher_that_does_not_answer_holds_up_no_other(group: Group) -> None:
    job, other = Job(group, "job"), Job(group, "other")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        group.update(f"127.0.0.1:{silent.getsockname()[1]}")
        job.add_worker()
        eventually(served(other, 1), 60)
        for _ in range(3):  # it goes on reporting to both, again and again
            for one in (job, other):
                eventually(heard_after(one, heard_at(one)), 10)
        group.update()


# ------------------------------------------------------------------ the parts


def share(name: str = "sweep") -> InputOptions:
    return InputOptions(share=ShareOptions(group=name))


def test_guests_are_told_whom_to_serve_and_are_none_of_the_jobs() -> None:
    books = Dispatcher("one", share)
    books.consumer(ConsumerReport(name="c", address="h:1"), 0.0)
    assert [one.name for one in books.worker(REPORT, 0.0, guest=True).consumers] == ["c"]
    assert (books.workers(0.0), [one.name for one in books.guests(0.0)]) == ([], ["w"])
    assert books.consumer(ConsumerReport(name="c", address="h:1"), 1.0).workers == 1
    books.worker(REPORT, 1.0)  # it is the job's own after all: it reports twice
    assert ([one.name for one in books.workers(1.0)], books.guests(1.0)) == (["w"], [])
    assert books.consumer(ConsumerReport(name="c", address="h:1"), 1.0).workers == 1
    books.worker(REPORT.model_copy(update={"leaving": True}), 2.0)
    assert [one.name for one in books.guests(2.0)] == ["w"]
    assert books.guests(2.0 + FORGET_SECONDS) == []


def test_what_a_group_does_is_summed_up_over_all_data_workers() -> None:
    books = Dispatcher("one", share)
    own = SharedTotals(made=10, taken=70, evicted=1, members=8, held_bytes=100)
    books.worker(WorkerReport(name="a", cpu_cores=0.5, shared=own), 0.0)
    books.worker(WorkerReport(name="a", cpu_cores=0.5, shared=own), 0.0, guest=True)
    far = SharedTotals(made=5, taken=35, members=7, held_bytes=50)
    books.worker(WorkerReport(name="b", cpu_cores=1.0, shared=far), 0.0, guest=True)
    books.worker(WorkerReport(name="plain"), 0.0)
    books.consumer(ConsumerReport(name="c", address="h:1", share_group="sweep", lag_tiles=4), 0.0)
    books.consumer(ConsumerReport(name="d", address="h:1"), 0.0)
    found = books.group(1.0)
    assert found is not None
    assert (found.name, found.members, found.data_workers, found.own_data_workers) == (
        "sweep",
        8,
        3,
        2,
    )
    assert (found.made, found.taken, found.evicted, found.held_bytes) == (15, 105, 1, 150)
    assert (found.cpu_cores, found.lag_tiles) == (1.5, 4)
    assert Dispatcher("two").group(1.0) is None


def test_without_a_group_the_words_are_those_of_the_release_before() -> None:
    assert b"shared" not in encode(WorkerReport(name="w"))
    plain = encode(ConsumerReport(name="c", address="h:1"))
    assert b"share_group" not in plain
    assert b"lag_tiles" not in plain
    said = WorkerReport(name="w", shared=SharedTotals(made=1))
    assert decode(WorkerReport, encode(said)) == said


def entries(*names: str) -> tuple[ConsumerEntry, ...]:
    return tuple(ConsumerEntry(name=one, address="h:1") for one in names)


def test_reports_wait_for_nobody_not_even_for_a_resolver() -> None:
    asked, go = threading.Event(), threading.Event()

    def look_up(host: str, port: int) -> set[str]:
        asked.set()
        go.wait(20)
        return set()

    reports = GroupReports("group", 1, GROUP_TOKEN, look_up)
    assert reports.report(REPORT) == ()
    assert asked.wait(20)
    began = threading.active_count()
    for _ in range(50):
        assert reports.report(REPORT) == ()
    assert threading.active_count() <= began, "one look-up at a time"
    go.set()
    reports.leave(REPORT.model_copy(update={"leaving": True}))


def test_a_name_that_cannot_be_resolved_costs_nobody_who_is_known() -> None:
    answers: list[set[str] | OSError] = []
    with groups.serving("job") as served:
        served.dispatcher.consumer(ConsumerReport(name="c", address="h:1"), time.monotonic())
        answers = [{served.address}, *(OSError("no such name") for _ in range(1000))]
        reports = GroupReports("group", 1, GROUP_TOKEN, lambda *_: _next(answers))
        eventually(lambda: [one.name for one in reports.report(REPORT)] == ["c"])
        left = len(answers)
        eventually(lambda: reports.report(REPORT) is not None and len(answers) < left - 3)
        assert [one.name for one in reports.report(REPORT)] == ["c"]
        reports.leave(REPORT.model_copy(update={"leaving": True}))
        assert served.dispatcher.guests(time.monotonic()) == [], "it was told"


def _next(answers: list[set[str] | OSError]) -> set[str]:
    answer = answers.pop(0)
    if isinstance(answer, OSError):
        raise answer
    return answer


def test_no_more_members_are_told_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    told: set[str] = set()

    class Counting:
        def __init__(self, address: str, token: str, **_: object) -> None:
            self.address = address

        def report(self, path: str, message: object, reply: type[WorkerReply]) -> WorkerReply:
            told.add(self.address)
            return WorkerReply(dispatcher=self.address, consumers=entries(self.address))

        def close(self) -> None:
            return

    monkeypatch.setattr(group_reports, "Reporter", Counting)
    everybody = {f"10.0.0.{number}:1" for number in range(MAX_MEMBERS + 40)}
    reports = GroupReports("group", 1, GROUP_TOKEN, lambda *_: everybody)
    eventually(lambda: len(reports.report(REPORT)) == MAX_MEMBERS)
    assert len(told) == MAX_MEMBERS
    reports.leave(REPORT.model_copy(update={"leaving": True}))
    assert reports.report(REPORT) == ()
