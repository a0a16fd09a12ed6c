"""Fixtures of the API server's tests."""

from __future__ import annotations

from tests.local.cluster import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
