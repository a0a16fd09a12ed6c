"""Limit ranges: defaults that containers get, and bounds that refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run
from penstock_cluster.registry import Api, ApiError, Engine
from penstock_cluster.registry.admission.limit_ranges import out_of_bounds

Json = dict[str, Any]


async def limited(api: Api, *limits: Json) -> Json:
    document = {"metadata": {"name": "l"}, "spec": {"limits": list(limits)}}
    return await api.create("limitranges", document, "default")


def pod(name: str, **resources: Json) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "any", "resources": resources}],
            "initContainers": [{"name": "first", "image": "any"}],
        },
    }


def test_containers_get_defaults() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        item = {"default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
        await limited(api, {"type": "Container", **item})
        made = await api.create("pods", pod("p", limits={"memory": "2Gi"}), "default")
        assert made["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "100m", "memory": "2Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        }
        assert made["spec"]["initContainers"][0]["resources"] == {
            "requests": {"cpu": "100m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        }
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: cpu request for container main; cpu limit for container main; "
            "cpu, memory request for init container first; cpu, memory limit for init container "
            "first"
        )
        assert made["status"]["qosClass"] == "Burstable"

    run(scenario)


def test_a_maximum_is_a_default_too() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        stored = await limited(api, {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}})
        [item] = stored["spec"]["limits"]
        assert (item["default"], item["defaultRequest"]) == ({"cpu": "2"}, {"cpu": "2"})
        made = await api.create("pods", pod("p"), "default")
        assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}

    run(scenario)


def test_a_container_out_of_bounds_is_refused() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await limited(api, {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}})
        with pytest.raises(ApiError) as refused:
            await api.create("pods", pod("p", limits={"cpu": "3"}), "default")
        assert refused.value.code == 403
        assert refused.value.message == (
            'pods "p" is forbidden: maximum cpu usage per Container is 2, but limit is 3'
        )
        await api.create("pods", pod("p", limits={"cpu": "2"}), "default")
        main = {"name": "main", "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}}
        with pytest.raises(ApiError, match="maximum cpu usage per Container is 2"):
            await api.patch(
                "pods",
                "p",
                {"spec": {"containers": [main]}},
                "default",
                kind="strategic",
                subresource="resize",
            )

    run(scenario)


@pytest.mark.parametrize(
    ("resources", "item", "message"),
    [
        (
            {"requests": {"cpu": "50m"}},
            {"min": {"cpu": "100m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {},
            {"min": {"memory": "1Mi"}},
            "minimum memory usage per Container is 1Mi.  No request is specified",
        ),
        ({}, {"max": {"cpu": "1"}}, "maximum cpu usage per Container is 1.  No limit is specified"),
        (
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ],
)
def test_bounds(resources: Json, item: Json, message: str) -> None:
    assert list(out_of_bounds(resources, item)) == [message]


def test_what_is_within_the_bounds() -> None:
    item = {"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}
    assert not list(out_of_bounds({"requests": {"cpu": "1"}, "limits": {"cpu": "2000m"}}, item))
