"""A cluster as a person meets it: through kubectl, with access control on and pods that run.

``PENSTOCK_TEST_KUBECONFIG`` names a real cluster to use; without it an embedded one is started.
Nothing here or in the tests that use it knows which of the two it is, but that a real one is left
without what was put into it: that has a label of the tests, and the last of them removes it.
"""

from __future__ import annotations

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
from uuid import uuid4

import pytest
import yaml

from penstock.base.yaml_text import Dumper, Loader
from tests.patience import patient

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
SYSTEM = "penstock-system"
GIVEN = "PENSTOCK_TEST_KUBECONFIG"
OURS = "penstock.dev/made-by"
"""Label of what these tests have put into a cluster."""
IMAGE = "busybox:1.36"
LIVE = "trap 'exit 143' TERM; while :; do sleep 0.1; done"


class Cluster:
    """One namespace of its own in a cluster."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.namespace = f"test-{uuid4().hex[:8]}"
        self.make([_namespace(self.namespace)])

    def kubectl(
        self, *arguments: str, text: str | None = None, check: bool = True, namespaced: bool = True
    ) -> str:
        """Run kubectl in the namespace; returns what it prints, with errors if not ``check``."""
        assert KUBECTL is not None
        place = ("--namespace", self.namespace) if namespaced else ()
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", str(self.kubeconfig), *place, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=patient(60),
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def make(self, manifests: list[Json]) -> None:
        """Apply what is not the tests' alone; what is not there yet gets the label."""
        present = self._whose(manifests)
        for one in manifests:
            if present.get(_key(one), True):
                one["metadata"].setdefault("labels", {})[OURS] = "tests"
        apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        self.kubectl(*apply, text=_written(manifests), namespaced=False)

    def unmake(self, manifests: list[Json]) -> None:
        """Delete what `make` made of these, unless other tests still run in the cluster."""
        spaces = json.loads(
            self.kubectl("get", "namespaces", "-o", "json", "-l", OURS, namespaced=False)
        )
        if {one["metadata"]["name"] for one in spaces["items"]} - {SYSTEM, self.namespace}:
            return
        present = self._whose(manifests)
        ours = [one for one in reversed(manifests) if present.get(_key(one), False)]
        delete = ("delete", "--ignore-not-found", "--timeout=50s", "-f", "-")
        if ours:
            self.kubectl(*delete, text=_written(ours), namespaced=False)

    def _whose(self, manifests: list[Json]) -> dict[tuple[str, str], bool]:
        """Of the objects that are there, by kind and name: whether they are ours."""
        text = _written(manifests)
        get = ("get", "--ignore-not-found", "-o", "json", "-f", "-")
        shown = self.kubectl(*get, text=text, namespaced=False)
        found = json.loads(shown) if shown.strip() else {"items": []}
        return {
            _key(one): OURS in (one["metadata"].get("labels") or {})
            for one in found.get("items", [found])
        }

    def create(self, manifest: Json) -> None:
        self.kubectl("create", "-f", "-", text=json.dumps(manifest))

    def get(self, *arguments: str) -> Json:
        found: Json = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def find(self, *arguments: str) -> list[Json]:
        """The items of a list."""
        items: list[Json] = self.get(*arguments)["items"]
        return items

    def workers(self, job: str) -> list[str]:
        """Names of a job's workers that are there to stay."""
        return self.all_workers().get(job, [])

    def all_workers(self) -> dict[str, list[str]]:
        """The same of each job that has any."""
        found: dict[str, list[str]] = {}
        for pod in self.find("pods", "-l", "penstock.dev/role=worker"):
            metadata = pod["metadata"]
            ended = pod["status"].get("phase") in {"Succeeded", "Failed"}
            if not ended and "deletionTimestamp" not in metadata:
                of = found.setdefault(metadata["labels"]["penstock.dev/job"], [])
                of.append(metadata["name"])
        return {job: sorted(names) for job, names in found.items()}

    def wait(self, what: str, condition: str, seconds: int = 30) -> None:
        """``kubectl wait --for=condition=...``."""
        self.kubectl(
            "wait", f"--for=condition={condition}", what, f"--timeout={patient(seconds):.0f}s"
        )

    def uid(self, job: str) -> str:
        return str(self.get("elasticjob", job)["metadata"]["uid"])


def until(what: str, probe: Callable[[], Any], seconds: float = 30) -> Any:
    """Poll until ``probe`` gives something true; its value.

    Most probes call kubectl, which computes longer than its answer takes to come.
    """
    end = time.monotonic() + patient(seconds)
    while not (found := probe()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.3)
    return found


def job(name: str, command: str = LIVE, *, workers: Json | None = None, **spec: Any) -> Json:
    """A job whose trainer does nothing and whose workers run a shell command."""
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "trainer": {
                "template": {
                    "spec": {
                        "terminationGracePeriodSeconds": 2,
                        "containers": [
                            {
                                "name": "trainer",
                                "image": IMAGE,
                                "command": ["sh", "-c", LIVE],
                                "readinessProbe": {"exec": {"command": ["true"]}},
                            }
                        ],
                    }
                }
            },
            **spec,
            "replicaSpecs": {
                "worker": {
                    "template": {
                        "spec": {
                            "terminationGracePeriodSeconds": 2,
                            "containers": [
                                {
                                    "name": "main",
                                    "image": IMAGE,
                                    "command": ["sh", "-c", command],
                                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                                }
                            ],
                        }
                    },
                    **(workers or {}),
                }
            },
        },
    }


def scale(name: str, job_name: str, uid: str, roles: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {
            "jobRef": {"name": job_name, "uid": uid},
            "roles": roles,
            "source": "User",
            **spec,
        },
    }


def _namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _key(manifest: Json) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _start(command: tuple[str, ...], log: Path, environment: Json | None = None) -> Any:
    """A process that has printed its first line, and the line."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"penstock {' '.join(command)}: {log.read_text()[-3000:]}"
    return process, line


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    """Signal a process and wait for its end."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(15)
    finally:
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def kubeconfig(folder: Path) -> Iterator[Path]:
    """The kubeconfig of the cluster to test on."""
    given = os.environ.get(GIVEN)
    if given:
        yield Path(given)
        return
    with embedded_cluster(folder) as (path, _):
        yield path


@contextlib.contextmanager
def embedded_cluster(folder: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The kubeconfig of an embedded cluster, and its process."""
    path = folder / "kubeconfig"
    nodes = folder / "nodes.yaml"
    pods = folder / "pods"
    nodes.write_text(yaml.safe_dump({"nodes": [{"name": "node-1", "cpu": "64", "memory": "64Gi"}]}))
    command = (
        "cluster",
        "--port=0",
        f"--kubeconfig={path}",
        f"--pods-folder={pods}",
        "--rbac",
        f"--nodes={nodes}",
    )
    process, _ = _start(command, folder / "cluster.log")
    try:
        yield path, process
    finally:
        stop(process)


@contextlib.contextmanager
def prepared_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with all manifests applied and an account for the controller.

    From one that was given all is removed again; an embedded one ends with the tests.
    """
    with kubeconfig(folder) as path:
        cluster, manifests = Cluster(path, folder), _manifests()
        try:
            prepare(cluster, manifests)
            yield cluster
        finally:
            space = ("namespace", cluster.namespace, "--ignore-not-found")
            if os.environ.get(GIVEN):
                cluster.kubectl("delete", *space, "--timeout=50s", namespaced=False)
                cluster.unmake(manifests)
            else:
                cluster.kubectl("delete", *space, "--wait=false", namespaced=False)


def prepare(cluster: Cluster, manifests: list[Json] | None = None) -> None:
    """Apply all manifests, with an account for the controller."""
    cluster.make(_manifests() if manifests is None else manifests)
    cluster.kubectl(
        "wait",
        "--for=condition=Established",
        "crd/elasticjobs.penstock.dev",
        "crd/scales.penstock.dev",
        "--timeout=20s",
        namespaced=False,
    )


def _manifests() -> list[Json]:
    return [_namespace(SYSTEM), *_printed(), *_account()]


def _written(manifests: list[Json]) -> str:
    return yaml.dump_all(manifests, Dumper=Dumper)


def _printed() -> list[Json]:
    command = [sys.executable, "-m", "penstock.cli", "controller", "--print-manifests"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one for one in yaml.load_all(done.stdout, Loader=Loader) if one]


def _account() -> list[Json]:
    rbac = "rbac.authorization.k8s.io"
    name = "penstock-controller"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": SYSTEM},
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": SYSTEM},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    ]


class Controllers:
    """Processes of the controller that run under its own account."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._running: list[subprocess.Popen[str]] = []
        self.kubeconfig = self._write_kubeconfig()
        self.log = cluster.folder / "controller.log"

    def _write_kubeconfig(self) -> Path:
        """As the administrator's, but with the token of the controller's account."""
        document = yaml.safe_load(self._cluster.kubeconfig.read_text())
        token = self._cluster.kubectl(
            "create",
            "token",
            "penstock-controller",
            "--namespace",
            SYSTEM,
            "--duration=1h",
            namespaced=False,
        ).strip()
        context = next(
            one["context"]
            for one in document["contexts"]
            if one["name"] == document["current-context"]
        )
        for user in document["users"]:
            if user["name"] == context["user"]:
                user["user"] = {"token": token}
        path = self._cluster.folder / "controller.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return path

    def start(self) -> subprocess.Popen[str]:
        """Start a replica; returns when it has announced its address."""
        process, _ = _start(
            (
                "controller",
                f"--kubeconfig={self.kubeconfig}",
                "--metrics-port=0",
                f"--lease-namespace={SYSTEM}",
            ),
            self.log,
        )
        self._running.append(process)
        return process

    def stop_all(self) -> None:
        for process in self._running:
            if process.poll() is None:
                stop(process)
        self._running.clear()
