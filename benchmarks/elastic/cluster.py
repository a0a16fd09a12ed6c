"""A control plane on an embedded cluster, and one job on it, for benchmarks that disturb both."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from benchmarks import programs
from penstock.base import ports
from penstock.crds import environment, labels
from penstock.job.call_auth import CallAuth
from penstock.local.control_plane.supervisor import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180.0
Json = dict[str, Any]


def administrators_client(kubeconfig: str) -> httpx.Client:
    """Calls to the API server of an embedded cluster; its token opens the Brain as well."""
    document = yaml.safe_load(kubeconfig)
    server = document["clusters"][0]["cluster"]
    ca_pem = base64.b64decode(server["certificate-authority-data"]).decode()
    return httpx.Client(
        base_url=server["server"],
        headers={"Authorization": f"Bearer {document['users'][0]['user']['token']}"},
        verify=ssl.create_default_context(cadata=ca_pem),
        timeout=20.0,
        trust_env=False,
    )


class Cluster:
    """Reads and disturbs a control plane that `api_server` started."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self._process = process
        self._http = administrators_client((home / "kubeconfig").read_text())

    def apply(self, manifest: Json) -> None:
        """Create an ElasticJob."""
        self._ask("POST", "/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs", manifest)

    def job(self, name: str) -> Json:
        """An ElasticJob."""
        path = f"/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs/{name}"
        return self._ask("GET", path)

    def set_workers(self, name: str, replicas: int) -> None:
        """Fix a job's number of workers, as ``kubectl scale`` does."""
        path = f"/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs/{name}/scale"
        self._patch(path, {"spec": {"replicas": replicas}})

    def edit(self, name: str, spec: Json) -> None:
        """Merge something into a job's spec."""
        path = f"/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs/{name}"
        self._patch(path, {"spec": spec})

    def scale(self, job: str, name: str, roles: Json) -> None:
        """Write a Scale for a job, as a person does."""
        spec = {
            "jobRef": {"name": job, "uid": self.job(job)["metadata"]["uid"]},
            "source": "User",
            "reason": "Benchmark",
            "message": "a benchmark",
            "roles": roles,
        }
        document = {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        self._ask("POST", "/apis/penstock.dev/v1alpha1/namespaces/default/scales", document)

    def claim(self, name: str) -> None:
        """Create a claim of a volume, unless it is there."""
        path = "/api/v1/namespaces/default/persistentvolumeclaims"
        resources = {"requests": {"storage": "1Gi"}}
        document = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": resources},
        }
        response = self._http.post(path, json=document)
        if response.status_code != httpx.codes.CONFLICT:
            response.raise_for_status()

    def delete_job(self, name: str) -> None:
        """Delete an ElasticJob, and with it all that is its own."""
        self._ask("DELETE", f"/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs/{name}")

    def summary(self, job: str) -> Json:
        """The figures that the job's trainer gives; empty while it cannot be asked."""
        trainers = [
            pod for pod in self.pods("trainer") if pod["metadata"]["labels"][labels.JOB] == job
        ]
        if not trainers:
            return {}
        address = trainers[-1]["status"]["podIP"]
        secret = self._ask("GET", f"/api/v1/namespaces/default/secrets/{job}-token")
        token = base64.b64decode(secret["data"]["token"]).decode()
        try:
            answer = self._http.get(
                f"http://{address}:{ports.TRAINER}/v1/summary",
                auth=CallAuth(token),
                timeout=5.0,
            )
        except httpx.TransportError:
            return {}
        found: Json = answer.json() if answer.is_success else {}
        return found

    def plans(self, job: str) -> list[Json]:
        """The Brain's plans for a job, oldest first; none before it knows the job."""
        state = json.loads((self.home / "state.json").read_text())
        uid = self.job(job)["metadata"]["uid"]
        answer = self._http.get(
            f"{state['components']['brain']['url']}/v1/jobs/{uid}/plans", timeout=10.0
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        answer.raise_for_status()
        return sorted(answer.json()["items"], key=lambda plan: plan["created_seconds"])

    def nodes(self) -> list[Json]:
        """What the Brain has on record of nodes."""
        state = json.loads((self.home / "state.json").read_text())
        answer = self._http.get(f"{state['components']['brain']['url']}/v1/nodes", timeout=10.0)
        answer.raise_for_status()
        found: list[Json] = answer.json()["items"]
        return found

    def pods(self, role: str) -> list[Json]:
        """The pods of a role that run and are to stay, by rank."""
        query = f"labelSelector={labels.ROLE}%3D{role}"
        found = self._ask("GET", f"/api/v1/namespaces/default/pods?{query}")["items"]
        running = [
            pod
            for pod in found
            if pod.get("status", {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(running, key=lambda pod: int(pod["metadata"]["labels"][labels.RANK]))

    def events(self, path: str) -> Iterator[Json]:
        """What is and becomes of the objects of a collection; ends with the cluster.

        On connections of its own, for a thread of its own.
        """
        with (
            administrators_client((self.home / "kubeconfig").read_text()) as http,
            http.stream("GET", f"{path}?watch=1", timeout=None) as response,
        ):
            for line in response.iter_lines():
                yield json.loads(line)

    def log(self, pod: str) -> str:
        """What a pod has printed."""
        response = self._http.get(f"/api/v1/namespaces/default/pods/{pod}/log")
        response.raise_for_status()
        return response.text

    def fault(self, fault: str, /, **arguments: Any) -> Any:
        """Carry out a fault of the embedded cluster."""
        return self._ask("POST", f"/faults/{fault}", arguments)["result"]

    def kill_component(self, name: str) -> None:
        """Kill a process of the control plane; its supervisor starts it again."""

        def kill() -> bool:
            state = json.loads((self.home / "state.json").read_text())
            try:
                os.kill(state["components"][name]["pid"], signal.SIGKILL)
            except ProcessLookupError:
                return False  # it is just being started again
            return True

        # Killed often, it is started again after a pause of up to 30 s.
        wait(kill, 60, f"{name} runs")

    def processes(self, pod: str) -> list[psutil.Process]:
        """The processes that run in a pod, by their environment, oldest first."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if process.environ().get(environment.POD_NAME) == pod:
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda process: process.create_time())

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        response = self._http.request(method, path, json=body)
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text[:500]}")
        answer: Json = response.json()
        return answer

    def _patch(self, path: str, change: Json) -> None:
        response = self._http.patch(
            path,
            content=json.dumps(change),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        response.raise_for_status()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


@contextmanager
def api_server(home: Path, nodes: list[Json], *options: str) -> Iterator[Cluster]:
    """A control plane in a folder of its own, on free ports; gone at the end of the block.

    ``options``: further ones of ``penstock up``.
    """
    home.mkdir(parents=True, exist_ok=True)
    nodes_file = home / "nodes.yaml"
    nodes_file.write_text(yaml.safe_dump({"nodes": nodes}))
    with (home / "up.log").open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.cli",
                "up",
                "--foreground",
                "--any-ports",
                f"--home={home}",
                f"--nodes={nodes_file}",
                *options,
            ],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509  this process has one thread
        )
    cluster: Cluster | None = None
    try:
        wait(lambda: _is_ready(home, process), START_SECONDS, f"the control plane in {home}")
        cluster = Cluster(home, process)
        yield cluster
    finally:
        if cluster is not None:
            cluster.close()
        programs.end(process, seconds=30)


def outcome(job: Json) -> str:
    """How an ElasticJob has ended, Succeeded or Failed; empty: it has not."""
    conditions = job.get("status", {}).get("conditions", [])
    ends = ("Succeeded", "Failed")
    return next((c["type"] for c in conditions if c["type"] in ends and c["status"] == "True"), "")


def result_in_logs(home: Path) -> Json:
    """The figures that a job's chief printed last, from the logs of all pods; empty if none did."""
    found: Json = {}
    for path in sorted((home / "pods").rglob("*.log"), key=lambda path: path.stat().st_mtime):
        for line in path.read_text(errors="replace").splitlines():
            _, mark, text = line.partition("penstock-result ")
            if mark:
                found = json.loads(text)
    return found


def wait(look: Callable[[], Any], timeout: float, what: str, pause: float = 0.1) -> Any:
    """Poll until ``look`` gives something true; its value."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(pause)
    raise TimeoutError(f"{what}: not within {timeout:.0f} s")


def _is_ready(home: Path, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError((home / "up.log").read_text())
    try:
        return bool(json.loads((home / "state.json").read_text())["ready"])
    except (OSError, ValueError):
        return False
