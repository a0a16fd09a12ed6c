"""The committed dashboards are what the generator says, and use metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from penstock.brain.control.metrics import BrainMetrics
from penstock.controller.metrics import Metrics as ControllerMetrics
from penstock.data.cache.node.metrics import exposition
from penstock.scheduler.dashboards import DASHBOARDS, render
from penstock.scheduler.dashboards.cluster import PANELS
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.service.metrics import Metrics

FOLDER = Path(__file__).parents[2] / "charts" / "penstock" / "dashboards"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_committed_file_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == render(name), "run make generated"


def test_nothing_else_is_committed_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DASHBOARDS)


def shown() -> str:
    """What the four processes show, less what the middleware of the Brain's API counts."""
    metrics = Metrics()
    metrics.show(ClusterState())
    registries = (metrics.registry, BrainMetrics().registry, ControllerMetrics().registry)
    of_caches = exposition({}, 0)
    return of_caches + "".join(generate_latest(registry).decode() for registry in registries)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_names_metrics_that_a_process_has(name: str) -> None:
    there = shown() + "# HELP penstock_api_request_duration_seconds "
    for query in DASHBOARDS[name].queries():
        for metric in re.findall(r"penstock_\w+", query):
            family = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert f"# HELP {family} " in there, metric


def test_red_is_for_accelerators_and_blue_for_cpu() -> None:
    heatmap = PANELS[0]
    assert heatmap.defaults is not None
    steps = heatmap.defaults["thresholds"]["steps"]
    assert "red" in steps[0]["color"]
    assert "blue" in steps[-1]["color"]
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(values)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(render(name))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
