"""The Grafana dashboards, generated: names of metrics are spelt once, in `scheduler.metrics`.

``python -m penstock.scheduler.dashboards charts/penstock/dashboards`` writes them; a test compares
the committed files and runs every query against a Prometheus that scrapes a running scheduler.

The fragmentation heatmap is node by time. Red: accelerators will strand there for lack of CPU.
Blue: CPU will strand for lack of accelerators. Colour is graded in steps, so that two nodes of one
colour are about equally off.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.scheduler import metrics

Json = dict[str, Any]

RED: Final = "dark-red"
BLUE: Final = "dark-blue"

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_STEPS: Final = (
    (None, "dark-red"), (-0.5, "red"), (-0.25, "semi-dark-red"), (-0.05, "light-red"),
    (-0.0499, "#f2f2f2"), (0.05, "light-blue"), (0.25, "semi-dark-blue"), (0.5, "blue"),
    (0.75, "dark-blue"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a query per legend."""

    title: str
    kind: str
    queries: Mapping[str, str]
    height: int = 8
    width: int = 12
    unit: str = "short"
    defaults: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    description: str = ""


def _latency(metric: str, quantile: float) -> str:
    rate = f"sum by (le) (rate({metric}_bucket[5m]))"
    return f"histogram_quantile({quantile}, {rate})"


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
            "{{namespace}}/{{job}} {{state}}": (
                f"sum by (namespace, job, state) ({metrics.DATA_WORKERS})"
            )
        },
    ),
    Panel(
        "Decisions",
        "timeseries",
        {
            "{{policy}} {{reason}}": (
                f"sum by (policy, reason) (increase({metrics.DECISIONS}_total[5m]))"
            )
        },
    ),
    Panel(
        "Planner",
        "timeseries",
        {
            "pass, p99": _latency(metrics.PLAN_SECONDS, 0.99),
            "created to pinned, p50": _latency(metrics.PIN_SECONDS, 0.5),
            "created to pinned, p99": _latency(metrics.PIN_SECONDS, 0.99),
        },
        unit="s",
    ),
    Panel(
        "Waiting pods and failed calls",
        "timeseries",
        {
            "{{state}}": metrics.PODS,
            "failed calls in 5 min": (
                f"sum(increase({metrics.CALL_ERRORS}_total[5m])) or vector(0)"
            ),
            "leading": f"sum({metrics.LEADING})",
        },
    ),
)


def queries(panels: Iterable[Panel] = PANELS) -> Iterator[str]:
    """Every query of the panels."""
    for panel in panels:
        yield from panel.queries.values()


def _panel(number: int, panel: Panel, x: int, y: int) -> Json:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "type": panel.kind,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **(panel.defaults or {})},
            "overrides": [],
        },
        "options": dict(panel.options or {}),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def dashboard() -> Json:
    """The dashboard of the cluster, as Grafana imports it."""
    panels, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(PANELS, start=1):
        if x + panel.width > 24:
            x, y, row = 0, y + row, 0
        panels.append(_panel(number, panel, x, y))
        x, row = x + panel.width, max(row, panel.height)
    variable = f"label_values({metrics.NODE_FRAGMENTATION}, node)"
    return {
        "uid": "penstock-cluster",
        "title": "Penstock: cluster and data workers",
        "tags": ["penstock"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "node",
                    "type": "query",
                    "datasource": _DATASOURCE,
                    "query": {"query": variable, "refId": "node"},
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                    "sort": 1,
                },
            ]
        },
        "panels": panels,
    }


DASHBOARDS: Final = {"cluster.json": dashboard}


def render(name: str) -> str:
    """The text of a committed file."""
    return json.dumps(DASHBOARDS[name](), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Write all dashboards into a folder."""
    if len(arguments) != 1:
        print("usage: python -m penstock.scheduler.dashboards FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    for name in DASHBOARDS:
        (Path(arguments[0]) / name).write_text(render(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
