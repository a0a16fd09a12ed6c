"""Killed at any of its calls, the controller ends up in the same place.

The operator is cancelled in this process at every call that writes, before the server has carried
it out and after; and a process gets SIGKILL at six sampled calls. All calls of a process:
``python -m tests.controller.crash_anywhere --processes``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_cluster.testing import RunningCluster
from tests.controller.crash_anywhere import Story, difference, in_process, processes, stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GROUPS = 30
SAMPLES = 6
SEED = 20260101


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with stage() as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(cluster: RunningCluster) -> tuple[Story, list[str]]:
    """What a life looks like when nobody is killed, and the calls that it takes."""
    story, trap = in_process(cluster, 0, after=False)
    print(f"a life has {len(trap.calls)} calls that write, so {2 * len(trap.calls)} kill points")
    return story, trap.calls


def test_two_undisturbed_lives_are_the_same(
    cluster: RunningCluster, undisturbed: tuple[Story, list[str]]
) -> None:
    story, _ = in_process(cluster, 0, after=False)
    assert [name for name, _ in story] == [name for name, _ in undisturbed[0]]
    assert difference(undisturbed[0], story) == ""


@pytest.mark.parametrize("group", range(GROUPS))
def test_cancelled_at_every_call(
    cluster: RunningCluster, undisturbed: tuple[Story, list[str]], group: int
) -> None:
    expected, calls = undisturbed
    points = [
        (point, after)
        for point in range(1, len(calls) + 1)
        for after in (False, True)
        if point % GROUPS == group
    ]
    assert points
    for point, after in points:
        story, _ = in_process(cluster, point, after)
        where = f"killed {'after' if after else 'before'} call {point}, {calls[point - 1]}"
        assert difference(expected, story) == "", where


@pytest.mark.parametrize("sample", range(SAMPLES))
def test_process_killed_at_sampled_calls(
    cluster: RunningCluster, undisturbed: tuple[Story, list[str]], sample: int, tmp_path: Path
) -> None:
    expected, calls = undisturbed
    chosen = random.Random(SEED).sample(range(1, len(calls) - 5), SAMPLES)
    point, after = chosen[sample], sample % 2 == 0
    story, _ = processes(cluster, point, after, tmp_path / "controller.log")
    where = f"killed {'after' if after else 'before'} call {point}"
    assert difference(expected, story) == "", where
