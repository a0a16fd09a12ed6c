"""Jobs that share batches, interval by interval: what feeds the fastest member feeds them all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.scheduler.model.job_view import read_job
from penstock.scheduler.model.signals import QueueSignals
from penstock.scheduler.planner.planner import Planner
from penstock.scheduler.planner.share_groups import Having, members_by_job, parts
from penstock.scheduler.tuning import Predicted, Stage
from tests.scheduler.planner.documents import job, node, pod
from tests.scheduler.planner.test_allocation_rounds import Life

SHARE = {"share": {"group": "sweep"}}
NAMES = [f"j{number}" for number in range(8)]


class Shared(Life):
    """Jobs whose data workers feed all of them; each makes one batch for all who take it."""

    predicted: Predicted | None = None
    waits: str = ""  # who waits for data whatever there is

    def report(self, name: str) -> QueueSignals:
        cores = sum(workers * size for workers, size in self.data.values())
        rate = min(self.ideal[name], self.per_core[name] * max(cores, 1))
        wanted = 2 * rate if name == self.waits else self.ideal[name]
        said = QueueSignals(self.now, 100, rate, rate, wanted)
        return replace(said, predicted=self.predicted)

    @property
    def workers(self) -> int:
        return sum(count for count, _ in self.data.values())

    def cores(self) -> int:
        return sum(count * size for count, size in self.data.values())


def grown(names: list[str], predicted: Predicted | None, **options: object) -> Shared:
    life = Shared(node("cpu", "512"))
    life.predicted = predicted
    for name in names:
        life.add(name, input=SHARE, **options)  # type: ignore[arg-type]  # numbers, all of them
    for _ in range(60):
        life.interval()
    return life


@pytest.mark.parametrize(
    "predicted",
    [None, Predicted(data_workers=8, cores=1, throughput=8.0, why="a model says so")],
    ids=["by trial", "by a model"],
)
def test_eight_members_alike_get_what_one_gets(predicted: Predicted | None) -> None:
    one = grown(NAMES[:1], predicted, ideal=80.0, per_core=10.0)
    eight = grown(NAMES, predicted, ideal=80.0, per_core=10.0)
    assert one.cores() == 8
    assert eight.cores() <= 1.1 * one.cores()
    for name in NAMES:
        assert eight.report(name).throughput == pytest.approx(80.0), "and all are fed"


def test_a_model_has_them_all_there_in_one_interval() -> None:
    life = Shared(node("cpu", "512"))
    life.predicted = Predicted(data_workers=8, cores=1, throughput=8.0, why="a model says so")
    for name in NAMES:
        life.add(name, ideal=80.0, per_core=10.0, input=SHARE)
    life.interval()
    assert {count for count, _ in life.data.values()} == {1}
    assert life.tuning(NAMES[0]).stage is Stage.PREDICTED
    assert "for the 8 jobs of its share group" in life.tuning(NAMES[0]).why


def test_by_trial_one_member_grows_at_a_time() -> None:
    life = Shared(node("cpu", "512"))
    for name in NAMES:
        life.add(name, ideal=80.0, per_core=10.0, input=SHARE)
    for _ in range(4):
        before = life.cores()
        life.interval()
        assert life.cores() <= before + 1


def test_jobs_of_other_groups_and_namespaces_are_on_their_own() -> None:
    views = [
        read_job(job("a", input=SHARE)),
        read_job(job("b", input=SHARE)),
        read_job(job("c", input={"share": {"group": "other"}})),
        replace(read_job(job("d", input=SHARE)), namespace="elsewhere"),
        read_job(job("e")),
    ]
    found = members_by_job({one.uid: one for one in views})
    assert found == {"uid-a": ("uid-a", "uid-b"), "uid-b": ("uid-a", "uid-b")}


def having(cores: int, wanted: int | None, *, active: bool = True) -> Having:
    said = None if wanted is None else Predicted(wanted, 1, 1 + wanted, why="so")
    return Having(cores, said, active)


def test_the_parts_are_those_of_the_member_that_needs_most() -> None:
    found = parts({"a": having(0, 4), "b": having(0, 8), "c": having(0, None)})
    assert {uid: one.data_workers for uid, one in found.items()} == {"a": 3, "b": 3}
    assert found["b"].throughput == pytest.approx(1 + 3 / 8 * 8), "its part of the promise"


def test_what_people_decide_about_counts_and_is_left_to_them() -> None:
    found = parts({"a": having(0, 8), "b": having(6, None, active=False)})
    assert found["a"].data_workers == 2
    assert parts({"a": having(0, None), "b": having(0, None)}) == {}


def test_a_member_gives_nothing_up_while_another_waits_for_data() -> None:
    life = Shared(node("cpu", "512"))
    for name in ("a", "b"):
        life.add(name, ideal=40.0, per_core=10.0, input=SHARE)
    life.predicted = Predicted(data_workers=4, cores=1, throughput=4.0, why="so")
    for _ in range(6):
        life.interval()
    assert life.cores() == 4
    # A model finds all at once that no data worker is of use; but "b" waits as it says.
    life.predicted = Predicted(data_workers=0, cores=1, why="all is in memory")
    life.waits = "b"
    for _ in range(6):
        life.interval()
    assert life.cores() >= 4
    assert "others of its share group" in life.tuning("a").why
    life.waits = ""
    life.ideal = dict.fromkeys("ab", 10.0)  # nobody does: the need has fallen, and they drain
    for _ in range(6):
        life.interval()
    assert life.cores() < 4


def test_a_data_worker_goes_where_any_member_trains() -> None:
    planner = Planner()
    for name in ("mine", "theirs"):
        planner.state.put_node(node(name, "64"))
    for name in ("a", "b"):
        planner.state.put_job(job(name, input=SHARE))
    training = pod("b-0", "8", job="b", role="worker", on="theirs")
    planner.state.put_pod(training, 0.0)
    near = planner.state.nodes_of("uid-a")
    assert near == frozenset(), "it trains nowhere yet"
    many = QueueSignals(10.0, 1, 1.0, 1.0, 1.0, bytes_per_second=1e9)
    planner.allocate(10.0, {"uid-a": many, "uid-b": many})
    planner.state.put_pod(pod("a-data-0", "1", job="a", gated=True), 11.0)
    [pin] = planner.place(11.0).actions
    assert pin.node == "theirs"  # type: ignore[union-attr]  # the one action is a pin
