"""Requests of several training processes are taken in turn, and those of one in its order."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.serving.request_queue import RequestQueue


class Asked(NamedTuple):
    line: str
    step: int


LINES = st.sampled_from("abc")
EVENTS = st.lists(
    st.one_of(st.tuples(LINES, st.integers(1, 4)), st.just("take"), st.just("remove")), max_size=60
)


@given(EVENTS, LINES)
def test_each_in_turn_and_each_ones_in_its_order(
    events: list[tuple[str, int] | str], removed: str
) -> None:
    queue = RequestQueue[Asked]()
    waiting: dict[str, list[Asked]] = defaultdict(list)
    passed: dict[str, set[str]] = defaultdict(set)  # who was served while somebody waited
    number = 0
    for event in events:
        if event == "take":
            taken = queue.take()
            assert (taken is None) == (not any(waiting.values()))
            if taken is None:
                continue
            assert taken == waiting[taken.line].pop(0)
            passed[taken.line].clear()
            for line, requests in waiting.items():
                if requests and line != taken.line:
                    assert taken.line not in passed[line], f"{taken.line} twice before {line}"
                    passed[line].add(taken.line)
        elif event == "remove":
            odd = [one for one in waiting[removed] if one.step % 2]
            assert queue.remove(removed, lambda one: bool(one.step % 2)) == odd
            waiting[removed] = [one for one in waiting[removed] if not one.step % 2]
            if not waiting[removed]:
                passed[removed].clear()
        else:
            line, count = event
            asked = [Asked(line, number + place) for place in range(count)]
            number += count
            queue.put(asked)
            waiting[line] += asked
        assert len(queue) == sum(map(len, waiting.values()))
        assert all(queue.count(line) == len(requests) for line, requests in waiting.items())


def test_all_that_one_has_asked_for_is_taken_out() -> None:
    queue = RequestQueue[Asked]()
    queue.put([Asked("a", 0), Asked("b", 1), Asked("a", 2)])
    assert queue.remove("a") == [Asked("a", 0), Asked("a", 2)]
    assert queue.remove("a") == []
    assert queue.take() == Asked("b", 1)
    assert queue.take() is None
