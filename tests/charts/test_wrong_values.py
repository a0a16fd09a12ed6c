"""Wrong values are refused before anything is rendered, and the message has their path."""

import helm_python as helm
import pytest

from tests.charts.rendering import CHART, Json

PG = {"kind": "postgresql"}

WRONG: list[tuple[Json, str]] = [
    ({"controler": {}}, "controler"),
    ({"controller": {"replica": 2}}, "replica"),
    ({"controller": {"replicas": 0}}, "/controller/replicas"),
    ({"controller": {"replicas": "two"}}, "/controller/replicas"),
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
    ({"image": {"control": {"digest": "abc"}}}, "/image/control/digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"image": {"pullSecrets": [{"name": "x"}]}}, "/image/pullSecrets/0"),
    ({"logFormat": "xml"}, "/logFormat"),
    ({"listenAddress": "localhost"}, "/listenAddress"),
    ({"crds": {"keep": "yes"}}, "/crds/keep"),
    ({"networkPolicy": {"apiServerPorts": [70000]}}, "/networkPolicy/apiServerPorts/0"),
    ({"networkPolicy": {"monitoring": [{}]}}, "/networkPolicy/monitoring/0"),
    ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "/serviceMonitor/interval"),
    ({"monitoring": {"dashboards": {"labels": {"a": 1}}}}, "/dashboards/labels/a"),
]


@pytest.mark.parametrize(("values", "path"), WRONG, ids=[path for _, path in WRONG])
def test_it_is_refused_with_its_path(values: Json, path: str) -> None:
    with (
        helm.Chart.load(CHART) as chart,
        pytest.raises((helm.HelmValuesError, helm.HelmRenderError)) as refused,
    ):
        chart.render(values, name="penstock", namespace="penstock-system")
    assert path in str(refused.value)
