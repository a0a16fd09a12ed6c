"""Which of several equally good nodes a data worker goes to: near its job, away from traffic.

GoldMiner (SIGMOD 2023, section 3.4.2) prefers a training worker's own node, then nodes with fewer
distributed training jobs and fewer remote data workers. Here the nearness is weighed first: a job
that moves many bytes per second gains from a node of its own; one that moves few leaves that CPU to
those who do, and takes a node without accelerators. What follows is compared in the order of the
fields of `NodeTraffic`. The choice is among nodes whose score is within `epsilon` of the best, so
that locality never costs more fragmentation than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.scheduler.node_table import Flags, NodeTable, Rows

EPSILON: Final = 0.05
"""Fragmentation that nearness may cost, in accelerators."""

MANY_BYTES_PER_SECOND: Final = 100e6
"""From here on a job counts as moving much: about a tenth of a 10 Gbit/s link."""


@dataclass(frozen=True, slots=True, order=True)
class NodeTraffic:
    """What already uses a node's network; less is better, the first field first."""

    distributed_training_workers: int = 0
    remote_data_workers: int = 0
    egress_bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Locality:
    """The preference of one job's next data worker; see `Placer.place`."""

    job_nodes: frozenset[str]
    """Nodes that run training workers of this job, or of those that share batches with it."""
    bytes_per_second: float
    """Pre-processed data that one data worker of the job sends."""
    traffic: Mapping[str, NodeTraffic] = field(default_factory=dict)
    """Nodes that carry any; an entry of zeros counts as some."""
    epsilon: float = EPSILON

    def narrow(self, columns: NodeTable, candidates: Rows) -> Rows:
        """The nearest of the candidates, and of those the ones with the least traffic."""
        near = self._near(columns, candidates)
        chosen = candidates[near] if near.any() else candidates
        # Most nodes carry no such traffic: where any candidate is quiet, no load is looked up.
        busy = [columns.row(name) for name in self.traffic if name in columns]
        quiet = ~np.isin(chosen, busy)
        if quiet.any():
            return chosen[quiet]
        loads = [self.traffic[columns.names[row]] for row in chosen.tolist()]
        least = min(loads)
        return chosen[[load == least for load in loads]]

    def _near(self, columns: NodeTable, candidates: Rows) -> Flags:
        if self.bytes_per_second >= MANY_BYTES_PER_SECOND:
            own = [columns.row(name) for name in self.job_nodes if name in columns]
            return np.isin(candidates, own)
        bare: Flags = columns.total_accelerator_milli[candidates] == 0
        return bare
