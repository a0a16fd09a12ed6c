"""CPU limits without control groups: the processes of a container are stopped and continued.

What CFS does with a quota in a period of 100 ms: a container runs until it has used its quota, then
not at all until the next period. It is looked at when its quota can be spent at the earliest, on
all its cores at once, to the nearest `GRID_NS`; what it used beyond its quota until then it pays
back in the next periods, so that its share is right in the long run however late one looks. A quota
that was not used up is not carried over, as with CFS.

A slow machine is another matter: there everything takes longer, also what is far from any limit. A
container slowed to a quarter stands still three times as long as it ran, and it does so while it is
at work: standing still between two requests would make neither of them longer.

What a process used is its CPU-time clock: exact, one system call, and no file of ``/proc`` read.
What a process used that came and went between two roll calls nobody sees.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

PERIOD_NS = 100_000_000
GRID_NS = 10_000_000
"""Looks fall on multiples of this, so that one awakening serves many containers."""
PHASE_NS = 20_000_000
"""Periods begin on multiples of this, for the same reason."""
REST_NS = 50_000_000
"""A container that used nothing is looked at on multiples of this only."""
SLICE_NS = 2_000_000
"""How often a slowed container is looked at."""
GLANCE_NS = 30_000
"""Who uses CPU within this time is at work."""
MOST_BEHIND_NS = 20_000_000
"""A slowed container stands still for so much at the latest, at work or not."""
SHORTEST_STOP_NS = 1_000_000
"""Less than this is not worth two signals: it is added to the next time."""
DEEPEST_DEBT_PERIODS = 10
"""What a process used before it was found costs at most so many periods."""

_CPU_CLOCK_OF_PROCESS = 2


def cpu_nanoseconds(pid: int) -> int:
    """CPU time of all threads of a process, ended ones included; raises OSError if it is gone."""
    return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK_OF_PROCESS)


class Governor:
    """The CPU of one container; times are those of ``time.monotonic_ns``."""

    def __init__(
        self,
        pid: int,
        read: Callable[[int], int] = cpu_nanoseconds,
        send: Callable[[int, int], None] = os.kill,
    ) -> None:
        self.milli_cpu: int | None = None
        self.percent: int | None = None
        self.next_look = 0
        self.is_paused = False
        self._cores = 1
        self._read = read
        self._send = send
        self._used = {pid: 0}
        self._is_held = False
        self._period_end = 0
        self._balance = 0
        self._still_until = 0
        self._behind = 0
        self._looked_at = 0

    @property
    def is_at_work(self) -> bool:
        """Whether there is anything to enforce."""
        return self.milli_cpu is not None or self.percent is not None

    def set(self, milli_cpu: int | None, percent: int | None, cores: int) -> None:
        """Enforce a limit of CPU, a speed in percent of the machine's, both, or neither."""
        self.milli_cpu, self.percent = milli_cpu, percent
        self._cores = cores
        self._period_end, self._still_until, self._behind, self.next_look = 0, 0, 0, 0
        if not self.is_at_work:
            self._hold(False)

    def adopt(self, pids: Iterable[int]) -> None:
        """Begin with these processes; what they used so far is forgotten."""
        self._used = dict.fromkeys(pids, 0)
        self._charge()

    def roll_call(self, pids: Iterable[int]) -> None:
        """Take over who belongs to the container now; who is new is charged with all it used."""
        known = self._used
        self._used = {pid: known.get(pid, 0) for pid in pids}
        if self._is_held:
            self._signal([pid for pid in self._used if pid not in known], signal.SIGSTOP)

    def look(self, now: int) -> None:
        """Charge what was used since the last look, then let the container run or stand still."""
        used, since = self._charge(), now - self._looked_at
        self._looked_at = now
        at_work = self.percent is not None and not self._is_held and self._glance()
        rests = not used and not self._is_held
        hold_until = max(
            self._within_quota(now, used, at_work), self._at_speed(now, min(used, since), at_work)
        )
        self._hold(hold_until > now)
        self.next_look = hold_until if hold_until > now else self._earliest_excess(now, rests)

    def _charge(self) -> int:
        total = 0
        for pid, before in self._used.items():
            try:
                reading = self._read(pid)
            except OSError:
                continue  # it has ended; the next roll call drops it
            total += reading - before if reading >= before else reading
            self._used[pid] = reading
        return total

    @property
    def _quota(self) -> int:
        """CPU nanoseconds in one period."""
        assert self.milli_cpu is not None
        return self.milli_cpu * PERIOD_NS // 1000

    def _within_quota(self, now: int, used: int, at_work: bool) -> int:
        """Until when the container has to stand still for its limit; 0: it need not (yet)."""
        if self.milli_cpu is None:
            return 0
        quota = self._quota
        if not self._period_end:  # the first look at it
            self._balance, self._period_end = quota, _on_grid(now + PERIOD_NS, PHASE_NS)
            return 0
        # On a slow machine the same work takes more of the quota.
        self._balance -= used * 100 // (self.percent or 100)
        if now >= self._period_end:
            periods = 1 + (now - self._period_end) // PERIOD_NS
            self._period_end += periods * PERIOD_NS
            self._balance = max(self._balance, -DEEPEST_DEBT_PERIODS * quota) + periods * quota
            self._balance = min(self._balance, quota)
        # CFS stops what runs: on a slow machine that is what makes a request take longer.
        idles = self.percent is not None and not at_work and not self._is_held
        if idles and self._balance > -quota:
            return 0
        return self._period_end if self._balance <= 0 else 0

    def _glance(self) -> bool:
        """Whether the container uses CPU at this very moment; what it uses is charged next time."""
        before, deadline = self._total(), time.monotonic_ns() + GLANCE_NS
        while time.monotonic_ns() < deadline:
            pass
        return self._total() > before

    def _total(self) -> int:
        total = 0
        for pid in self._used:
            with contextlib.suppress(OSError):
                total += self._read(pid)
        return total

    def _at_speed(self, now: int, ran: int, at_work: bool) -> int:
        """Until when the container has to stand still for its machine's slowness."""
        if self.percent is None:
            return 0
        self._behind += ran * (100 - self.percent) // self.percent
        due = self._behind >= (SHORTEST_STOP_NS if at_work else MOST_BEHIND_NS)
        if due and now >= self._still_until:
            self._still_until = now + min(self._behind, DEEPEST_DEBT_PERIODS * PERIOD_NS)
            self._behind = 0
        return self._still_until

    def paused(self, paused: bool) -> None:
        """Somebody else stopped the container, or continued it: till then it is not ours to."""
        self.is_paused = paused
        if not paused:
            self._is_held, self.next_look = False, 0

    def _earliest_excess(self, now: int, rests: bool) -> int:
        """Until when the container may run without being looked at."""
        if self.percent is not None:
            return now + SLICE_NS
        if rests:
            return _on_grid(now + REST_NS, REST_NS)
        wait = min(self._balance // self._cores, self._period_end - now)
        return _on_grid(now + max(wait, GRID_NS))

    def _hold(self, hold: bool) -> None:
        if hold != self._is_held and not self.is_paused:
            self._is_held = hold
            self._signal(self._used, signal.SIGSTOP if hold else signal.SIGCONT)

    def _signal(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._send(pid, number)


def _on_grid(moment: int, step: int = GRID_NS) -> int:
    return (moment + step // 2) // step * step
