"""What the partition refuses, and why."""

from __future__ import annotations


class PartitionError(ValueError):
    """Root of the errors of `penstock.data.partition`; nothing has changed."""


class GraphError(PartitionError):
    """No graph of a step: names the node, the field, the value and the rule."""


class CutError(PartitionError):
    """Prices that are none, or a graph of which some node can run nowhere."""


class ProofError(PartitionError):
    """An event that cannot be of this group: says which, and what would have been right."""
