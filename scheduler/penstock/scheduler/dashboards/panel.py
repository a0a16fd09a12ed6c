"""Panels and dashboards as values, and the JSON that Grafana imports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24


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


def latency(metric: str, quantile: float, by: str = "") -> str:
    """A quantile of a histogram's last five minutes, for each value of a label if one is named."""
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket[5m]))"
    return f"histogram_quantile({quantile}, {rate})"


def rate(metric: str, *by: str) -> str:
    """How often something is counted, in events per second."""
    return f"sum by ({', '.join(by)}) (rate({metric}_total[5m]))"


def increase(metric: str, *by: str) -> str:
    """How often something was counted in the last five minutes."""
    return f"sum by ({', '.join(by)}) (increase({metric}_total[5m]))"


def count(metric: str) -> str:
    """The same of something that may never have happened: 0 then."""
    return f"sum(increase({metric}_total[5m])) or vector(0)"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels; `variables` are Grafana's, beside that of the data source."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[Json, ...] = ()

    def queries(self) -> Iterator[str]:
        """Every query of the panels."""
        for panel in self.panels:
            yield from panel.queries.values()

    def document(self) -> Json:
        """The dashboard as Grafana imports it."""
        panels, x, y, row = [], 0, 0, 0
        for number, panel in enumerate(self.panels, start=1):
            if x + panel.width > _WIDTH:
                x, y, row = 0, y + row, 0
            panels.append(_panel(number, panel, x, y))
            x, row = x + panel.width, max(row, panel.height)
        source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["penstock"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [source, *self.variables]},
            "panels": panels,
        }


def _panel(number: int, panel: Panel, x: int, y: int) -> Json:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "type": panel.kind,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **(panel.defaults or {})},
            "overrides": [],
        },
        "options": dict(panel.options or {}),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
