"""The chart in somebody's own cluster, by what people have there: a kubeconfig, kubectl and Helm.

The cluster's own controllers run the Deployments and its kubelets the probes; nothing here knows
more of it than a person would. All that was put into it is removed again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import helm_python as helm
import httpx
import yaml

from penstock.client.brain.brain_address import BrainAddress, find_brain
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import read_access
from penstock.client.trust import verified_by
from penstock.local.demo.observation.observer import Connection, Observer
from tests.charts.installed import COMPONENTS, RELEASE
from tests.charts.rendering import CHART, SYSTEM, Json

JOBS_NAMESPACE: Final = "penstock-demo"
PERSON: Final = "demonstrator"
ROLLOUT: Final = "180s"
_RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


class ElsewhereError(Exception):
    """The demo cannot be run there; says why and what to do."""


class PersonsObserver(Observer):
    """Loses a worker as a person loses one: its pod is deleted, and does not end orderly."""

    async def kill_container(self, pod: str) -> None:
        answer = await self._cluster.delete(self._pod(pod), params={"gracePeriodSeconds": "0"})
        answer.raise_for_status()


class Elsewhere:
    """A cluster with the chart in it, and a namespace for jobs; use as an async context manager."""

    def __init__(self, kubeconfig: Path, values: Json, image: str) -> None:
        """``values``: of the chart; ``image``: of the examples, as the cluster pulls it."""
        self.kubeconfig, self._values, self._image = kubeconfig, values, image
        self._found: list[BrainAddress] = []
        self._made: list[tuple[str, ...]] = []

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl; what it prints."""
        program = shutil.which("kubectl")
        if program is None:
            raise ElsewhereError("kubectl is not installed: the demo elsewhere is typed with it")
        ran = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if ran.returncode:
            raise ElsewhereError(f"kubectl {' '.join(arguments)}: {ran.stderr.strip()}")
        return ran.stdout

    def _get(self, *arguments: str) -> Any:
        return json.loads(
            self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found") or "{}"
        )

    async def __aenter__(self) -> Self:
        for namespace in (SYSTEM, JOBS_NAMESPACE):
            if self._get("namespace", namespace):
                raise ElsewhereError(
                    f"namespace {namespace} is there already: the demo installs Penstock and "
                    "removes it again, and takes a cluster without it"
                )
        try:
            await self._install()
            await asyncio.to_thread(self._prepare)
        except BaseException:
            await self._remove()
            raise
        return self

    async def _install(self) -> None:
        def work() -> None:
            with helm.Config(kubeconfig_path=self.kubeconfig, namespace=SYSTEM) as config:
                config.install(CHART, RELEASE, self._values, create_namespace=True)

        self._made.append(("namespace", SYSTEM))
        await asyncio.to_thread(work)
        labels = [f"{key}={value}" for key, value in _RESTRICTED.items()]
        await asyncio.to_thread(self.kubectl, "label", "namespace", SYSTEM, *labels)
        rollout = ("rollout", "status", f"--timeout={ROLLOUT}", "-n", SYSTEM)
        for component in COMPONENTS:
            await asyncio.to_thread(self.kubectl, *rollout, f"deployment/penstock-{component}")

    def _prepare(self) -> None:
        """A strict namespace for jobs, and an account that may do everything."""
        person = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": PERSON}
        administrator = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
        documents = [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": JOBS_NAMESPACE, "labels": _RESTRICTED},
            },
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"namespace": SYSTEM, "name": PERSON},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"penstock-{PERSON}"},
                "roleRef": {**administrator, "name": "cluster-admin"},
                "subjects": [person],
            },
        ]
        self._made.append(("clusterrolebinding", f"penstock-{PERSON}"))
        self._made.append(("namespace", JOBS_NAMESPACE))
        self.create(*documents)

    def create(self, *documents: Json) -> None:
        """Apply objects."""
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def example(self, job: Json) -> Json:
        """A job with the images of this cluster, in its namespace."""
        text = yaml.safe_dump(job).replace("penstock/examples:latest", self._image)
        document: Json = yaml.safe_load(text)
        document["metadata"]["namespace"] = JOBS_NAMESPACE
        return document

    async def connection(self) -> Connection:
        """To the API server, for that account."""
        view = ("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
        config = json.loads(await asyncio.to_thread(self.kubectl, *view))
        cluster = config["clusters"][0]["cluster"]
        token = await asyncio.to_thread(self.kubectl, "create", "token", PERSON, "-n", SYSTEM)
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return Connection(cluster["server"], token.strip(), authority)

    async def brain(self) -> httpx.AsyncClient:
        """The Brain, found as the command line finds it; its port is led here until the end."""

        def find() -> BrainAddress:
            access = read_access(self.kubeconfig)
            with ClusterClient(access) as cluster:
                return find_brain(cluster, account=f"{SYSTEM}/{PERSON}")

        address = await asyncio.to_thread(find)
        self._found.append(address)
        assert callable(address.token)
        return httpx.AsyncClient(
            base_url=address.url,
            headers={"Authorization": f"Bearer {await asyncio.to_thread(address.token)}"},
            verify=verified_by(address.trust),
            trust_env=False,
            timeout=15,
        )

    async def faults(self) -> list[str]:
        """What the components say that they were refused, and those that did not stay up."""
        found = []
        for component in COMPONENTS:
            selector = f"--selector=app.kubernetes.io/component={component}"
            logs = ("logs", "-n", SYSTEM, selector, "--tail=-1", "--all-containers")
            text = await asyncio.to_thread(self.kubectl, *logs)
            found += [line for line in text.splitlines() if "is forbidden" in line][:5]
            pods = await asyncio.to_thread(self._get, "pods", "-n", SYSTEM, selector)
            for pod in pods["items"]:
                for status in pod["status"].get("containerStatuses", []):
                    if status["restartCount"]:
                        found.append(f"{component} was restarted {status['restartCount']} times")
        return found

    @property
    def has_gpus(self) -> bool:
        """Whether a node has what the second job asks for."""
        nodes = self._get("nodes")["items"]
        return any(int(one["status"]["allocatable"].get("nvidia.com/gpu", 0)) for one in nodes)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._remove()

    async def _remove(self) -> None:
        for address in self._found:
            address.close()

        def work() -> None:
            jobs = ("elasticjobs.penstock.dev", "--all", "-n", JOBS_NAMESPACE)
            for arguments in (jobs, *reversed(self._made)):
                try:
                    self.kubectl("delete", *arguments, "--ignore-not-found", "--timeout=120s")
                except ElsewhereError as error:
                    print(f"not removed: {error}")
                if arguments is jobs:
                    with helm.Config(kubeconfig_path=self.kubeconfig, namespace=SYSTEM) as config:
                        config.uninstall(RELEASE)
            kept = ("elasticjobs.penstock.dev", "scales.penstock.dev")
            self.kubectl("delete", "customresourcedefinition", *kept, "--ignore-not-found")

        await asyncio.to_thread(work)
