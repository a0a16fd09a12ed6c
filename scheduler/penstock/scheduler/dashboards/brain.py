"""The Brain: requests, samples, algorithms and plans.

As with the jobs' dashboard, the names are held against the running process by a test.
"""

from __future__ import annotations

from typing import Final

from penstock.scheduler.dashboards.jobs import BRAIN_JOBS, BRAIN_PLANS
from penstock.scheduler.dashboards.panel import Dashboard, Panel, count, increase, latency, rate

_REQUESTS: Final = "penstock_api_request_duration_seconds"
_RUN_SECONDS: Final = "penstock_brain_algorithm_duration_seconds"

BRAIN: Final = Dashboard(
    "penstock-brain",
    "Penstock: Brain",
    (
        Panel(
            "Requests",
            "timeseries",
            {
                "{{method}} {{route}}": (f"sum by (method, route) (rate({_REQUESTS}_count[5m]))"),
                "server errors": (
                    f'sum(rate({_REQUESTS}_count{{status=~"5.."}}[5m])) or vector(0)'
                ),
            },
            unit="reqps",
        ),
        Panel(
            "Time to answer, p99",
            "timeseries",
            {"{{route}}": latency(_REQUESTS, 0.99, "route")},
            unit="s",
        ),
        Panel(
            "Samples",
            "timeseries",
            {
                "{{result}}": rate("penstock_brain_samples", "result"),
                "dropped by trainers": (
                    "sum(rate(penstock_brain_samples_dropped_total[5m])) or vector(0)"
                ),
            },
            unit="cps",
        ),
        Panel(
            "Jobs",
            "timeseries",
            {
                "{{phase}}": f"sum by (phase) ({BRAIN_JOBS})",
                "administered": "sum(penstock_brain_administered_jobs)",
                "streams of plans": "sum(penstock_brain_watchers)",
            },
        ),
        Panel(
            "Algorithms asked in 5 min",
            "timeseries",
            {
                "{{algorithm}} {{outcome}}": increase(
                    "penstock_brain_algorithm_runs", "algorithm", "outcome"
                )
            },
        ),
        Panel(
            "Time of an algorithm, p99",
            "timeseries",
            {"{{algorithm}}": latency(_RUN_SECONDS, 0.99, "algorithm")},
            unit="s",
        ),
        Panel(
            "Plans in 5 min",
            "timeseries",
            {
                "{{algorithm}} {{trigger}}": increase(BRAIN_PLANS, "algorithm", "trigger"),
                "made by people": count("penstock_brain_overrides"),
            },
        ),
        Panel(
            "Executors and background work",
            "timeseries",
            {
                "{{state}}": "sum by (state) (penstock_brain_executor_processes)",
                "failed rounds in 5 min": count("penstock_brain_failures"),
            },
        ),
    ),
)
