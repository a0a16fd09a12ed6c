"""The jobs: how many, what was planned for them, what the controller does about it.

The names of the controller's and the Brain's metrics are spelt here, because this room may import
neither; a test holds them against what those processes show.
"""

from __future__ import annotations

from typing import Final

from penstock.scheduler.dashboards.panel import Dashboard, Panel, count, increase, latency, rate
from penstock.scheduler.service import metrics

BRAIN_JOBS: Final = "penstock_brain_jobs"
BRAIN_PLANS: Final = "penstock_brain_plans"
_CONTROLLER: Final = "penstock_controller"
_EACH_JOB: Final = "{{namespace}}/{{job}} {{role}}"
_EACH_GROUP: Final = "{{namespace}}/{{group}}"
_OF_EACH_GROUP: Final = "max by (namespace, group)"
_OF_EACH_JOB: Final = "max by (namespace, job, role)"
"""Of several Brains two may have heard from a job within the minute."""

JOBS: Final = Dashboard(
    "penstock-jobs",
    "Penstock: jobs",
    (
        Panel("Jobs by phase", "timeseries", {"{{phase}}": f"sum by (phase) ({BRAIN_JOBS})"}),
        Panel(
            "Plans in 5 min",
            "timeseries",
            {"{{algorithm}} {{stage}}": increase(BRAIN_PLANS, "algorithm", "stage")},
        ),
        Panel(
            "Data workers by job",
            "timeseries",
            {
                "{{namespace}}/{{job}} {{role}} {{state}}": (
                    f"sum by (namespace, job, role, state) ({metrics.DATA_WORKERS})"
                )
            },
        ),
        Panel(
            "Pods made and removed in 5 min",
            "timeseries",
            {
                "made, {{role}}": increase(f"{_CONTROLLER}_pods_created", "role"),
                "removed": count(f"{_CONTROLLER}_pods_deleted"),
            },
        ),
        Panel(
            "Controller: time of a pass",
            "timeseries",
            {
                "p50": latency(f"{_CONTROLLER}_reconcile_duration_seconds", 0.5),
                "p99": latency(f"{_CONTROLLER}_reconcile_duration_seconds", 0.99),
                "decision alone, p99": latency(f"{_CONTROLLER}_decide_duration_seconds", 0.99),
            },
            unit="s",
        ),
        Panel(
            "Controller: what waits and what fails",
            "timeseries",
            {
                "waiting": f"sum({_CONTROLLER}_queue_depth)",
                "failed passes in 5 min": count(f"{_CONTROLLER}_errors"),
                "watches begun anew in 5 min": count(f"{_CONTROLLER}_pod_watch_restarts"),
                "leading": f"sum({_CONTROLLER}_leading)",
            },
        ),
        Panel(
            "Controller: calls to the API server",
            "timeseries",
            {
                "{{verb}} {{resource}} {{code}}": rate(
                    f"{_CONTROLLER}_api_requests", "verb", "resource", "code"
                )
            },
            unit="reqps",
        ),
        Panel(
            "Controller: objects in its caches",
            "timeseries",
            {"{{kind}}": f"sum by (kind) ({_CONTROLLER}_objects)"},
        ),
        Panel(
            "Waiting for input, by cause",
            "timeseries",
            {
                "{{namespace}}/{{job}} {{cause}}": (
                    "max by (namespace, job, cause) (penstock_job_input_stall_ratio)"
                )
            },
            unit="percentunit",
            defaults={"min": 0, "max": 1},
            description="Share of the training's time, by what it waited for; jobs whose loaders"
            " penstock run intercepts.",
        ),
        Panel(
            "Input: rate and limits",
            "timeseries",
            {
                "{{namespace}}/{{job}}": "max by (namespace, job) (penstock_job_input_rate)",
                "{{namespace}}/{{job}} {{resource}}": (
                    "max by (namespace, job, resource) (penstock_job_input_limit)"
                ),
            },
            description="Samples a second, or batches where only these are counted. The least"
            " limit binds.",
        ),
        Panel(
            "Share groups: tiles made and taken",
            "timeseries",
            {
                f"{_EACH_GROUP} made": f"{_OF_EACH_GROUP} (penstock_share_made)",
                f"{_EACH_GROUP} taken": f"{_OF_EACH_GROUP} (penstock_share_taken)",
            },
            description="By the data workers of jobs that share batches, since these came up.",
        ),
        Panel(
            "Share groups: made for another",
            "timeseries",
            {_EACH_GROUP: f"{_OF_EACH_GROUP} (penstock_share_shared_ratio)"},
            unit="percentunit",
            defaults={"min": 0, "max": 1},
            description="Of the tiles that were taken, the part that had been made for another"
            " member: with n members at most 1 - 1/n.",
        ),
        Panel(
            "Share groups: tiles behind",
            "timeseries",
            {
                "{{namespace}}/{{job}}, {{group}}": (
                    "max by (namespace, job, group) (penstock_share_lag_tiles)"
                )
            },
            description="How far each job is behind the member of its group that is furthest.",
        ),
        Panel(
            "File caches: found in memory",
            "timeseries",
            {
                "{{path}}": (
                    "sum by (path) (rate(penstock_cache_hits_total[5m])) / (sum by (path)"
                    " (rate(penstock_cache_hits_total[5m])) + sum by (path)"
                    " (rate(penstock_cache_misses_total[5m])))"
                ),
                "{{path}}, seen at all": "min by (path) (penstock_cache_seen_ratio)",
            },
            unit="percentunit",
            defaults={"min": 0, "max": 1},
            description="Share of the files that the nodes' caches had. From the second epoch on it"
            " is the share of the data set that they hold; less is read in other ways.",
        ),
        Panel(
            "File caches: bytes held",
            "timeseries",
            {
                "{{path}}": "sum by (path) (penstock_cache_bytes)",
                "capacity": "sum(penstock_cache_capacity_bytes)",
            },
            unit="bytes",
        ),
        Panel(
            "GPU utilisation by job",
            "timeseries",
            {_EACH_JOB: f"{_OF_EACH_JOB} (penstock_job_gpu_utilization_ratio)"},
            unit="percentunit",
            defaults={"min": 0, "max": 1},
            description="Mean over the GPUs that a job's pods report: its own share where the"
            " driver tells programs apart. Jobs whose image lacks penstock[gpu] are not here.",
        ),
        Panel(
            "GPU memory by job",
            "timeseries",
            {
                _EACH_JOB: f"{_OF_EACH_JOB} (penstock_job_gpu_memory_bytes)",
                f"{_EACH_JOB}, capacity": (
                    f"{_OF_EACH_JOB} (penstock_job_gpu_memory_capacity_bytes)"
                ),
            },
            unit="bytes",
        ),
        Panel(
            "GPUs by job",
            "timeseries",
            {_EACH_JOB: f"{_OF_EACH_JOB} (penstock_job_gpus)"},
        ),
        Panel(
            "GPU power by job",
            "timeseries",
            {_EACH_JOB: f"{_OF_EACH_JOB} (penstock_job_gpu_power_watts)"},
            unit="watt",
        ),
    ),
)
