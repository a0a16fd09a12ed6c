"""How kopf comes by its credentials: in a pod, from the token that the kubelet keeps renewing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.controller import framework
from penstock.controller.framework import login
from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.controller.reconcile import Settings
from penstock.controller.service import USER_AGENT
from penstock.kube.connection import connect
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.controller.scripted_life import install
from tests.controller.test_shell import make_job, until, workers
from tests.kube.account import Account, mounted


def test_the_token_is_bare_and_the_renewed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = mounted(tmp_path / "account", monkeypatch)
    account.write("first")

    async def main() -> list[str | None]:
        client = await connect(None, USER_AGENT)
        try:
            said = [(await login(client.configuration)).as_http_headers()["Authorization"]]
            account.write("second")
            account.wait(61)
            said.append((await login(client.configuration)).as_http_headers()["Authorization"])
            return said
        finally:
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    assert asyncio.run(main()) == ["Bearer first", "Bearer second"]


@pytest.fixture
def server() -> Iterator[RunningCluster]:
    with api_server(serving=ServeOptions(tls=True)) as cluster:
        cluster.run(install(cluster.engine))
        cluster.namespace("system")
        cluster.namespace("jobs")
        yield cluster


def refuse(server: RunningCluster) -> None:
    """The account is made anew, so that tokens of the earlier one are refused from here on."""
    if server.find("serviceaccounts", "controller", "system"):
        server.delete("serviceaccounts", "controller", "system")
    server.create("serviceaccounts", {"metadata": {"name": "controller"}}, "system")


def renew(server: RunningCluster, account: Account) -> None:
    """A token of the account as it is now is where the controller finds it."""
    authority = server.server.ca_pem
    assert authority is not None
    account.authority = authority
    account.write(server.account_token("system", "controller"))


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_the_controller_works_on_when_its_token_is_refused_and_another_is_there(
    server: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Or comes to be there: what was refused is tried again until then."""
    place = urlsplit(server.url)
    assert place.hostname
    assert place.port
    account = mounted(tmp_path / "account", monkeypatch, (place.hostname, place.port))
    refuse(server)
    renew(server, account)
    logins = 0

    async def count(configuration: Any) -> Any:
        nonlocal logins
        logins += 1
        return await login(configuration)

    monkeypatch.setattr(framework, "login", count)

    async def cut_off() -> None:
        server.engine.close_watches()

    async def main() -> None:
        client = await connect(None, USER_AGENT)
        operator = Operator(
            client,
            Options(Settings(trainer_image="t"), namespace="jobs"),
            Metrics(),
            random_source=random.Random(1),
        )
        task = asyncio.create_task(operator.run())
        try:
            make_job(server, "jobs", replicas=1)
            await until("a worker", lambda: task.done() or len(workers(server, "jobs")) == 1)
            await asyncio.to_thread(refuse, server)
            if late:
                server.run(cut_off())
                before = logins
                await until("login in vain", lambda: task.done() or logins >= before + 4)
            await asyncio.to_thread(renew, server, account)
            account.wait(61)
            server.run(cut_off())
            job = server.get("elasticjobs.penstock.dev", "job", "jobs")
            job["metadata"] = {"name": "later", "namespace": "jobs"}
            job.pop("status", None)
            server.create("elasticjobs.penstock.dev", job, "jobs")
            await until(
                "a worker of the job that only the new token shows",
                lambda: task.done() or "later-worker-0-0" in workers(server, "jobs"),
            )
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here

    asyncio.run(main())
    assert workers(server, "jobs") == ["job-worker-0-0", "later-worker-0-0"]
