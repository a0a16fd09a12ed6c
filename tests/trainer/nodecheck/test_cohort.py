"""Pods that begin together: nobody waits for long, and few are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from penstock.trainer.nodecheck.check import Verdict
from penstock.trainer.nodecheck.cohort import (
    CHECK_SECONDS,
    GATHER_SECONDS,
    MOST_MOVES,
    PodChecks,
)
from penstock.trainer.nodecheck.messages import CheckReply, CheckReport, RoundMeasured


class Pods:
    """Pods that poll a trainer, and measure as told."""

    def __init__(
        self,
        checks: PodChecks,
        speeds: Mapping[int, float],
        incarnation: int = 0,
        measures: Callable[[int], bool] = lambda rank: True,
        links: Callable[[int], bool] = lambda rank: True,
    ) -> None:
        self._checks = checks
        self._speeds = speeds
        self._incarnation = incarnation
        self._measures = measures
        self._links = links
        self._measured: dict[int, list[RoundMeasured]] = {rank: [] for rank in speeds}
        self.replies: dict[int, CheckReply] = {}
        self.now = 100.0

    def poll(self, rank: int, expected: set[int] | None) -> CheckReply:
        report = CheckReport(
            rank=rank,
            incarnation=self._incarnation,
            node=f"n{rank}",
            address=f"host-{rank}:1",
            measured=tuple(self._measured[rank]),
        )
        reply = self.replies[rank] = self._checks.answer(report, expected, self.now)
        done = {one.number for one in self._measured[rank]}
        if reply.round is not None and reply.round not in done and self._measures(rank):
            speed = self._speeds[rank]
            own = RoundMeasured(number=reply.round, compute=abs(speed), memory=1.0)
            if reply.partner and not self._links(rank):
                own = own.model_copy(update={"complete": False})
            elif reply.partner:
                other = int(reply.partner.removeprefix("host-").removesuffix(":1"))
                failed = min(speed, self._speeds[other]) < 0  # below zero: its link fails
                own = own.model_copy(update={"link": None if failed else 1.0, "failed": failed})
            self._measured[rank].append(own)
        return reply

    def run(self, expected: set[int] | None, seconds: float = 10.0) -> dict[int, CheckReply]:
        """Poll until all know what becomes of them, or the time is over."""
        end = self.now + seconds
        while self.now < end:
            for rank in self._speeds:
                self.poll(rank, expected)
            self.now += 0.1
            if all(reply.over or reply.replaced for reply in self.replies.values()):
                break
        return self.replies


def test_equal_pods_begin_at_once() -> None:
    pods = Pods(PodChecks(), dict.fromkeys(range(4), 1.0))
    replies = pods.run({0, 1, 2, 3})
    assert all(reply.over for reply in replies.values())
    assert pods.now < 100 + CHECK_SECONDS


def test_the_slow_one_is_replaced_and_found() -> None:
    checks = PodChecks()
    replies = Pods(checks, {0: 1.0, 1: 1.0, 2: 0.25, 3: 1.0}).run({0, 1, 2, 3})
    assert [rank for rank, reply in replies.items() if reply.replaced] == [2]
    assert "node n2: compute is 4.0 times slower" in replies[2].why
    found = {one.node: one for one in checks.take_found()}
    assert found["n2"].finding.verdict is Verdict.SLOW
    assert found["n2"].replaced
    assert found["n0"].finding.verdict is Verdict.GOOD
    assert not checks.take_found()


def test_the_one_whose_link_fails_is_replaced() -> None:
    checks = PodChecks()
    replies = Pods(checks, {0: 1.0, 1: -1.0, 2: 1.0, 3: 1.0}).run({0, 1, 2, 3})
    assert [rank for rank, reply in replies.items() if reply.replaced] == [1]
    found = {one.node: one.finding.verdict for one in checks.take_found()}
    assert found["n1"] is Verdict.FAILING
    assert {found["n0"], found["n2"], found["n3"]} == {Verdict.GOOD}


def test_at_most_one_in_four_is_replaced_the_slowest() -> None:
    replies = Pods(PodChecks(), {0: 0.2, 1: 0.1, 2: 0.3, **dict.fromkeys(range(3, 8), 1.0)}).run(
        set(range(8))
    )
    assert sorted(rank for rank, reply in replies.items() if reply.replaced) == [0, 1]
    assert replies[2].over


def test_where_nobody_can_replace_it_begins_and_it_is_said() -> None:
    checks = PodChecks(replaces=False)
    replies = Pods(checks, {0: 1.0, 1: 1.0, 2: 0.1, 3: 1.0}).run({0, 1, 2, 3})
    assert all(reply.over for reply in replies.values())
    assert [one.node for one in checks.take_found() if one.why] == ["n2"]


def test_nobody_waits_for_a_pod_that_does_not_come() -> None:
    pods = Pods(PodChecks(), {0: 1.0, 1: 1.0})
    replies = pods.run({0, 1, 2, 3})
    assert all(reply.over for reply in replies.values())
    assert pods.now < 100 + GATHER_SECONDS + CHECK_SECONDS


def test_a_pod_that_stops_answering_holds_nobody_up() -> None:
    pods = Pods(PodChecks(), dict.fromkeys(range(4), 1.0), measures=lambda rank: rank != 3)
    replies = pods.run(None)
    assert all(reply.over for reply in replies.values())
    assert pods.now <= 100 + GATHER_SECONDS + CHECK_SECONDS + 0.5


def test_what_a_slow_machine_says_before_its_link_is_measured_counts() -> None:
    checks = PodChecks()
    pods = Pods(checks, {**dict.fromkeys(range(4), 1.0), 4: 0.2}, links=lambda rank: rank != 4)
    replies = pods.run(set(range(5)))
    assert [rank for rank, reply in replies.items() if reply.replaced] == [4]
    found = {one.node: one.finding.verdict for one in checks.take_found()}
    assert found["n4"] is Verdict.SLOW


class DelayedPods:
    """Three pods; to and from one of them all comes late, to its partners and its trainer.

    Messages are events on one clock: nothing here waits.
    """

    OWN = 0.45
    FAST, SLOW = 1e9, 1e7
    POLL = 0.05
    LIMIT = 5.0

    def __init__(self, checks: PodChecks, delayed: int, exchange: float, late: float) -> None:
        self._checks, self._delayed = checks, delayed
        self._exchange, self._late = exchange, late
        self._measured: dict[int, dict[int, RoundMeasured]] = {rank: {} for rank in range(3)}
        self._heard: dict[int, float] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for rank in range(3):
            self._send(rank, 0.0)

    def run(self) -> None:
        """Until no pod has anything left to say, then some time."""
        now = 0.0
        while self._events:
            self._events.sort(key=lambda one: one[:2])
            now, _, act = self._events.pop(0)
            self._checks.advance(100 + now)
            act()
        for tick in range(100):
            self._checks.advance(100 + now + tick / 10)

    def _at(self, when: float, rank: int, act: Callable[[], None]) -> None:
        if when - self._heard.get(rank, when) < self.LIMIT:  # or it has begun its program
            self._events.append((when, rank, act))

    def _way(self, rank: int) -> float:
        return self._late if rank == self._delayed else 0.0

    def _poll(self, rank: int, sent: float) -> Callable[[], None]:
        said = tuple(self._measured[rank].values())
        report = CheckReport(
            rank=rank, incarnation=0, node=f"n{rank}", address=f"host-{rank}:1", measured=said
        )
        arrives = sent + self._way(rank)

        def heard() -> None:
            reply = self._checks.answer(report, {0, 1, 2}, 100 + arrives)
            back = arrives + self._way(rank)
            self._heard.setdefault(rank, back)
            if not reply.over and not reply.replaced:
                self._at(back, rank, lambda: self._hear(rank, reply, back))

        return heard

    def _hear(self, rank: int, reply: CheckReply, now: float) -> None:
        number, measured = reply.round, self._measured[rank]
        if number is None or number in measured:
            self._send(rank, now + self.POLL)
            return
        own = RoundMeasured(number=number, compute=1e9, memory=1e9)
        if not reply.partner:
            measured[number] = own
            self._send(rank, now + self.OWN)
            return
        other = int(reply.partner.removeprefix("host-").removesuffix(":1"))
        slow = self._delayed in (rank, other)
        done = own.model_copy(update={"link": self.SLOW if slow else self.FAST})
        measured[number] = own.model_copy(update={"complete": False})
        self._send(rank, now + self.OWN, polls=False)
        end = now + self.OWN + (self._exchange if slow else 0.2)
        self._at(end, rank, lambda: self._complete(rank, done, end))

    def _complete(self, rank: int, done: RoundMeasured, now: float) -> None:
        self._measured[rank][done.number] = done
        self._send(rank, now)

    def _send(self, rank: int, sent: float, *, polls: bool = True) -> None:
        act = self._poll(rank, sent)
        if not polls:
            said = tuple(self._measured[rank].values())
            report = CheckReport(
                rank=rank, incarnation=0, node=f"n{rank}", address=f"host-{rank}:1", measured=said
            )
            arrives = sent + self._way(rank)

            def act() -> None:
                self._checks.answer(report, {0, 1, 2}, 100 + arrives)

        self._at(sent + self._way(rank), rank, act)


def verdicts(checks: PodChecks) -> dict[str, Verdict]:
    return {one.node: one.finding.verdict for one in checks.take_found()}


@pytest.mark.parametrize("delayed", range(3))
@pytest.mark.parametrize("late", [0.0, 0.1, 0.15])
@pytest.mark.parametrize("exchange", [0.5, 0.75, 0.95])
def test_of_three_the_one_to_which_all_comes_late_is_named(
    delayed: int, late: float, exchange: float
) -> None:
    checks = PodChecks()
    DelayedPods(checks, delayed, exchange, late).run()
    good = dict.fromkeys((f"n{rank}" for rank in range(3)), Verdict.GOOD)
    assert verdicts(checks) == {**good, f"n{delayed}": Verdict.SLOW}


def test_what_one_end_says_of_a_link_holds_for_both() -> None:
    checks = PodChecks()
    pods = Pods(checks, {**dict.fromkeys(range(3), 1.0), 3: -1.0}, links=lambda rank: rank != 3)
    pods.run(set(range(4)))
    found = verdicts(checks)
    assert found.pop("n3") is Verdict.FAILING
    assert set(found.values()) == {Verdict.GOOD}


def test_a_check_is_over_in_time_even_if_nobody_asks_any_more() -> None:
    checks = PodChecks()
    pods = Pods(checks, {0: 1.0, 1: 1.0, 2: 0.1})
    for _ in range(5):  # all have measured twice, and their programs begin
        for rank in range(3):
            pods.poll(rank, {0, 1, 2})
    assert checks.take_found() == []
    checks.advance(pods.now + CHECK_SECONDS + 0.1)
    assert verdicts(checks)["n2"] is Verdict.SLOW


def test_a_latecomer_after_all_have_gone_has_a_check_of_its_own() -> None:
    checks = PodChecks()
    first = Pods(checks, {0: 1.0, 1: 1.0})
    for rank in (0, 1):  # they come, and are never heard of again
        first.poll(rank, {0, 1})
    late = Pods(checks, {2: 0.1})
    late.now = 101.0
    assert late.run(None, 20.0)[2].over


def test_a_slow_latecomer_is_held_against_those_before_it() -> None:
    checks = PodChecks()
    Pods(checks, dict.fromkeys(range(3), 1.0)).run({0, 1, 2})
    late = Pods(checks, {3: 0.25})
    late.now = 120.0
    assert late.run(None, 20.0)[3].replaced
    good = Pods(checks, {4: 0.9})
    good.now = 140.0
    assert good.run(None, 20.0)[4].over


def test_a_node_that_others_have_named_is_left_even_by_a_single_pod() -> None:
    checks = PodChecks()
    checks.avoid(["n0"])
    replies = Pods(checks, {0: 1.0, 1: 1.0}).run({0, 1})
    assert replies[0].replaced
    assert "avoided" in replies[0].why
    assert replies[1].over


def test_a_rank_is_not_moved_for_ever() -> None:
    checks = PodChecks()
    checks.avoid(["n0"])
    replaced = [
        Pods(checks, {0: 1.0}, incarnation).run({0})[0].replaced
        for incarnation in range(MOST_MOVES + 2)
    ]
    assert replaced == [True] * MOST_MOVES + [False] * 2
