from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_cluster.testing import RunningCluster, running_cluster


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running
