"""Rounds of pairs: who measures with whom next, and which machines are slow or fail (pure).

In the first `FULL_ROUNDS` everybody is measured, in the first of them in pairs of the same
hardware. Whoever was slow, or whose pair failed or was slow, is a suspect; suspects are measured
again, each with a partner of its own that is none, so that what goes wrong then is the suspect's
(so does DLRover in the second of its two rounds). What is measured alone (compute, memory) is the
machine's own in any round. A link is as fast as its slower end: what a machine's own reaches is the
best that it had with any partner, and usual is what is usual of these. In one round of a few most
may have the one slow end for a partner, all of three in two rounds: so who was left over once, and
has met one other alone, is measured once more, with another of these.

Guarantees:
- a machine is called bad only by `votes_needed` measurements that were bad, and more bad ones than
  good ones: a neighbour's load for a moment is no verdict;
- a pair that failed or was slow counts against neither where the other one is found to be bad;
- no pair that has measured meets twice, nobody is in two pairs of a round, and it is over after
  `MOST_ROUNDS`;
- of each hardware class (`outliers`) no more than half can be called slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from penstock.trainer.nodecheck.outliers import Speed, Usual, slowdowns, usual

FULL_ROUNDS: Final = 2
"""Rounds for everybody: a fault that comes and goes is missed by one of twenty, not by two."""
MOST_ROUNDS: Final = 7
MANY: Final = 256
"""From so many machines on it takes a vote more: of 10,000 some are unlucky twice."""


class Verdict(StrEnum):
    """What a machine is found to be."""

    GOOD = "Good"
    SLOW = "Slow"
    FAILING = "Failing"
    """Its pairs do not get their bytes across."""
    UNKNOWN = "Unknown"
    """It was not measured, or too seldom to say."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one machine measured in one round.

    Attributes:
        machine: who.
        partner: with whom; empty: it had none, or nothing is known of their link.
        speeds: what it reached; a link that failed has none.
        failed: nothing, or not all, came across the link.
        incomplete: it had a partner, and nothing is known of their link: its own speeds speak only
            against it.
    """

    machine: str
    partner: str = ""
    speeds: Mapping[Speed, float] = field(default_factory=dict)
    failed: bool = False
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one machine.

    Attributes:
        verdict: what it is.
        what: what is slow; None of one that fails or is good.
        ratio: how many times slower than usual.
    """

    verdict: Verdict
    what: Speed | None = None
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """The check of some machines so far.

    Attributes:
        hardware: the class of each machine, by its name.
        rounds: what was measured, round by round.
        earlier: hardware and speeds of machines that were measured before, and are compared with.
    """

    hardware: Mapping[str, str]
    rounds: tuple[tuple[Measurement, ...], ...] = ()
    earlier: tuple[tuple[str, Mapping[Speed, float]], ...] = ()

    def add(self, measured: Iterable[Measurement]) -> Check:
        """The check with one more round; of a machine that it does not know it says nothing."""
        known = tuple(one for one in measured if one.machine in self.hardware)
        return replace(self, rounds=(*self.rounds, known))


_LOOK: Final = 8
"""Partners that are looked at for one: of so many one has not been its partner yet."""


@dataclass(slots=True)
class _Tally:
    bad: int = 0
    good: int = 0
    failed: int = 0
    worst: dict[Speed, list[float]] = field(default_factory=lambda: defaultdict(list))


def votes_needed(machines: int) -> int:
    """How many bad measurements call a machine bad: of so many."""
    return 2 if machines < MANY else 3


def next_round(check: Check) -> tuple[tuple[str, str], ...] | None:
    """Who measures with whom next; an empty name: alone. None: nothing is left to be measured."""
    if not check.rounds:
        return _by_class(check.hardware, frozenset(), {}) or None
    if len(check.rounds) >= MOST_ROUNDS:
        return None
    tallies, suspects = _judge(check)
    met = _met(check)
    needed = votes_needed(len(check.hardware))
    undecided = {name for name in suspects if not _decided(tallies.get(name, _Tally()), needed)}
    if len(check.rounds) >= FULL_ROUNDS:
        unlinked = {name for name in suspects if not met.get(name)}
        pairs = _retested(check, sorted(undecided | unlinked), suspects, met)
        pairs = tuple(pair for pair in pairs if pair[1] or pair[0] in undecided)
        if len(check.rounds) == FULL_ROUNDS:
            pairs += _left_over(check, {name for pair in pairs for name in pair}, met)
        return pairs or None
    pairs = _retested(check, sorted(suspects), suspects, met)
    taken = {name for pair in pairs for name in pair if name}
    return pairs + _by_class(check.hardware, taken, met) or None


def findings(check: Check) -> dict[str, Finding]:
    """What is known of each machine."""
    tallies, _ = _judge(check)
    needed = votes_needed(len(check.hardware))
    found: dict[str, Finding] = {}
    for name in check.hardware:
        tally = tallies.get(name)
        if tally is None:
            found[name] = Finding(Verdict.UNKNOWN)
        elif tally.bad >= needed and tally.bad > tally.good:
            found[name] = _bad(tally)
        elif tally.good >= tally.bad:
            found[name] = Finding(Verdict.GOOD if tally.good else Verdict.UNKNOWN)
        else:
            found[name] = Finding(Verdict.UNKNOWN)
    return found


def compared(check: Check) -> tuple[tuple[str, Mapping[Speed, float]], ...]:
    """Hardware and speeds of each machine that was measured, as others are compared with them.

    Compute and memory are those of the first round, as later ones measure suspects. The link is the
    best that it had.
    """
    own: dict[str, dict[Speed, float]] = defaultdict(dict)
    for number, measured in enumerate(check.rounds):
        for one in measured:
            reached = own[one.machine]
            for what, speed in one.speeds.items():
                if what is Speed.LINK:
                    reached[what] = max(speed, reached.get(what, 0.0))
                elif number == 0:
                    reached[what] = speed
    return tuple((check.hardware[name], speeds) for name, speeds in own.items())


def _bad(tally: _Tally) -> Finding:
    if 2 * tally.failed >= tally.bad:
        return Finding(Verdict.FAILING)
    what = max(tally.worst, key=lambda one: (len(tally.worst[one]), one))
    ratios = sorted(tally.worst[what])
    return Finding(Verdict.SLOW, what, ratios[len(ratios) // 2])


def _decided(tally: _Tally, needed: int) -> bool:
    if tally.bad >= needed and tally.bad > tally.good:
        return True
    return tally.good > tally.bad


def _by_class(
    hardware: Mapping[str, str], taken: Collection[str], met: Mapping[str, Collection[str]]
) -> tuple[tuple[str, str], ...]:
    """Pairs of the same hardware of all that are free; who is left over, with one left over."""
    classes: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(hardware).difference(taken)):
        classes[hardware[name]].append(name)
    pairs: list[tuple[str, str]] = []
    left: list[str] = []
    for names in classes.values():
        if met:  # others than the last time: neighbours were paired then
            names = [*names[::2], *reversed(names[1::2])]  # noqa: PLW2901 - the same, in order
        waiting: list[str] = []
        for name in names:
            other = next((one for one in waiting[:_LOOK] if one not in met.get(name, ())), None)
            if other is None:
                waiting.append(name)
            else:
                waiting.remove(other)
                pairs.append((other, name))
        left.extend(waiting)
    while left:
        name = left.pop(0)
        other = next((one for one in left if one not in met.get(name, ())), "")
        if other:
            left.remove(other)
        pairs.append((name, other))
    return tuple(pairs)


def _left_over(
    check: Check, taken: Collection[str], met: Mapping[str, Collection[str]]
) -> tuple[tuple[str, str], ...]:
    """Pairs of those that have met one other alone: it may be its link that theirs was."""
    once = {
        name: hardware for name, hardware in check.hardware.items() if len(met.get(name, ())) == 1
    }
    return tuple(pair for pair in _by_class(once, taken, met) if pair[1])


def _retested(
    check: Check,
    wanted: Sequence[str],
    suspects: Collection[str],
    met: Mapping[str, Collection[str]],
) -> tuple[tuple[str, str], ...]:
    """Each with a partner that is no suspect: of its class where there is one."""
    free: dict[str, list[str]] = defaultdict(list)
    # Those that met the fewest first, or every suspect would ask for the same ones.
    good = set(check.hardware).difference(suspects)
    for name in sorted(good, key=lambda one: (len(met.get(one, ())), one)):
        free[check.hardware[name]].append(name)
    pairs = []
    for name in wanted:
        own = check.hardware[name]
        for hardware in (own, *sorted(set(free) - {own})):
            among = free[hardware]
            found = next((one for one in among if one not in met.get(name, ())), None)
            if found is not None:
                among.remove(found)
                pairs.append((name, found))
                break
        else:
            pairs.append((name, ""))
    return tuple(pairs)


def _met(check: Check) -> dict[str, set[str]]:
    """Who was whose partner."""
    met: dict[str, set[str]] = defaultdict(set)
    for one in (one for measured in check.rounds for one in measured if one.partner):
        met[one.machine].add(one.partner)
        met[one.partner].add(one.machine)
    return met


def _known(check: Check) -> dict[str, dict[Speed, Usual]]:
    """What is usual in each class."""
    speeds: dict[str, dict[Speed, list[float]]] = defaultdict(lambda: defaultdict(list))
    for hardware, own in (*check.earlier, *compared(check)):
        for what, speed in own.items():
            speeds[hardware][what].append(speed)
    return {
        hardware: {what: usual(values) for what, values in by_what.items()}
        for hardware, by_what in speeds.items()
    }


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one measurement says: of the machine itself, and of its link."""

    own: Mapping[Speed, float]
    link: float
    """How many times slower than usual; 1: it is not."""
    failed: bool

    @property
    def link_bad(self) -> bool:
        return self.failed or self.link > 1


def _read(check: Check, known: Mapping[str, Mapping[Speed, Usual]], one: Measurement) -> _Reading:
    mine = known.get(check.hardware[one.machine], {})
    slow = slowdowns(one.speeds, mine)
    link = slow.pop(Speed.LINK, 1.0)
    if link > 1 and one.partner:  # a link is as fast as its slower end may be
        other = known.get(check.hardware.get(one.partner, ""), {})
        link = slowdowns({Speed.LINK: one.speeds[Speed.LINK]}, other).get(Speed.LINK, 1.0)
    return _Reading(slow, link, one.failed)


def _judge(check: Check) -> tuple[dict[str, _Tally], set[str]]:
    """The votes on each machine, and all that have ever been suspects."""
    if not check.rounds:
        return {}, set()
    known = _known(check)
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    suspects = set(check.hardware).difference(one.machine for one in check.rounds[0])
    shared: list[tuple[Measurement, _Reading]] = []
    """Of pairs in which nobody was a suspect: it may be the other one's fault."""
    for measured in check.rounds:
        before = frozenset(suspects)
        for one in measured:
            said = _read(check, known, one)
            if said.own:
                suspects.add(one.machine)
                _vote(tallies[one.machine], said)
            elif one.incomplete:
                continue
            elif not (one.partner and said.link_bad) or one.machine in before:
                _vote(tallies[one.machine], said)
            elif one.partner not in before:
                suspects.add(one.machine)
                shared.append((one, said))
    guilty = {name for name, tally in tallies.items() if tally.bad > tally.good}
    for one, said in shared:
        if one.partner not in guilty:
            _vote(tallies[one.machine], said)
    return tallies, suspects


def _vote(tally: _Tally, said: _Reading) -> None:
    for what, ratio in said.own.items():
        tally.worst[what].append(ratio)
    if not said.own and not said.link_bad:
        tally.good += 1
        return
    tally.bad += 1
    if not said.own and said.failed:
        tally.failed += 1
    elif not said.own:
        tally.worst[Speed.LINK].append(said.link)
