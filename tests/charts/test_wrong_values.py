"""Wrong values are refused before anything is rendered, and the message has their path."""

from __future__ import annotations

import helm_python as helm
import pytest

from tests.charts.rendering import CHART, Json

PG = {"kind": "postgresql"}

WRONG: list[tuple[Json, str]] = [
    ({"controler": {}}, "controler"),
    ({"controller": {"replica": 2}}, "replica"),
    ({"controller": {"replicas": 0}}, "/controller/replicas"),
    ({"controller": {"replicas": "two"}}, "/controller/replicas"),
    ({"controller": {"shards": 0}}, "/controller/shards"),
    ({"controller": {"shards": 17, "replicas": 20}}, "/controller/shards"),
    ({"controller": {"shards": 3}}, "controller.shards = 3: at most controller.replicas"),
    ({"controller": {"workers": 1000}}, "/controller/workers"),
    ({"controller": {"resources": {"requests": {"memory": "much"}}}}, "/requests/memory"),
    ({"brain": {"replicas": 2}}, "/brain/replicas"),
    ({"brain": {"config": {"administrator": {"interval": 5}}}}, "/brain/config/administrator"),
    ({"brain": {"config": {"executor": {"processes": 0}}}}, "/brain/config/executor/processes"),
    ({"brain": {"config": {"policies": {"AllReduce": {"Later": []}}}}}, "/policies/AllReduce"),
    ({"brain": {"database": {"kind": "mysql"}}}, "/brain/database/kind"),
    ({"brain": {"database": PG}}, "/brain/database/postgresql"),
    (
        {"brain": {"database": {**PG, "postgresql": {"url": "postgres://db"}}}},
        "/brain/database/postgresql/url",
    ),
    (
        {
            "brain": {
                "database": {
                    **PG,
                    "postgresql": {"url": "postgresql+asyncpg://db", "secretName": "s"},
                }
            }
        },
        "/brain/database/postgresql",
    ),
    ({"brain": {"database": {"sqlite": {"size": "ten"}}}}, "/brain/database/sqlite/size"),
    ({"scheduler": {"interval": 0}}, "/scheduler/interval"),
    ({"scheduler": {"allocation": "Best"}}, "/scheduler/allocation"),
    ({"scheduler": {"placement": "Best"}}, "/scheduler/placement"),
    ({"scheduler": {"accelerators": ["gpu"]}}, "/scheduler/accelerators/0"),
    ({"image": {"registry": "a: b"}}, "/image/registry"),
    ({"image": {"control": {"repository": '"q'}}}, "/image/control/repository"),
    ({"scheduler": {"affinity": {"node": {}}}}, "node"),
    ({"image": {"control": {"digest": "abc"}}}, "/image/control/digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"image": {"pullSecrets": [{"name": "x"}]}}, "/image/pullSecrets/0"),
    ({"logFormat": "xml"}, "/logFormat"),
    ({"listenAddress": "localhost"}, "/listenAddress"),
    ({"crds": {"keep": "yes"}}, "/crds/keep"),
    ({"roles": {"brainUsers": ["anna"]}}, "/roles/brainUsers/0"),
    ({"roles": {"brainUsers": [{"kind": "Person", "name": "a"}]}}, "/roles/brainUsers/0/kind"),
    ({"roles": {"brainUsers": [{"kind": "ServiceAccount", "name": "a"}]}}, "needs its namespace"),
    ({"networkPolicy": {"apiServerPorts": [70000]}}, "/networkPolicy/apiServerPorts/0"),
    ({"networkPolicy": {"monitoring": [{}]}}, "/networkPolicy/monitoring/0"),
    ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "/serviceMonitor/interval"),
    ({"cache": {"enabled": True}}, "/cache/paths"),
    ({"cache": {"enabled": True, "memory": "much"}}, "/cache/memory"),
    ({"cache": {"paths": ["/data"]}}, "/cache/paths/0"),
    ({"cache": {"paths": [{"path": "data"}]}}, "/cache/paths/0/path"),
    ({"cache": {"paths": [{"path": "/data/"}]}}, "/cache/paths/0/path"),
    ({"cache": {"paths": [{"path": "/$(X)"}]}}, "/cache/paths/0/path"),
    ({"cache": {"paths": [{"path": "/d", "hostPath": "/d", "claim": "d"}]}}, "/cache/paths/0"),
    ({"cache": {"enabled": True, "nodes": True, "paths": [{"path": "/d"}]}}, "/cache/paths/0"),
    ({"cache": {"tokenSecret": "Mine"}}, "/cache/tokenSecret"),
    ({"monitoring": {"dashboards": {"labels": {"a": 1}}}}, "/dashboards/labels/a"),
]

NEEDED = [
    *("image", "crds", "roles", "controller", "brain", "scheduler", "monitoring", "logFormat"),
    *("networkPolicy", "podDisruptionBudget", "listenAddress"),
    *("controller.workers", "brain.database", "brain.database.sqlite.size", "brain.config"),
    *("scheduler.interval", "image.control.repository", "networkPolicy.apiServerPorts"),
    *("brain.database.postgresql.secretKey", "monitoring.serviceMonitor.interval"),
]


@pytest.mark.parametrize("path", NEEDED)
def test_what_is_needed_cannot_be_taken_away(path: str) -> None:
    """Helm takes a null for "without the default": the templates would stumble over it."""
    *above, name = path.split(".")
    values: Json = {name: None}
    for each in reversed(above):
        values = {each: values}
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmValuesError) as refused:
        chart.render(values, name="penstock", namespace="penstock-system")
    assert f"missing property '{name}'" in str(refused.value)
    assert "/".join(above) in str(refused.value)


@pytest.mark.parametrize(("values", "path"), WRONG, ids=[path for _, path in WRONG])
def test_it_is_refused_with_its_path(values: Json, path: str) -> None:
    with (
        helm.Chart.load(CHART) as chart,
        pytest.raises((helm.HelmValuesError, helm.HelmRenderError)) as refused,
    ):
        chart.render(values, name="penstock", namespace="penstock-system")
    assert path in str(refused.value)
