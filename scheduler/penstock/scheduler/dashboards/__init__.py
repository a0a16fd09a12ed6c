"""The Grafana dashboards, generated: names of metrics are spelt once.

``python -m penstock.scheduler.dashboards`` writes them (``make generated``); tests compare the
committed files and run every query against a Prometheus that scrapes the running processes.
"""

from __future__ import annotations

import json
from typing import Final

from penstock.scheduler.dashboards.brain import BRAIN
from penstock.scheduler.dashboards.cluster import CLUSTER
from penstock.scheduler.dashboards.jobs import JOBS

DASHBOARDS: Final = {"cluster.json": CLUSTER, "jobs.json": JOBS, "brain.json": BRAIN}


def render(name: str) -> str:
    """The text of a committed file."""
    return json.dumps(DASHBOARDS[name].document(), indent=2) + "\n"
