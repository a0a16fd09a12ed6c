"""A bad machine that a real job finds on the embedded cluster, as the benchmark plants it.

It drops packets. Slow ones are for the benchmark alone: all nodes share one machine, and
with other work on it none is slower than the others by as much as a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.badnodes_cluster import NODES, run_case
from benchmarks.elastic.cluster import Cluster, api_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ATTEMPTS = 4
"""All nodes are one machine: with other work on it, one that is well may be as slow as the planted,
or a link as silent, and then nobody is named or too many are."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server(tmp_path_factory.mktemp("cluster") / "home", NODES) as found:
        yield found


def test_a_node_that_drops_packets_is_named_and_no_other(cluster: Cluster, tmp_path: Path) -> None:
    cases = []
    for attempt in range(ATTEMPTS):
        cases.append(run_case(cluster, tmp_path, "drops-before", attempt))
        if cases[-1].right:
            return
    raise AssertionError(f"none of {cases}")
