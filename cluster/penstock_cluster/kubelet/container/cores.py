"""Which cores of this machine a container runs on.

Nodes of the embedded cluster may declare more CPU than the machine has; then the cores are shared
fairly: a container gets as many cores as its CPU rounds up to, those that others claim least. With
no more claimed than there is, nobody shares. A share below one core is not enforced: affinity
cannot, and control groups need rights that a laptop does not give.
"""

from __future__ import annotations

from collections.abc import Sequence


class CoreAllocator:
    """Counts, per core, the milli-CPU claimed on it."""

    def __init__(self, cores: Sequence[int]) -> None:
        if not cores:
            raise ValueError("cores: at least one is needed")
        self._claimed = dict.fromkeys(cores, 0)
        self._holders: dict[str, dict[int, int]] = {}

    def claimed(self, core: int) -> int:
        """Milli-CPU claimed on one core."""
        return self._claimed[core]

    def assign(self, holder: str, milli_cpu: int) -> tuple[int, ...]:
        """Cores for a container, ascending; all of them when it says nothing (0).

        A second call for one holder moves it.
        """
        self.release(holder)
        if milli_cpu <= 0:
            return tuple(sorted(self._claimed))
        count = min(-(-milli_cpu // 1000), len(self._claimed))
        chosen = sorted(self._claimed, key=lambda core: (self._claimed[core], core))[:count]
        share, rest = divmod(milli_cpu, count)
        claims = {core: share + (index < rest) for index, core in enumerate(chosen)}
        for core, claim in claims.items():
            self._claimed[core] += claim
        self._holders[holder] = claims
        return tuple(sorted(chosen))

    def release(self, holder: str) -> None:
        """Give back what a container claimed; nothing happens for an unknown one."""
        for core, claim in self._holders.pop(holder, {}).items():
            self._claimed[core] -= claim
