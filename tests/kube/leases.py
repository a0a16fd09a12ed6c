"""A Lease of a test's own, soon lost by who cannot renew it, and a server that refuses that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.kube import election
from penstock.kube.election import LeaseName
from penstock_cluster.registry.model import errors
from penstock_cluster.testing import RunningCluster


@contextlib.contextmanager
def own_lease(cluster: RunningCluster, test: str, name: str) -> Iterator[LeaseName]:
    """In a namespace of the test's; afterwards the server refuses nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(election, "RETRY_SECONDS", 1.0)
        patch.setattr(election, "RENEW_DEADLINE_SECONDS", 3.0)
        try:
            yield LeaseName(cluster.namespace(f"ns-{abs(hash(test)) % 10**8}"), name)
        finally:
            cluster.engine.interceptor = None


class Failing:
    """Refuses what is written to Leases."""

    async def on_request(self, request: Any) -> Any:
        if request.resource == "leases" and request.verb in {"update", "patch"}:
            return errors.internal("etcd is away")
        return None

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return True
