"""The token of a pod's account expires while the pod runs, and is renewed in its folder."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from penstock.crds.environment import BRAIN_AUDIENCE
from penstock_cluster.registry.tokens import TokenError
from tests.charts.installed import Installed, installed, until
from tests.charts.rendering import SYSTEM
from tests.charts.test_installed import quick, worker

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LIFE_SECONDS = 20
# The client library reads the file once a minute, as suits tokens that live for ten: so that a test
# of seconds sees what a cluster sees in an hour, the components here read it every second.
READ_OFTEN = """
import datetime
from kubernetes.aio.config.incluster_config import InClusterConfigLoader as Loader
made = Loader.__init__
def make(self, *args, **named):
    made(self, *args, **named)
    self._token_refresh_period = datetime.timedelta(seconds=1)
Loader.__init__ = make
"""


def test_components_outlive_their_tokens(tmp_path: Path) -> None:
    components = ("controller", "brain", "scheduler")

    async def story(found: Installed) -> None:
        for component in components:
            await found.start(component, PYTHONPATH=own)
        pods = [await found.ready(component) for component in components]
        first = {
            pod["metadata"]["name"]: token_of(tmp_path, pod["metadata"]["uid"]) for pod in pods
        }
        shown = brain_token_of(tmp_path, pods[components.index("scheduler")]["metadata"]["uid"])
        assert found.cluster.engine.tokens.user_of(shown, (BRAIN_AUDIENCE,))
        with pytest.raises(TokenError, match="audience"):  # whoever hears it can do nothing more
            found.cluster.engine.tokens.user_of(shown)
        await found.create("elasticjobs.penstock.dev", quick("before"))
        await until("a worker runs", lambda: worker(found, "before"))

        async def expired() -> bool:
            return all(has_expired(found, token) for token in first.values())

        await until("the first tokens have expired", expired)
        # What was opened with the first token goes on; all that is asked from now on needs another.
        await found.cluster.faults.close_watches()
        await found.create("elasticjobs.penstock.dev", quick("after"))
        await until("a worker runs", lambda: worker(found, "after"))
        async with await found.brain() as brain:
            answer = await brain.get("/v1/jobs")
            assert answer.status_code == 200, answer.text
        for pod in pods:
            name = pod["metadata"]["name"]
            assert token_of(tmp_path, pod["metadata"]["uid"]) != first[name]
            now = await found.api.get("pods", name, SYSTEM)
            assert [one["restartCount"] for one in now["status"]["containerStatuses"]] == [0], name

    async def main() -> None:
        async with installed(tmp_path, longest_token_seconds=LIFE_SECONDS) as found:
            await story(found)

    # Not below /tmp: the Brain has a volume there, to which the path would be turned.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as own:
        Path(own, "sitecustomize.py").write_text(READ_OFTEN)
        asyncio.run(main())


def token_of(folder: Path, uid: str) -> str:
    [path] = folder.glob(f"pods/**/*{uid}*/volumes/kube-api-access-*/token")
    return path.read_text()


def brain_token_of(folder: Path, uid: str) -> str:
    [path] = folder.glob(f"pods/**/*{uid}*/volumes/brain-token/token")
    return path.read_text()


def has_expired(found: Installed, token: str) -> bool:
    try:
        found.cluster.engine.tokens.user_of(token)
    except TokenError as error:
        return "expired" in str(error)
    return False
