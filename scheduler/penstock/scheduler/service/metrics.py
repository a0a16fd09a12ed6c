"""Every metric of the scheduler, in a registry of its own; names are in dashboards and alerts.

Figures of the cluster are read from the planner's state when they are asked for, so that none of a
node or job that is gone is ever shown.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.scheduler.fragmentation import fragmentation, of_cluster
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.pod_view import PodView
from penstock.scheduler.request import WHOLE_DEVICE_MILLI

NODE_FRAGMENTATION: Final = "penstock_node_fragmentation_ratio"
NODE_ACCELERATORS: Final = "penstock_node_accelerators"
STRANDED_GPUS: Final = "penstock_cluster_stranded_gpus"
STRANDED_CPU: Final = "penstock_cluster_stranded_cpu_cores"
DATA_WORKERS: Final = "penstock_data_workers"
DECISIONS: Final = "penstock_scheduler_decisions"
PLAN_SECONDS: Final = "penstock_scheduler_plan_duration_seconds"
PIN_SECONDS: Final = "penstock_scheduler_pin_delay_seconds"
INTERVAL_SECONDS: Final = "penstock_scheduler_interval_duration_seconds"
CALL_ERRORS: Final = "penstock_scheduler_call_errors"
PODS: Final = "penstock_scheduler_pods"
UNREADABLE: Final = "penstock_scheduler_unreadable_objects"
LEADING: Final = "penstock_scheduler_leading"

_LATENCY: Final = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class Metrics:
    """What the planner counts while it runs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            DECISIONS,
            "Decisions, by policy and reason.",
            ["policy", "reason"],
            registry=self.registry,
        )
        self.plan_seconds = Histogram(
            PLAN_SECONDS,
            "Time of one pass of the planner, without carrying it out.",
            registry=self.registry,
            buckets=_LATENCY,
        )
        self.pin_seconds = Histogram(
            PIN_SECONDS,
            "From the creation of a gated pod until its pin was accepted.",
            registry=self.registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
        )
        self.interval_seconds = Histogram(
            INTERVAL_SECONDS,
            "Time of one interval of the allocation, reports included.",
            registry=self.registry,
            buckets=(*_LATENCY, 10, 30),
        )
        self.call_errors = Counter(
            CALL_ERRORS,
            "Calls that failed, by what they were for and why.",
            ["what", "reason"],
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "penstock_scheduler_events_dropped",
            "Kubernetes Events that were not recorded because there were too many.",
            registry=self.registry,
        )
        self.watch_restarts = Counter(
            "penstock_scheduler_watch_restarts",
            "Times that a watch began anew, by resource and cause.",
            ["resource", "cause"],
            registry=self.registry,
        )
        self.leading = Gauge(LEADING, "1 while this replica leads.", registry=self.registry)

    def show(self, state: ClusterState) -> None:
        """Show the figures of this cluster from now on."""
        self.registry.register(_ClusterFigures(state))


class _ClusterFigures(Collector):
    """The figures that follow from the state alone."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        columns = self._state.snapshot.columns
        rows = columns.rows()
        nodes = GaugeMetricFamily(
            NODE_FRAGMENTATION,
            "Share of free CPU less share of free accelerators: below 0, accelerators strand.",
            labels=["node"],
        )
        accelerators = GaugeMetricFamily(
            NODE_ACCELERATORS, "Allocatable accelerators of each node.", labels=["node"]
        )
        for row, value in zip(rows.tolist(), fragmentation(columns, rows).tolist(), strict=True):
            nodes.add_metric([columns.names[row]], round(value, 6))
            total = int(columns.total_accelerator_milli[row]) / WHOLE_DEVICE_MILLI
            accelerators.add_metric([columns.names[row]], total)
        yield nodes
        yield accelerators
        cluster = of_cluster(columns)
        yield GaugeMetricFamily(
            STRANDED_GPUS,
            "Accelerators that strand for lack of CPU.",
            value=cluster.stranded_accelerators,
        )
        yield GaugeMetricFamily(
            STRANDED_CPU,
            "Cores that strand for lack of accelerators.",
            value=cluster.stranded_cpu_cores,
        )
        workers = GaugeMetricFamily(
            DATA_WORKERS,
            "Data workers by job, role and state.",
            labels=["job", "namespace", "role", "state"],
        )
        counts: Counts[tuple[str, str, str, str]] = Counts()
        for pods in self._state.of_job.values():
            for view in pods.values():
                if view.data_role is not None:
                    counts[view.job, view.namespace, view.data_role.value, _state_of(view)] += 1
        for labels, count in sorted(counts.items()):
            workers.add_metric(list(labels), count)
        yield workers
        waiting = GaugeMetricFamily(
            PODS, "Pods that the planner looks at, by state.", labels=["state"]
        )
        waiting.add_metric(["gated"], len(self._state.gated))
        waiting.add_metric(["pinned"], len(self._state.pinned))
        waiting.add_metric(["accelerator_pending"], len(self._state.waiting))
        yield waiting
        unreadable = CounterMetricFamily(
            UNREADABLE, "Failures to read an object that nobody foresaw, by kind.", labels=["kind"]
        )
        for kind, count in sorted(self._state.faults.items()):
            unreadable.add_metric([kind], count)
        yield unreadable


def _state_of(view: PodView) -> str:
    if view.deleting:
        return "draining"
    if view.pod.node is not None:
        return "ready" if view.ready else "starting"
    return "gated" if view.gated else "pinned"
