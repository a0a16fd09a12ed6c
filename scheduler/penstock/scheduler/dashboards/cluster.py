"""The cluster: fragmentation by node and time, and what the scheduler does about it.

Red: accelerators will strand there for lack of CPU. Blue: CPU will strand for lack of accelerators.
Colour is graded in steps, so that two nodes of one colour are about equally off.
"""

from __future__ import annotations

from typing import Final

from penstock.scheduler.dashboards.panel import (
    DATASOURCE,
    Dashboard,
    Panel,
    count,
    increase,
    latency,
)
from penstock.scheduler.service import metrics

RED: Final = "dark-red"
BLUE: Final = "dark-blue"

_STEPS: Final = (
    (None, "dark-red"),
    (-0.5, "red"),
    (-0.25, "semi-dark-red"),
    (-0.05, "light-red"),
    (-0.0499, "#f2f2f2"),
    (0.05, "light-blue"),
    (0.25, "semi-dark-blue"),
    (0.5, "blue"),
    (0.75, "dark-blue"),
)

PANELS: Final = (
    Panel(
        "Fragmentation by node",
        "status-history",
        {
            "{{node}}": (
                f'{metrics.NODE_FRAGMENTATION}{{node=~"$node"}}'
                f" and on (node) {metrics.NODE_ACCELERATORS} > 0"
            )
        },
        height=14,
        width=24,
        unit="percentunit",
        defaults={
            "min": -1,
            "max": 1,
            "color": {"mode": "thresholds"},
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in _STEPS],
            },
        },
        options={"showValue": "never", "rowHeight": 0.9, "colWidth": 1.0},
        description="Free CPU share less free accelerator share. Red: accelerators strand for lack"
        " of CPU; blue: CPU strands for lack of accelerators. Nodes without accelerators strand"
        " nothing and are left out.",
    ),
    Panel(
        "Stranded accelerators",
        "timeseries",
        {"accelerators": metrics.STRANDED_GPUS},
        defaults={"color": {"mode": "fixed", "fixedColor": RED}},
    ),
    Panel(
        "Stranded cores",
        "timeseries",
        {"cores": metrics.STRANDED_CPU},
        defaults={"color": {"mode": "fixed", "fixedColor": BLUE}},
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
        "Decisions",
        "timeseries",
        {"{{policy}} {{reason}}": increase(metrics.DECISIONS, "policy", "reason")},
    ),
    Panel(
        "Planner",
        "timeseries",
        {
            "pass, p99": latency(metrics.PLAN_SECONDS, 0.99),
            "created to pinned, p50": latency(metrics.PIN_SECONDS, 0.5),
            "created to pinned, p99": latency(metrics.PIN_SECONDS, 0.99),
        },
        unit="s",
    ),
    Panel(
        "Waiting pods and failed calls",
        "timeseries",
        {
            "{{state}}": metrics.PODS,
            "failed calls in 5 min": count(metrics.CALL_ERRORS),
            "leading": f"sum({metrics.LEADING})",
        },
    ),
)

_NODES: Final = f"label_values({metrics.NODE_FRAGMENTATION}, node)"

CLUSTER: Final = Dashboard(
    "penstock-cluster",
    "Penstock: cluster and data workers",
    PANELS,
    (
        {
            "name": "node",
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": _NODES, "refId": "node"},
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
            "sort": 1,
        },
    ),
)
