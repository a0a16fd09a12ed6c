"""The Brain's certificate over the life of a release, and the port without TLS after an upgrade."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509

from tests.charts.installed import RELEASE, Installed, installed
from tests.charts.rendering import CHART, SYSTEM
from tests.upgrade.test_goldens import GOLDEN

pytestmark = pytest.mark.e2e
FIRST = GOLDEN / "0.1.0" / f"{RELEASE}-0.1.0.tgz"


async def certificate(found: Installed) -> tuple[x509.Certificate, x509.Certificate]:
    """What the Brain shows, and who is trusted for it."""
    secret = await found.api.get("secrets", "penstock-brain-tls", SYSTEM)
    published = await found.api.get("configmaps", "penstock-brain-ca", SYSTEM)
    shown = base64.b64decode(secret["data"]["tls.crt"])
    return (
        x509.load_pem_x509_certificate(shown),
        x509.load_pem_x509_certificate(published["data"]["ca.crt"].encode()),
    )


async def ports(found: Installed) -> list[str]:
    service = await found.api.get("services", "penstock-brain", SYSTEM)
    return [one["name"] for one in service["spec"]["ports"]]


async def upgrade(found: Installed, **values: object) -> None:
    await found.helm(lambda config: config.upgrade(CHART, RELEASE, dict(values)))


def run(folder: Path, story: Callable[[Installed], Awaitable[None]], chart: Path = CHART) -> None:
    async def main() -> None:
        async with installed(folder, chart=chart) as found:
            await story(found)

    asyncio.run(main())


def test_it_stays_until_somebody_deletes_it(tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        first = await certificate(found)
        first[0].verify_directly_issued_by(first[1])
        await upgrade(found)
        await upgrade(found, logFormat="text")
        assert await certificate(found) == first
        assert await ports(found) == ["https"]
        await found.api.delete("secrets", "penstock-brain-tls", SYSTEM)
        await upgrade(found)
        second = await certificate(found)
        second[0].verify_directly_issued_by(second[1])
        assert second[1] != first[1]

    run(tmp_path, story)


def test_a_port_without_tls_is_there_for_one_upgrade(tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        assert await ports(found) == ["http"]
        await upgrade(found)
        assert await ports(found) == ["https", "http"]
        await upgrade(found)
        assert await ports(found) == ["https"]

    run(tmp_path, story, FIRST)


def test_nor_for_one_where_nobody_wants_it(tmp_path: Path) -> None:
    async def story(found: Installed) -> None:
        await upgrade(found, brain={"tls": {"plain": "never"}})
        assert await ports(found) == ["https"]
        await upgrade(found, brain={"tls": {"enabled": False}})
        assert await ports(found) == ["http"]
        secrets = (await found.api.list("secrets", SYSTEM)).items
        assert "penstock-brain-tls" not in {one["metadata"]["name"] for one in secrets}

    run(tmp_path, story, FIRST)
