"""Pod Security admission: labels of namespaces, refusals, warnings, and changes of pods."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run, settle
from penstock_cluster.registry import Api, ApiError, Engine
from penstock_cluster.testing import RunningCluster, api_server

PREFIX = "pod-security.kubernetes.io/"
Json = dict[str, Any]
SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(name: str, context: Json | None = None, **spec: Any) -> Json:
    main = {"name": "main", "image": "any", "securityContext": context or {}}
    return {"metadata": {"name": name}, "spec": {"containers": [main], **spec}}


async def labelled(api: Api, name: str = "closed", **labels: str) -> str:
    found = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    await api.create("namespaces", {"metadata": {"name": name, "labels": found}})
    await settle()
    return name


async def refusal_of(api: Api, document: Json, namespace: str) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await api.create("pods", document, namespace)
    return refused.value


def test_a_pod_that_violates_the_standard_is_refused() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await labelled(api, enforce="restricted")
        await api.create("pods", pod("safe", SAFE), "closed")
        error = await refusal_of(api, pod("p", {**SAFE, "runAsNonRoot": None}), "closed")
        assert (error.code, error.reason) == (403, "Forbidden")
        assert error.message == (
            'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true '
            '(pod or container "main" must set securityContext.runAsNonRoot=true)'
        )
        assert error.details == {"name": "p", "kind": "pods"}
        await api.create("pods", pod("p"), "default")

    run(scenario)


def test_the_version_is_that_of_its_label() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await labelled(api, enforce="restricted", enforce_version="v1.22")
        await api.create("pods", pod("root", SAFE, securityContext={"runAsUser": 0}), "closed")
        error = await refusal_of(api, pod("p", {**SAFE, "capabilities": {}}), "closed")
        assert 'PodSecurity "restricted:v1.22": unrestricted capabilities' in error.message

    run(scenario)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            {"enforce": "strict"},
            (
                f'metadata.labels[{PREFIX}enforce]: Invalid value: "strict": must be one of '
                "privileged, baseline, restricted"
            ),
        ),
        (
            {"warn_version": "1.30"},
            (
                f'metadata.labels[{PREFIX}warn-version]: Invalid value: "1.30": must be "latest" '
                'or "v1.x"'
            ),
        ),
    ],
)
def test_wrong_labels_are_refused(labels: dict[str, str], message: str) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        with pytest.raises(ApiError) as refused:
            await labelled(api, **labels)
        assert refused.value.code == 422
        assert message in refused.value.message
        wrong = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
        with pytest.raises(ApiError):
            await api.patch("namespaces", "default", {"metadata": {"labels": wrong}})

    run(scenario)


def test_only_changes_that_matter_are_looked_at() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("pods", pod("old"), "default")
        label = {"metadata": {"labels": {f"{PREFIX}enforce": "baseline"}}}
        await api.patch("namespaces", "default", label)
        await api.create("pods", pod("open"), "default")
        label["metadata"]["labels"][f"{PREFIX}enforce"] = "restricted"
        await api.patch("namespaces", "default", label)
        for name in ("old", "open"):
            await api.patch("pods", name, {"metadata": {"labels": {"a": "b"}}}, "default")
            phase = {"status": {"phase": "Running"}}
            await api.patch("pods", name, phase, "default", subresource="status")
        image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]
        with pytest.raises(ApiError) as refused:
            await api.patch("pods", "old", image, "default", kind="json")
        assert 'violates PodSecurity "restricted:latest"' in refused.value.message

    run(scenario)


def _warnings(answer: Any) -> list[str]:
    return [text.replace('\\"', '"') for text in answer.headers.get("warning", [])]


def test_warnings() -> None:
    with api_server() as cluster:
        pods_are_warned_of(cluster)
        templates_are_warned_of_and_taken(cluster)


def pods_are_warned_of(cluster: RunningCluster) -> None:
    labels = {f"{PREFIX}warn": "restricted"}
    cluster.create("namespaces", {"metadata": {"name": "warned", "labels": labels}})
    cluster.wait(lambda: cluster.find("serviceaccounts", "default", "warned"), "an account")
    path = cluster.path("pods", "warned")
    answer = cluster.request("POST", path, pod("p", {**SAFE, "runAsNonRoot": None}))
    assert answer.status == 201
    assert _warnings(answer) == [
        (
            '299 - "would violate PodSecurity "restricted:latest": runAsNonRoot != true (pod or '
            'container "main" must set securityContext.runAsNonRoot=true)"'
        )
    ]
    assert _warnings(cluster.request("POST", path, pod("q", SAFE))) == []
    cluster.create("pods", pod("r"), "warned")
    answer = cluster.request(
        "PATCH",
        cluster.path("namespaces", name="warned"),
        {"metadata": {"labels": {f"{PREFIX}enforce": "restricted"}}},
        content_type="application/merge-patch+json",
    )
    assert _warnings(answer) == [
        (
            '299 - "existing pods in namespace "warned" violate the new PodSecurity enforce level '
            '"restricted:latest""'
        ),
        '299 - "p: runAsNonRoot != true"',
        (
            '299 - "r: allowPrivilegeEscalation != false, unrestricted capabilities, '
            'runAsNonRoot != true, seccompProfile"'
        ),
    ]


def templates_are_warned_of_and_taken(cluster: RunningCluster) -> None:
    labels = {f"{PREFIX}enforce": "baseline"}
    cluster.create("namespaces", {"metadata": {"name": "closed", "labels": labels}})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("")["spec"]}
    template["spec"]["hostNetwork"] = True
    document = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    answer = cluster.request("POST", cluster.path("deployments.apps", "closed"), document)
    assert answer.status == 201
    assert _warnings(answer) == [
        '299 - "would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"'
    ]
