"""What Helm installed is removed without Helm, and Helm can install it anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.charts.installed import RELEASE, Installed, installed
from tests.charts.rendering import CHART, SYSTEM
from tests.cli.terminal import Ran, Terminal


@pytest.mark.slow
def test_the_chart_is_removed_and_installed_again(tmp_path: Path) -> None:
    async def penstock(found: Installed, *arguments: str) -> Ran:
        return await asyncio.to_thread(Terminal(found.kubeconfig).ok, *arguments)

    async def main() -> None:
        async with installed(tmp_path) as found:
            doctor = await asyncio.to_thread(Terminal(found.kubeconfig), "doctor", "-o", "json")
            rights = [each for each in doctor.json if each["check"] == "components' rights"]
            assert [each["verdict"] for each in rights] == ["ok"] * 3, "the chart gives them all"

            await penstock(found, "uninstall", "--yes")
            everything = ("uninstall", "--crds", "--history")
            left = await penstock(found, *everything, "--dry-run", "-o", "json")
            assert {each["resource"] for each in left.json} == {
                "customresourcedefinitions",
                "persistentvolumeclaims",
            }
            assert await found.find("deployments.apps", "penstock-brain", SYSTEM) is None
            release = f"sh.helm.release.v1.{RELEASE}.v1"
            assert await found.find("secrets", release, SYSTEM) is None
            await penstock(found, *everything, "--yes")
            await found.helm(lambda config: config.install(CHART, RELEASE))
            assert await found.find("deployments.apps", "penstock-brain", SYSTEM) is not None

    asyncio.run(main())
