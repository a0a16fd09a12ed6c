"""Pods that begin together: nobody waits for long, and few are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
