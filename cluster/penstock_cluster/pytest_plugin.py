"""Fixtures for pytest, which finds them by itself once the package is installed.

Whoever needs other options makes a fixture of :func:`penstock_cluster.testing.embedded_cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a server is not imported into test runs that start none
    from penstock_cluster.testing import RunningCluster


@pytest.fixture
def kubernetes_cluster() -> Iterator[RunningCluster]:
    """A whole cluster of one node, whose pods run as processes of this machine."""
    from penstock_cluster.testing import embedded_cluster

    with embedded_cluster() as running:
        yield running


@pytest.fixture
def kubernetes_api() -> Iterator[RunningCluster]:
    """An API server without scheduler and kubelet, over TLS: pods stay as they are written."""
    from penstock_cluster.apiserver import ServeOptions
    from penstock_cluster.testing import api_server

    with api_server(serving=ServeOptions(tls=True)) as running:
        yield running
