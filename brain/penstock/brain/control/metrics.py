"""The Brain's metrics, in a registry of their own: names and meanings in one place."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.base.enums import Trigger
from penstock.brain.control.optimizer import Decision


class BrainMetrics:
    """Everything that a Brain counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.plans = Counter(
            "penstock_brain_plans_total",
            "Plans that came into force, by what made them.",
            ["algorithm", "stage", "trigger"],
            registry=self.registry,
        )
        self.runs = Counter(
            "penstock_brain_algorithm_runs_total",
            "Algorithms that were asked, by what came of it.",
            ["algorithm", "outcome", "shadow"],
            registry=self.registry,
        )
        self.run_seconds = Histogram(
            "penstock_brain_algorithm_duration_seconds",
            "Time that an algorithm took.",
            ["algorithm"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.samples = Counter(
            "penstock_brain_samples_total",
            "Samples taken in.",
            ["result"],
            registry=self.registry,
        )
        self.samples_dropped = Counter(
            "penstock_brain_samples_dropped_total",
            "Samples that trainers had to drop while the Brain was away.",
            registry=self.registry,
        )
        self.overrides = Counter(
            "penstock_brain_overrides_total",
            "Plans that people made.",
            ["policy"],
            registry=self.registry,
        )
        self.node_checks = Counter(
            "penstock_brain_node_checks_total",
            "Nodes that checks of jobs have measured, by what they found.",
            ["verdict"],
            registry=self.registry,
        )
        self.nodes_avoided = Gauge(
            "penstock_brain_avoided_nodes",
            "Nodes that new pods are kept away from.",
            registry=self.registry,
        )
        self.failures = Counter(
            "penstock_brain_failures_total",
            "Rounds of a background task that failed and will be tried again.",
            ["task"],
            registry=self.registry,
        )
        self.jobs = Gauge(
            "penstock_brain_jobs", "Jobs in the store.", ["phase"], registry=self.registry
        )
        self.administered = Gauge(
            "penstock_brain_administered_jobs",
            "Jobs that this Brain administers.",
            registry=self.registry,
        )
        self.executors = Gauge(
            "penstock_brain_executor_processes",
            "Executor processes.",
            ["state"],
            registry=self.registry,
        )
        self.watchers = Gauge(
            "penstock_brain_watchers",
            "Streams that wait for plans.",
            registry=self.registry,
        )

        self.gpu_gauges = {
            "gpus": self._of_jobs("penstock_job_gpus", "GPUs that a job's pods report."),
            "utilization": self._of_jobs(
                "penstock_job_gpu_utilization_ratio", "Mean utilisation of these GPUs, 0 to 1."
            ),
            "memory_bytes": self._of_jobs(
                "penstock_job_gpu_memory_bytes", "Memory used on these GPUs, all together."
            ),
            "memory_total_bytes": self._of_jobs(
                "penstock_job_gpu_memory_capacity_bytes", "Memory that these GPUs have."
            ),
            "power_watts": self._of_jobs(
                "penstock_job_gpu_power_watts", "Power that these GPUs draw, all together."
            ),
        }
        """By figure of `GpuUse`, of the jobs that this Brain heard from in the last minute."""

        self.input_stall = Gauge(
            "penstock_job_input_stall_ratio",
            "Share of the training's time that it waits for its input, by what it waits for.",
            ["job", "namespace", "cause"],
            registry=self.registry,
        )
        self.input_rate = Gauge(
            "penstock_job_input_rate",
            "Samples a second that a job takes; batches, where only these are counted.",
            ["job", "namespace"],
            registry=self.registry,
        )
        self.input_limit = Gauge(
            "penstock_job_input_limit",
            "The rate that each resource allows by itself, in the same unit; the least binds.",
            ["job", "namespace", "resource"],
            registry=self.registry,
        )

        of_groups = ["namespace", "group"]
        self.share_made = Gauge(
            "penstock_share_made",
            "Tiles that the data workers of a share group have made since they came up.",
            of_groups,
            registry=self.registry,
        )
        self.share_taken = Gauge(
            "penstock_share_taken",
            "Tiles that the members of a share group have taken of these.",
            of_groups,
            registry=self.registry,
        )
        self.share_ratio = Gauge(
            "penstock_share_shared_ratio",
            "Of the tiles that were taken, the part that had been made for another member.",
            of_groups,
            registry=self.registry,
        )
        self.share_lag = Gauge(
            "penstock_share_lag_tiles",
            "Tiles that a member is behind the one of its share group that is furthest.",
            ["job", *of_groups],
            registry=self.registry,
        )
        self.share_gauges = (self.share_made, self.share_taken, self.share_ratio, self.share_lag)
        """Of the jobs that this Brain heard from in the last minute."""

    def _of_jobs(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ["job", "namespace", "role"], registry=self.registry)

    def decided(self, decision: Decision, trigger: Trigger) -> None:
        """Count one optimization."""
        for run in decision.runs:
            self.runs.labels(run.algorithm, run.outcome.value, str(run.shadow).lower()).inc()
            self.run_seconds.labels(run.algorithm).observe(run.duration_seconds)
        if decision.plan is not None:
            plan = decision.plan
            self.plans.labels(plan.algorithm, plan.stage.value, trigger.value).inc()
