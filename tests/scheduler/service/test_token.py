"""The token that the planner shows the Brain where it has a kubeconfig's, or a pod's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.kube.connection import connect
from penstock.scheduler.service.process import USER_AGENT, OwnToken
from tests.kube.account import mounted


def test_it_is_bare_and_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = mounted(tmp_path / "account", monkeypatch)
    account.write("first")

    async def main() -> list[str]:
        client = await connect(None, USER_AGENT)
        token = OwnToken(client)
        try:
            await token.renew()
            said = [token()]
            account.write("second")
            account.wait(61)
            await token.renew()
            return [*said, token()]
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    assert asyncio.run(main()) == ["first", "second"]
