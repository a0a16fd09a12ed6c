"""The dispatcher introduces training processes and data workers, and forgets who is gone."""

from __future__ import annotations

import msgpack
import pytest

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.dispatcher import FORGET_SECONDS, Dispatcher, DispatcherFullError
from penstock.data.protocol import (
    ConsumerEntry,
    ConsumerReport,
    PartitionNote,
    ProtocolError,
    QueueState,
    WorkerReport,
    decode,
    encode,
)


def consumer(name: str, **fields: object) -> ConsumerReport:
    return ConsumerReport(name=name, address="127.0.0.1:1", **fields)


def test_a_data_worker_learns_whom_to_serve() -> None:
    books = Dispatcher("one")
    assert books.worker(WorkerReport(name="w"), 0.0).consumers == ()
    assert books.consumer(consumer("c"), 0.0).workers == 1
    assert [one.name for one in books.worker(WorkerReport(name="w"), 1.0).consumers] == ["c"]


def test_data_workers_of_stage_0_serve_those_of_stage_1_as_well() -> None:
    books = Dispatcher("one")
    books.consumer(consumer("c"), 0.0)
    entry = ConsumerEntry(name="relay", address="127.0.0.1:2")
    later = WorkerReport(name="v", stage=1, relay=entry)
    assert [one.name for one in books.worker(later, 0.0).consumers] == ["c"]
    first = WorkerReport(name="w")
    assert [one.name for one in books.worker(first, 0.0).consumers] == ["c", "relay"]
    assert [one.name for one in books.worker(first, 0.0, guest=True).consumers] == ["c"]
    late = FORGET_SECONDS + 1
    books.consumer(consumer("c"), late)
    assert [one.name for one in books.worker(first, late).consumers] == ["c"]


def test_a_data_worker_of_stage_0_says_what_the_release_before_understands() -> None:
    said = msgpack.unpackb(encode(WorkerReport(name="w")))
    assert not said.keys() & {"stage", "relay"}
    assert decode(WorkerReport, msgpack.packb(said)).stage == 0


def test_who_is_silent_or_says_goodbye_is_forgotten() -> None:
    books = Dispatcher("one")
    books.consumer(consumer("c"), 0.0)
    books.consumer(consumer("d"), 0.0)
    books.worker(WorkerReport(name="w"), 0.0)
    books.consumer(consumer("d", closed=True), 1.0)
    assert [one.name for one in books.consumers(1.0)] == ["c"]
    assert books.consumers(FORGET_SECONDS + 1) == []
    assert books.workers(FORGET_SECONDS + 1) == []


def test_asking_at_any_time_changes_no_later_answer() -> None:
    books = Dispatcher("one")
    books.consumer(consumer("c", taken=3, queue=QueueState(wait_share=0.5)), 0.0)
    books.worker(WorkerReport(name="w"), 0.0)
    late = FORGET_SECONDS + 1
    assert (books.consumers(late), books.workers(late), books.queue(late)) == ([], [], None)
    assert (books.wait_shares(late), books.batches_taken(late)) == ({}, 3)
    assert [one.name for one in books.consumers(1.0)] == ["c"]
    assert [one.name for one in books.workers(1.0)] == ["w"]
    books.expire(late)
    assert (books.consumers(1.0), books.workers(1.0)) == ([], [])


def test_a_dispatcher_that_lost_its_memory_has_it_back_after_one_report_of_each() -> None:
    books = Dispatcher("two")
    books.consumer(consumer("c"), 0.0)
    assert len(books.worker(WorkerReport(name="w"), 0.0).consumers) == 1


def test_queues_add_up_and_the_one_that_waits_most_counts() -> None:
    books = Dispatcher("one")
    assert books.queue(0.0) is None
    books.consumer(consumer("c", queue=QueueState(enqueued_per_second=2, wait_share=0.1)), 0.0)
    books.consumer(consumer("d", queue=QueueState(enqueued_per_second=3, wait_share=0.4)), 0.0)
    queue = books.queue(0.0)
    assert queue is not None
    assert (queue.enqueued_per_second, queue.wait_share) == (5, 0.4)


def test_the_number_of_participants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.dispatcher.MAX_WORKERS", 2)
    books = Dispatcher("one")
    books.worker(WorkerReport(name="a"), 0.0)
    books.worker(WorkerReport(name="b"), 0.0)
    books.worker(WorkerReport(name="a"), 1.0)
    with pytest.raises(DispatcherFullError, match="at most 2"):
        books.worker(WorkerReport(name="c"), 1.0)


def test_who_is_gone_takes_no_place_from_who_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.dispatcher.MAX_WORKERS", 1)
    books = Dispatcher("one")
    books.worker(WorkerReport(name="a"), 0.0)
    books.worker(WorkerReport(name="b"), FORGET_SECONDS + 1)
    assert [one.name for one in books.workers(FORGET_SECONDS + 1)] == ["b"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xc1", "not msgpack"),
        (encode(WorkerReport(name="w", version=9)), "version: 9"),
        (encode(consumer("c")), "WorkerReport.address"),
        (b"\x01", "WorkerReport"),
    ],
)
def test_a_malformed_report_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        decode(WorkerReport, body)


def test_the_waiting_is_known_by_the_rank_of_the_pod_and_batches_by_who_took_most() -> None:
    books = Dispatcher("one")
    assert books.wait_shares(0.0) == {}
    assert books.batches_taken(0.0) == 0
    for name, rank, share, taken in (("a", 0, 0.2, 7), ("b", 0, 0.6, 9), ("c", 1, 0.1, 8)):
        report = consumer(name, rank=rank, taken=taken, queue=QueueState(wait_share=share))
        books.consumer(report, 0.0)
    books.consumer(consumer("new", rank=2), 0.0)
    assert books.wait_shares(0.0) == {0: 0.6, 1: 0.1}
    assert books.batches_taken(0.0) == 9


def test_what_has_left_the_steps_is_known_until_a_successor_says_otherwise() -> None:
    books = Dispatcher("one")
    note = PartitionNote(name="the loader", state=Phase.ON, steps=4, moved=2)
    first, other = consumer("c", partition=(note,)), consumer("d", rank=1, partition=(note,))
    for one in (first, other):
        books.consumer(one, 0.0)
    assert books.partition(1.0) == [first, other]
    books.consumer(other.model_copy(update={"closed": True}), 2.0)
    assert books.partition(2.0) == [first]
    late = 2.0 + 2 * FORGET_SECONDS
    assert {one.name for one in books.partition(late)} == {"c", "d"}, "nobody is left: the last"
    again = consumer("e", partition=(note,))
    books.consumer(again, late)
    assert books.partition(late) == [again]
    books.consumer(again.model_copy(update={"closed": True}), late)
    books.consumer(consumer("f"), late)
    assert [one.name for one in books.partition(late)] == ["d"], "this one moves nothing"


def test_a_report_says_nothing_of_steps_of_which_nothing_is_asked() -> None:
    assert b"partition" not in encode(consumer("c")), "the release before refuses what is new"
