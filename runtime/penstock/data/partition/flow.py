"""A minimum cut of a network by maximum flow (Dinic, 1970), on whole numbers.

Whole numbers, so that no rounding of capacities that were added and subtracted decides what is
saturated. Of several minimum cuts the one with the largest side of the source is given.
"""

from __future__ import annotations

from collections import deque
from typing import Final

UNBOUNDED: Final = 1 << 62
"""A capacity that no cut of finite capacities reaches."""


class Network:
    """Vertices 0 to ``vertices - 1``, and arcs between them with capacities."""

    __slots__ = ("_arcs", "_capacity", "_head")

    def __init__(self, vertices: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(vertices)]  # numbers of arcs that leave
        self._head: list[int] = []
        self._capacity: list[int] = []  # what is left of it; arc ``a`` goes back as ``a ^ 1``

    def add(self, tail: int, head: int, capacity: int, back: int = 0) -> None:
        """An arc, and with ``back`` one in the other direction."""
        if tail == head or not (capacity or back):
            return
        number = len(self._head)
        self._head += (head, tail)
        self._capacity += (capacity, back)
        self._arcs[tail].append(number)
        self._arcs[head].append(number + 1)

    def cut(self, source: int, sink: int) -> tuple[int, list[bool]]:
        """The least capacity that separates the two, and of each vertex whether it is the source's.

        `UNBOUNDED` or more: nothing separates them. May be called once: it uses up capacities.
        """
        total = 0
        while (level := self._levels(source, sink))[source] >= 0:
            pushed = self._push(source, sink, level)
            total += pushed
            if total >= UNBOUNDED:
                break
        return total, [one < 0 for one in self._levels(None, sink)]

    def _levels(self, source: int | None, sink: int) -> list[int]:
        """Arcs from each vertex to the sink, -1 where it is out of reach; stops at the source."""
        head, capacity, arcs = self._head, self._capacity, self._arcs
        level = [-1] * len(arcs)
        level[sink] = 0
        queue = deque((sink,))
        while queue:
            vertex = queue.popleft()
            beyond = level[vertex] + 1
            for arc in arcs[vertex]:
                tail = head[arc]
                if level[tail] < 0 and capacity[arc ^ 1]:
                    level[tail] = beyond
                    if tail == source:
                        return level
                    queue.append(tail)
        return level

    def _push(self, source: int, sink: int, level: list[int]) -> int:
        """A blocking flow along arcs that lead nearer to the sink."""
        head, capacity, arcs = self._head, self._capacity, self._arcs
        tried = [0] * len(arcs)
        total = 0
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                least = min([capacity[arc] for arc in path])
                total += least
                if total >= UNBOUNDED:
                    return total
                full = 0
                for place in range(len(path) - 1, -1, -1):
                    arc = path[place]
                    capacity[arc] -= least
                    capacity[arc ^ 1] += least
                    if not capacity[arc]:
                        full = place
                vertex = head[path[full] ^ 1]
                del path[full:]
                continue
            leaving, wanted = arcs[vertex], level[vertex] - 1
            place, count = tried[vertex], len(leaving)
            while place < count:
                arc = leaving[place]
                if capacity[arc] and level[head[arc]] == wanted:
                    break
                place += 1
            tried[vertex] = place
            if place < count:
                path.append(leaving[place])
                vertex = head[leaving[place]]
                continue
            if not path:
                return total
            vertex = head[path.pop() ^ 1]
            tried[vertex] += 1
