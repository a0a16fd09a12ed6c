"""Bad machines that real jobs find on the embedded cluster: each case that the benchmark plants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.badnodes_cluster import CASES, NODES, run_case
from benchmarks.elastic.cluster import Cluster, api_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ATTEMPTS = 4
"""All nodes are one machine: with other work on it, one that is well may be as slow as the planted,
or a link as silent, and then nobody is named or too many are."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server(tmp_path_factory.mktemp("cluster") / "home", NODES) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_the_planted_node_is_named_and_no_other(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    cases = []
    for attempt in range(ATTEMPTS):
        cases.append(run_case(cluster, tmp_path, name, attempt))
        if cases[-1].right:
            return
    raise AssertionError(f"{name}: none of {cases}")
