"""Resource quotas: what pods take of them, what is refused, and the status."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run, settle
from penstock_cluster.registry import Api, ApiError, Engine
from penstock_cluster.registry.controllers.quotas import covers, usage

Json = dict[str, Any]


def pod(name: str, requests: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    main = {
        "name": "main",
        "image": "any",
        "resources": {"requests": requests or {}, "limits": limits or {}},
    }
    return {"metadata": {"name": name}, "spec": {"containers": [main], **spec}}


async def limited(api: Api, **spec: Any) -> None:
    await api.create("resourcequotas", {"metadata": {"name": "small"}, "spec": spec}, "default")
    await settle()


async def status(api: Api) -> Json:
    await settle()
    found: Json = (await api.get("resourcequotas", "small", "default"))["status"]
    return found


async def refusal_of(api: Api, document: Json) -> str:
    with pytest.raises(ApiError) as refused:
        await api.create("pods", document, "default")
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    return refused.value.message


def test_pods_are_counted_until_they_end() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await limited(api, hard={"pods": "2"})
        assert await status(api) == {"hard": {"pods": "2"}, "used": {"pods": "0"}}
        for name in ("a", "b"):
            await api.create("pods", pod(name), "default")
        assert await refusal_of(api, pod("c")) == (
            'pods "c" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, '
            "limited: pods=2"
        )
        ended = {"status": {"phase": "Succeeded"}}
        await api.patch("pods", "a", ended, "default", subresource="status")
        assert (await status(api))["used"] == {"pods": "1"}
        await api.create("pods", pod("c"), "default")
        await api.delete("pods", "b", "default", grace_period_seconds=0)
        assert (await status(api))["used"] == {"pods": "1"}

    run(scenario)


def test_requests_and_limits_add_up() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        hard = {"requests.cpu": "1", "limits.cpu": "2", "memory": "1Gi"}
        await limited(api, hard=hard)
        await api.create(
            "pods", pod("a", {"cpu": "500m", "memory": "512Mi"}, {"cpu": "1"}), "default"
        )
        used = {"limits.cpu": "1", "memory": "512Mi", "requests.cpu": "500m"}
        assert (await status(api))["used"] == used
        assert await refusal_of(
            api, pod("b", {"cpu": "600m", "memory": "1Mi"}, {"cpu": "1500m"})
        ) == (
            'pods "b" is forbidden: exceeded quota: small, requested: limits.cpu=1500m,'
            "requests.cpu=600m, used: limits.cpu=1,requests.cpu=500m, limited: limits.cpu=2,"
            "requests.cpu=1"
        )
        await api.create(
            "pods", pod("b", {"cpu": "500m", "memory": "1Mi"}, {"cpu": "1"}), "default"
        )

    run(scenario)


def test_what_a_quota_counts_must_be_said() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await limited(api, hard={"limits.cpu": "9", "limits.memory": "9Gi", "pods": "9"})
        document = pod("p", limits={"memory": "1Gi"})
        document["spec"]["initContainers"] = [{"name": "first", "image": "any"}]
        assert await refusal_of(api, document) == (
            'pods "p" is forbidden: failed quota: small: must specify limits.cpu for: first,main; '
            "limits.memory for: first"
        )

    run(scenario)


def test_a_resize_stays_within_the_quota() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await limited(api, hard={"limits.cpu": "2"})
        await api.create("pods", pod("p", {"cpu": "1"}, {"cpu": "2"}), "default")

        async def resize(cpu: str) -> None:
            main = {"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": cpu}}}
            await api.patch(
                "pods",
                "p",
                {"spec": {"containers": [main]}},
                "default",
                kind="strategic",
                subresource="resize",
            )

        with pytest.raises(ApiError, match=r"requested: limits.cpu=1, used: limits.cpu=2"):
            await resize("3")
        await resize("1500m")
        assert (await status(api))["used"] == {"limits.cpu": "1500m"}

    run(scenario)


def test_quotas_are_about_the_pods_in_their_scopes() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await limited(api, hard={"pods": "1"}, scopes=["BestEffort"])
        await api.create("pods", pod("a", {"cpu": "1"}), "default")
        await api.create("pods", pod("b"), "default")
        assert "exceeded quota" in await refusal_of(api, pod("c"))
        await api.create("pods", pod("c", {"cpu": "1"}), "default")
        assert (await status(api))["used"] == {"pods": "1"}

    run(scenario)


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ({"scopes": ["Terminating"]}, True),
        ({"scopes": ["NotTerminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, False),
        (priority := {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}, True),
        ({**priority, "operator": "NotIn"}, False),
        ({**priority, "operator": "Exists", "values": []}, True),
        ({**priority, "values": ["low"]}, False),
    ],
)
def test_scopes(spec: Json, covered: bool) -> None:
    document = pod("p", activeDeadlineSeconds=60, priorityClassName="high")
    if "scopeName" in spec:
        spec = {"scopeSelector": {"matchExpressions": [spec]}}
    assert covers(spec, document) is covered


def test_accelerators_and_other_things() -> None:
    document = pod("p", {"nvidia.com/gpu": "2", "cpu": "1"}, {"nvidia.com/gpu": "2"})
    names = ("requests.nvidia.com/gpu", "cpu", "requests.storage", "services", "count/pods")
    assert usage(document, names) == {"requests.nvidia.com/gpu": 2, "cpu": 1000, "count/pods": 1}
