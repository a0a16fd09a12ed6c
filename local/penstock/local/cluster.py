"""The old name of what is now :mod:`penstock_cluster.cluster`; it goes with the next release."""

from __future__ import annotations

from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster

__all__ = ["ClusterOptions", "EmbeddedCluster"]
