"""The check of the pods that begin together: rounds by the clock, and what becomes of each pod.

A trainer has one `PodChecks`. It reads no clock and does no I/O: pods report, and are told what to
do; what was found is taken out by whoever writes it down.

Guarantees:
- nobody waits for a pod that does not come, or not for long (`GATHER_SECONDS`, `ROUND_SECONDS`),
  and after `CHECK_SECONDS` a check is over, whatever is known then, and whoever still asks;
- what one end says of a link holds for both: the other's word may come late by that very link;
- who comes late, as a slow machine does, is compared with those that were measured before;
- at most one rank in four is ever put elsewhere for what is measured here (but one at least), and
  none more often than `MOST_MOVES`: a job is never kept from running by its own checks;
- who is replaced keeps its place until the other pod is there, and begins if none comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.enums import Role
from penstock.job.identities import replica_name
from penstock.trainer.nodecheck.check import (
    Check,
    Finding,
    Measurement,
    Verdict,
    compared,
    findings,
    next_round,
)
from penstock.trainer.nodecheck.messages import (
    CheckReply,
    CheckReport,
    RoundMeasured,
    StepMeasured,
)
from penstock.trainer.nodecheck.outliers import Speed
from penstock.trainer.nodecheck.training_check import TrainingCheck

GATHER_SECONDS: Final = 1.0
ROUND_SECONDS: Final = 1.7
CHECK_SECONDS: Final = 4.8
"""Before pods begin without an answer (`pod.MOST_SECONDS`); time for three slow rounds of three."""
MOVED_SHARE: Final = 4
MOST_EARLIER: Final = 64
MOST_MOVES: Final = 2
MOST_PODS: Final = 4096


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """What was found of one pod and, as far as a pod can tell, of its node.

    Attributes:
        rank: the pod's rank.
        incarnation: the pod's incarnation.
        node: where it is.
        hardware: with which it was compared.
        finding: the verdict.
        measured: what it measured first.
        replaced: whether its rank is to be put on another node.
        why: why, for people; empty of a good one.
    """

    rank: int
    incarnation: int
    node: str
    hardware: str
    finding: Finding
    measured: RoundMeasured | None
    replaced: bool
    why: str


@dataclass(slots=True)
class _Cohort:
    began: float
    pods: dict[str, CheckReport] = field(default_factory=dict)
    check: Check | None = None
    pairs: dict[str, str] = field(default_factory=dict)
    round_began: float = 0.0


class PodChecks:
    """The checks of one job's pods; see the module's docstring."""

    def __init__(self, *, replaces: bool = True) -> None:
        """``replaces``: whether somebody is there who can put a pod elsewhere."""
        self._replaces = replaces
        self._cohort: _Cohort | None = None
        self._verdicts: dict[str, CheckedNode] = {}
        self._moves: dict[int, int] = {}
        self._moved: set[int] = set()
        """Ranks that were moved for what was measured here."""
        self._ranks: set[int] = set()
        self._earlier: deque[tuple[str, Mapping[Speed, float]]] = deque(maxlen=MOST_EARLIER)
        self._found: list[CheckedNode] = []
        self._avoided: frozenset[str] = frozenset()
        self._while_training = TrainingCheck()

    def avoid(self, nodes: Iterable[str]) -> None:
        """Nodes that others have found to be bad, or that people want nothing on."""
        self._avoided = frozenset(nodes)

    def take_found(self) -> list[CheckedNode]:
        """What was found since the last call, to be written down."""
        found, self._found = self._found, []
        return found

    def hear_step(self, said: StepMeasured, now: float) -> None:
        """Take in what a worker measured between two steps; nobody is replaced for it."""
        for one in self._while_training.hear(said, now):
            own = one.measured
            why = _why_bad(own.node, one.finding)
            self._found.append(
                CheckedNode(
                    own.rank,
                    own.incarnation,
                    own.node,
                    own.hardware,
                    one.finding,
                    one.first,
                    replaced=False,
                    why=why,
                )
            )

    def advance(self, now: float) -> None:
        """Let time pass: pods that have begun without an answer do not ask for one any more."""
        if self._cohort is not None:
            self._advance(self._cohort, None, now)

    def answer(
        self, report: CheckReport, expected: Collection[int] | None, now: float
    ) -> CheckReply:
        """Take in what a pod says, and tell it what to do.

        Args:
            report: of the pod.
            expected: ranks that have a pod; None: nobody knows.
            now: seconds of a clock that does not go back.
        """
        name = _name(report)
        if name not in self._verdicts and (running := self._cohort) is not None:
            if name in running.pods:
                running.pods[name] = report
            if running.check is not None:
                self._advance(running, expected, now)
        if (known := self._verdicts.get(name)) is not None:
            return CheckReply(over=not known.replaced, replaced=known.replaced, why=known.why)
        cohort = self._cohort
        if cohort is None:
            cohort = self._cohort = _Cohort(now)
        if cohort.check is not None and name not in cohort.pods:
            return CheckReply()  # the next check, in a moment, is its own
        if len(cohort.pods) >= MOST_PODS and name not in cohort.pods:
            return CheckReply(over=True)
        if cohort.check is None:
            cohort.pods[name] = report
            self._advance(cohort, expected, now)
        if (known := self._verdicts.get(name)) is not None:
            return CheckReply(over=not known.replaced, replaced=known.replaced, why=known.why)
        if cohort.check is None or name not in cohort.pairs:
            return CheckReply()
        partner = cohort.pods.get(cohort.pairs[name])
        address = partner.address if partner is not None else ""
        return CheckReply(round=len(cohort.check.rounds), partner=address)

    def _advance(self, cohort: _Cohort, expected: Collection[int] | None, now: float) -> None:
        if cohort.check is None:
            ranks = {pod.rank for pod in cohort.pods.values()}
            waited = now - cohort.began >= GATHER_SECONDS
            if not waited and (expected is None or not ranks.issuperset(expected)):
                return
            hardware = {name: pod.hardware for name, pod in cohort.pods.items()}
            cohort.check = Check(hardware, earlier=tuple(self._earlier))
            self._open(cohort, now)
        elif self._round_over(cohort, now):
            number = len(cohort.check.rounds)
            cohort.check = cohort.check.add(
                measured
                for name in cohort.pairs
                if (measured := _measurement(cohort, name, number)) is not None
            )
            if now - cohort.began >= CHECK_SECONDS:
                self._close(cohort)
            else:
                self._open(cohort, now)

    def _round_over(self, cohort: _Cohort, now: float) -> bool:
        assert cohort.check is not None
        number = len(cohort.check.rounds)
        late = now - cohort.round_began >= ROUND_SECONDS or now - cohort.began >= CHECK_SECONDS
        return late or all(_is_known(cohort, name, number) for name in cohort.pairs)

    def _open(self, cohort: _Cohort, now: float) -> None:
        assert cohort.check is not None
        pairs = next_round(cohort.check)
        if pairs is None:
            self._close(cohort)
            return
        cohort.pairs = {}
        cohort.round_began = now
        for one, other in pairs:
            cohort.pairs[one] = other
            if other:
                cohort.pairs[other] = one

    def _close(self, cohort: _Cohort) -> None:
        assert cohort.check is not None
        self._cohort = None
        found = findings(cohort.check)
        self._ranks.update(pod.rank for pod in cohort.pods.values())
        most = max(1, len(self._ranks) // MOVED_SHARE)
        self._earlier.extend(compared(cohort.check))
        # Those that fail hold everybody up; then the slowest.
        order = sorted(
            found, key=lambda one: (found[one].verdict is not Verdict.FAILING, -found[one].ratio)
        )
        for name in order:
            pod, finding = cohort.pods[name], found[name]
            why = self._why(pod, finding)
            moved = self._moves.get(pod.rank, 0)
            replaced = bool(why) and self._replaces and bool(pod.node)
            # A node that others have named is no matter of how many there are here.
            allowed = (
                pod.node in self._avoided or pod.rank in self._moved or len(self._moved) < most
            )
            if replaced and moved < MOST_MOVES and allowed:
                self._moves[pod.rank] = moved + 1
                if pod.node not in self._avoided:
                    self._moved.add(pod.rank)
            else:
                replaced = False
            first = pod.measured[0] if pod.measured else None
            checked = CheckedNode(
                pod.rank, pod.incarnation, pod.node, pod.hardware, finding, first, replaced, why
            )
            self._verdicts[name] = checked
            self._found.append(checked)
        while len(self._verdicts) > MOST_PODS:
            self._verdicts.pop(next(iter(self._verdicts)))

    def _why(self, pod: CheckReport, finding: Finding) -> str:
        if why := _why_bad(pod.node, finding):
            return why
        if pod.node and pod.node in self._avoided:
            return f"node {pod.node} is avoided: it was found bad before, or somebody said so"
        return ""


def _why_bad(node: str, finding: Finding) -> str:
    if finding.verdict is Verdict.FAILING:
        return f"node {node}: its link to others fails"
    if finding.verdict is Verdict.SLOW:
        return f"node {node}: {finding.what} is {finding.ratio:.1f} times slower than usual"
    return ""


def _name(report: CheckReport) -> str:
    return replica_name(Role.WORKER, report.rank, report.incarnation)


def _measurement(cohort: _Cohort, name: str, number: int) -> Measurement | None:
    said, partner = _said(cohort, name, number), cohort.pairs[name]
    if said is None:
        return None
    link, failed = said.link, said.failed
    other = None if said.complete else _said(cohort, partner, number)
    if other is not None:
        link, failed = other.link, other.failed
    measured = (Speed.COMPUTE, said.compute), (Speed.MEMORY, said.memory), (Speed.LINK, link)
    speeds = {what: speed for what, speed in measured if speed is not None}
    known = link is not None or failed
    return Measurement(
        name,
        partner if known else "",
        speeds,
        failed,
        incomplete=not known and not said.complete,
    )


def _is_known(cohort: _Cohort, name: str, number: int) -> bool:
    """Whether there is nothing more to learn of this pod in a round."""
    said, other = (_said(cohort, one, number) for one in (name, cohort.pairs[name]))
    return said is not None and (said.complete or (other is not None and other.complete))


def _said(cohort: _Cohort, name: str, number: int) -> RoundMeasured | None:
    if name not in cohort.pods:
        return None
    return next((one for one in cohort.pods[name].measured if one.number == number), None)
