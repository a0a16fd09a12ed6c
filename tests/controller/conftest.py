"""Fixtures: a life on a server in memory, and whole clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.life import Life
from tests.controller.real_cluster import Cluster, Controllers, prepared_cluster


@pytest.fixture
def life() -> Iterator[Life]:
    """A controller on a server in memory; the test plays everybody else."""
    found = Life()
    yield found
    found.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with prepared_cluster(folder) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def controllers(cluster: Cluster) -> Iterator[Controllers]:
    """Stopped at the end; a test that stops them starts them again."""
    found = Controllers(cluster)
    try:
        yield found
    finally:
        found.stop_all()


@pytest.fixture(scope="module")
def controller(controllers: Controllers) -> Controllers:
    """One replica that runs."""
    controllers.start()
    return controllers
