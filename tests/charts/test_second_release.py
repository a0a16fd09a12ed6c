"""A second release beside the first: Helm refuses it before it changes anything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import helm_python as helm
import pytest

from tests.charts.installed import RBAC, RELEASE, Installed, installed
from tests.charts.rendering import CHART, SYSTEM

KINDS = (
    "namespaces",
    "services",
    "serviceaccounts",
    "secrets",
    "deployments.apps",
    f"clusterroles.{RBAC}",
    f"clusterrolebindings.{RBAC}",
    "customresourcedefinitions.apiextensions.k8s.io",
)
SECONDS = [(RELEASE, "elsewhere"), ("second", "elsewhere"), ("second", SYSTEM)]


async def everything(found: Installed) -> set[tuple[str, str, str, str]]:
    """All objects of the kinds that a release has, with their versions."""
    return {
        (kind, metadata.get("namespace", ""), metadata["name"], metadata["resourceVersion"])
        for kind in KINDS
        for metadata in (one["metadata"] for one in (await found.api.list(kind)).items)
    }


@pytest.mark.e2e
def test_it_is_refused_and_the_first_stays_as_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with installed(tmp_path) as found:
            before = await everything(found)
            for name, namespace in SECONDS:
                with pytest.raises(helm.HelmError, match="cannot be imported into the current"):
                    await asyncio.to_thread(install, found, name, namespace)
            assert await everything(found) == before

    def install(found: Installed, name: str, namespace: str) -> None:
        with helm.Config(kubeconfig_path=found.kubeconfig, namespace=namespace) as config:
            config.install(CHART, name, {}, create_namespace=True)

    asyncio.run(main())
