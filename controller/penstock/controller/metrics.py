"""Every metric of the controller, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The controller's metrics; the names are stable, they are in dashboards and alerts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "penstock_controller_reconcile_duration_seconds",
            "Time to observe one job, decide, and carry out the decision.",
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )
        self.decide_seconds = Histogram(
            "penstock_controller_decide_duration_seconds",
            "Time of the pure decision alone.",
            registry=self.registry,
            buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
        )
        self.queue_depth = Gauge(
            "penstock_controller_queue_depth",
            "Jobs and Scales that wait to be looked at.",
            registry=self.registry,
        )
        self.pods_created = Counter(
            "penstock_controller_pods_created",
            "Pods created.",
            ["role"],
            registry=self.registry,
        )
        self.pods_deleted = Counter(
            "penstock_controller_pods_deleted",
            "Pods that were asked to go.",
            registry=self.registry,
        )
        self.errors = Counter(
            "penstock_controller_errors",
            "Passes that ended with an error, by the API server's reason or the kind of fault.",
            ["reason"],
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "penstock_controller_events_dropped",
            "Events of type Normal that were not recorded because there were too many.",
            registry=self.registry,
        )
        self.requests = Counter(
            "penstock_controller_api_requests",
            "Calls to the API server, except watches and those of the framework.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.watch_restarts = Counter(
            "penstock_controller_pod_watch_restarts",
            "Times that the watch of pods began anew, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.leading = Gauge(
            "penstock_controller_leading",
            "1 while this replica holds a Lease and looks after the jobs of its shard.",
            registry=self.registry,
        )
        self.shards = Gauge(
            "penstock_controller_shards",
            "Shards that the jobs are divided into, as this replica has seen last.",
            registry=self.registry,
        )
        self.objects = Gauge(
            "penstock_controller_objects",
            "Objects in the controller's caches.",
            ["kind"],
            registry=self.registry,
        )

    def count_request(self, verb: str, resource: str, code: str) -> None:
        """Count a call to the API server."""
        self.requests.labels(verb, resource, code).inc()
