"""The script of `benchmarks.dropin` in pods of an embedded cluster."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.dropin_steps import Steps
from benchmarks.elastic.cluster import Cluster, api_server, outcome
from benchmarks.elastic.processes import ROOT
from penstock.crds import labels

Json = dict[str, Any]

SCRIPT: Final = str(ROOT / "benchmarks" / "dropin_programs" / "train.py")
NODES: Final = [{"name": "node", "count": 2, "cpu": "4", "memory": "8Gi"}]
BRAIN: Final = {
    "administrator": {"enough_steps": 50, "enough_seconds": 8, "interval_seconds": 6},
    "algorithms": {"scale_allreduce": {"params": {"enough_steps": 50, "enough_seconds": 8}}},
}
KEPT_SECONDS: Final = 30.0
"""For so long the second worker is watched: one that did not pay would be given back."""
_MOST: Final = 8


class ClusterPods:
    """The pods of a job in a cluster of its own; its controller replaces the killed ones.

    Attributes:
        replaces: see `benchmarks.dropin.Pods`.
    """

    replaces = True

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self.moments = PodMoments()
        stack.callback(self.moments.join)  # after the cluster has gone
        self._cluster = stack.enter_context(api_server(folder / "home", NODES))
        self.moments.follow(self._cluster)
        self._applied = False

    def resize(self, count: int) -> None:
        """Apply the job with so many workers, or set their number as ``kubectl scale`` does."""
        if self._applied:
            self._cluster.set_workers("plain", count)
        else:
            workers = {"replicas": count, "minReplicas": 1, "maxReplicas": _MOST}
            self._cluster.apply(_plain_job(self._folder, workers, optimize="Manual"))
            self._applied = True

    def kill_first(self) -> None:
        """Delete the pod of rank 0 without a grace period: its processes get SIGKILL."""
        name = self._cluster.pods("worker")[0]["metadata"]["name"]
        self._cluster.fault("delete_pod", name=name, grace_seconds=0)

    def alive(self) -> bool:
        """Whether the job has not ended."""
        return not outcome(self._cluster.job("plain"))

    def seconds_since(self, asked: float) -> Json | None:
        """When the last of the pods that are newer than that was there; see `PodMoments`."""
        return self.moments.seconds_since(asked)


class PodMoments:
    """When each worker's pod was made, bound to a node and running, by the API server's events."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, float]] = {}
        self._thread: threading.Thread | None = None

    def follow(self, cluster: Cluster) -> None:
        """Note the moments, in a thread, until the cluster has gone."""
        self._thread = threading.Thread(target=self._run, args=(cluster,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(10)

    def note(self, pod: Json, now: float) -> None:
        """One event's pod."""
        metadata = pod["metadata"]
        if metadata.get("labels", {}).get(labels.ROLE) != "worker":
            return
        moments = self._found.setdefault(metadata["uid"], {})
        moments.setdefault("made", now)
        if pod["spec"].get("nodeName"):
            moments.setdefault("bound", now)
        if pod.get("status", {}).get("phase") == "Running":
            moments.setdefault("running", now)

    def seconds_since(self, asked: float) -> Json | None:
        """From then to the last of the pods made since; None where none was.

        Making them is Penstock's (its controller); binding and starting them is the cluster's.
        """
        new = [moments for moments in list(self._found.values()) if moments["made"] > asked]
        if not new:
            return None
        row: Json = {"pods": len(new)}
        for name in ("made", "bound", "running"):
            there = [moments[name] for moments in new if name in moments]
            row[f"{name}_seconds"] = (
                round(max(there) - asked, 2) if len(there) == len(new) else None
            )
        return row

    def _run(self, cluster: Cluster) -> None:
        with contextlib.suppress(httpx.HTTPError):
            for event in cluster.events("/api/v1/namespaces/default/pods"):
                self.note(event["object"], time.time())


def grown(folder: Path) -> Json:
    """What becomes of a job of one worker, at most two, that its Brain may size."""
    config = folder / "brain.yaml"
    config.write_text(json.dumps(BRAIN))
    with api_server(folder / "home", NODES, f"--brain-config={config}") as cluster:
        steps, began = Steps(folder), time.time()
        cluster.apply(_plain_job(folder, {"maxReplicas": 2}, optimize="Auto"))
        if not steps.wait_for_world(1, began):
            return {"workers": 0}
        alone = time.time()
        if not steps.wait_for_world(2, alone):
            return {"workers": 1, "plans": _messages(cluster)}
        row: Json = {"second_worker_after_seconds": round(time.time() - alone, 1)}
        before = steps.per_second(alone, alone + row["second_worker_after_seconds"] / 2)
        time.sleep(KEPT_SECONDS)
        now = time.time()
        row |= {
            "workers": len(cluster.pods("worker")),
            "steps_per_second_of_one": before,
            "steps_per_second_of_two": steps.per_second(now - KEPT_SECONDS / 2, now),
            "plans": _messages(cluster),
        }
        (folder / "stop").touch()
        return row


def _plain_job(folder: Path, workers: Json, *, optimize: str) -> Json:
    command = ["penstock", "run", "--nproc-per-node=1", "--", sys.executable, SCRIPT, str(folder)]
    container = {
        "name": "main",
        "image": "penstock/examples",
        "command": command,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    worker = {**workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "plain"},
        "spec": {"strategy": "AllReduce", "optimize": optimize, "replicaSpecs": {"worker": worker}},
    }


def _messages(cluster: Cluster) -> list[str]:
    return [plan["message"] for plan in cluster.plans("plain")]
