from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_cluster.testing import RunningCluster, api_server


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        yield running


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        yield running
