"""A whole control plane for a test: embedded cluster, controller and Brain as real processes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.elastic.cluster import administrators_client
from penstock.local.control_plane.components import penstock
from penstock.local.control_plane.home import ControlPlaneState, Home
from penstock_cluster.faults.client import FaultsClient
from tests.patience import patient

ROOT = Path(__file__).parents[2]
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

Json = dict[str, Any]


PATHS = {
    "ej": "/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs",
    "scales": "/apis/penstock.dev/v1alpha1/namespaces/default/scales",
    "pods": "/api/v1/namespaces/default/pods",
    "services": "/api/v1/namespaces/default/services",
    "nodes": "/api/v1/nodes",
    "trainjobs": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
}


class ControlPlane:
    """A running control plane and the ways in which a person would use it."""

    def __init__(self, home: Home, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.process = process
        self._kubeconfig = ""
        self._http: httpx.Client | None = None

    @property
    def state(self) -> ControlPlaneState:
        state = self.home.read_state()
        assert state is not None
        return state

    @property
    def brain_url(self) -> str:
        return self.state.components["brain"].url

    @property
    def token(self) -> str:
        header: str = self._client().headers["Authorization"]
        return header.removeprefix("Bearer ")

    def brain(self, path: str) -> Any:
        """GET a path of the Brain, as the cluster's administrator."""
        response = self._client().get(self.brain_url + path)
        response.raise_for_status()
        return response.json()

    def get(self, resource: str, name: str = "", *, selector: str = "") -> Json:
        """One object, or the list of a kind. For polls: kubectl takes 50 times as much CPU."""
        path = f"{PATHS[resource]}/{name}" if name else PATHS[resource]
        response = self._client().get(path, params={"labelSelector": selector} if selector else {})
        assert response.is_success, response.text + self.last_words()
        document: Json = response.json()
        return document

    def logs(self, pod: str) -> str:
        """What a pod has printed; empty before it has. For polls, as `get`."""
        response = self._client().get(f"{PATHS['pods']}/{pod}/log")
        return response.text if response.is_success else ""

    def _client(self) -> httpx.Client:
        """A client for the API server and the Brain; another one once the cluster has new keys."""
        kubeconfig = self.home.kubeconfig.read_text()
        if self._http is None or kubeconfig != self._kubeconfig:
            self.close()
            self._kubeconfig = kubeconfig
            self._http = administrators_client(kubeconfig)
        return self._http

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run kubectl; returns what it prints (with check=False: standard error as well)."""
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=patient(60),
            env={**os.environ, "KUBECONFIG": str(self.home.kubeconfig)},
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{self.last_words()}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, manifest: Json) -> None:
        """``kubectl apply`` of one object."""
        self.kubectl("apply", "-f", "-", text=json.dumps(manifest))

    def kill(self, component: str) -> None:
        """SIGKILL one component; the supervisor starts it again."""
        os.kill(self.state.components[component].pid, signal.SIGKILL)

    def wait_for(self, job: str, condition: str, timeout_seconds: int = 50) -> None:
        """``kubectl wait --for=condition=...``."""
        self.kubectl(
            "wait",
            f"--for=condition={condition}",
            f"ej/{job}",
            f"--timeout={patient(timeout_seconds):.0f}s",
        )

    def fault(self, fault: str, /, **arguments: Any) -> None:
        """Have the cluster carry out one of its faults."""
        document = yaml.safe_load(self.home.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        ca_pem = base64.b64decode(cluster["certificate-authority-data"])
        with FaultsClient(cluster["server"], self.token, ca_pem) as faults:
            faults(fault, **arguments)

    def last_words(self) -> str:
        """The ends of the components' logs, for a failing test."""
        parts = []
        for log in sorted(self.home.logs.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-15:]
            parts.append(f"--- {log.name}\n" + "\n".join(lines))
        return "\n" + "\n".join(parts)


def until(
    condition: Callable[[], Any], timeout_seconds: float = 30.0, every_seconds: float = 0.25
) -> Any:
    """Poll until the condition gives something true, and return it.

    Each look costs the control plane more than the wait does: oftener only for what does not last.
    """
    deadline = time.monotonic() + patient(timeout_seconds)
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(every_seconds)
    return found


@contextlib.contextmanager
def control_plane(folder: Path, *options: str, where: Path = ROOT) -> Iterator[ControlPlane]:
    """Start a control plane on free ports and stop it at the end; its pods run in `where`."""
    home = Home(folder / "home")
    home.create()
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            penstock("up", "--foreground", "--any-ports", f"--home={home.folder}", *options),
            stdout=log,
            stderr=log,
            cwd=where,
        )
    plane = ControlPlane(home, process)

    def ready() -> bool:
        state = home.read_state()
        ended = process.poll() is not None
        assert not ended, (folder / "up.log").read_text() + plane.last_words()
        return state is not None and state.ready

    try:
        until(ready, 60)
        yield plane
    finally:
        plane.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=patient(40))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)


def job_manifest(name: str, command: list[str], **spec: Any) -> Json:
    """An ElasticJob whose worker runs a command."""
    container = {"name": "main", "image": "penstock/examples", "command": command}
    worker = {"template": {"spec": {"containers": [container]}}, **spec.pop("worker", {})}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"strategy": "Local", "replicaSpecs": {"worker": worker}, **spec},
    }


def script(text: str) -> list[str]:
    """A worker's command that runs a Python program under the agent."""
    return ["penstock", "run", "--", sys.executable, "-c", text]
