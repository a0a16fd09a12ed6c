"""Fixtures of the API server's tests."""

from tests.local.cluster import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
