"""Every arrow of docs/architecture.md, walked: none can be cut without a test that says which.

Each test runs one job of a kind and looks for what an arrow leaves at its far end. What it has
walked at its end, and all together and the page's table, have to be the same.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from penstock.job.call_auth import CallAuth
from tests.e2e.control_plane import (
    ROOT,
    ControlPlane,
    Json,
    control_plane,
    job_manifest,
    needs_kubectl,
    script,
    until,
)
from tests.e2e.test_full_disk import PROGRAM, storage
from tests.e2e.test_parameter_servers import Job, claim, counting_job, finished
from tests.trainer.small_disk import FILLER, fill, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

PAGE: Final = ROOT / "docs" / "architecture.md"

SHARDS: Final = """
import sys, time
from pathlib import Path
from penstock.trainer.shards import FileShards

for shard in FileShards({"far": 400}, records_per_shard=10):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.1)
"""
FED: Final = """
import os, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Far(Dataset):
    def __len__(self):
        return 20000
    def __getitem__(self, index):
        time.sleep(0.02)
        return index

# With a worker of its own: one data worker beside it brings twice as many batches. Without, the
# data worker would make them all, no faster, and where the model says so first none is asked for.
for batch in DataLoader(Far(), batch_size=8, num_workers=1):
    if Path(sys.argv[1]).exists():
        break
print("fed", flush=True)
"""


GROUP: Final = frozenset(
    {
        "apply",
        "objects",
        "pods",
        "status",
        "register",
        "plan",
        "scale",
        "session",
        "agent",
        "sample",
        "ledger",
        "problem",
        "override",
        "token",
        "summary",
        "probe",
        "finish",
        "metrics",
    }
)
ALONE: Final = frozenset({"lease", "event"})
SERVED: Final = frozenset({"consent", "parameter-server", "parameter-worker", "parameters"})
FED_ARROWS: Final = frozenset(
    {"consumer", "data-worker", "batch", "snapshot", "queue", "tuning", "placement"}
)


class Arrows:
    """What arrows leave behind them on a control plane."""

    def __init__(self, plane: ControlPlane, job: str) -> None:
        self.plane = plane
        self.job = job
        self.walked: set[str] = set()

    @property
    def uid(self) -> str:
        return str(self.plane.get("ej", self.job)["metadata"]["uid"])

    def seen(self, arrow: str, sign: Callable[[], Any], seconds: float = 40.0) -> Any:
        """The sign of an arrow; fails with the arrow's name where it does not come."""
        try:
            found = until(sign, seconds)
        except AssertionError as error:
            raise AssertionError(f"arrow {arrow!r} is cut{self.plane.last_words()}") from error
        self.walked.add(arrow)
        return found

    def holds(self, arrow: str, sign: object) -> None:
        """The same for a sign that is there or is not."""
        assert sign, f"arrow {arrow!r} is cut{self.plane.last_words()}"
        self.walked.add(arrow)

    def told(self, path: str = "") -> httpx.Response | None:
        """What the Brain has of the job; None for what it was not told."""
        answer = httpx.get(
            f"{self.plane.brain_url}/v1/jobs/{self.uid}{path}",
            headers={"Authorization": f"Bearer {self.plane.token}"},
            trust_env=False,
        )
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer

    def scales(self, source: str) -> list[Json]:
        return [
            one
            for one in self.plane.get("scales")["items"]
            if one["spec"]["source"] == source and one["spec"]["jobRef"]["uid"] == self.uid
        ]

    def condition(self, scale: Json, kind: str) -> str:
        conditions = scale.get("status", {}).get("conditions", ())
        return next((one["status"] for one in conditions if one["type"] == kind), "")

    def pods(self, role: str) -> list[Json]:
        selector = f"penstock.dev/job={self.job},penstock.dev/role={role}"
        items: list[Json] = self.plane.get("pods", selector=selector)["items"]
        return items

    def ready(self, role: str) -> list[Json]:
        return [
            pod
            for pod in self.pods(role)
            for one in pod["status"].get("conditions", ())
            if one["type"] == "Ready" and one["status"] == "True"
        ]

    def summary(self) -> Json:
        """What the trainer answers to the job's token."""
        secret = yaml.safe_load(
            self.plane.kubectl("get", "secret", f"{self.job}-token", "-o", "yaml")
        )
        token = base64.b64decode(secret["data"]["token"]).decode()
        [trainer] = until(lambda: self.ready("trainer"))
        answer = httpx.get(
            f"http://{trainer['status']['podIP']}:8476/v1/summary",
            auth=CallAuth(token),
            trust_env=False,
        )
        answer.raise_for_status()
        document: Json = answer.json()
        return document

    def samples(self) -> list[Json]:
        page = self.told("/samples?ranks=true&limit=500")
        items: list[Json] = [] if page is None else page.json()["items"]
        return items

    def ranks(self, role: str) -> list[Json]:
        """What the Brain was told of rank 0 of a role."""
        return [
            ranks[role]["0"] for one in self.samples() if role in (ranks := one.get("ranks", {}))
        ]


def test_the_page_and_the_walk_have_the_same_arrows() -> None:
    section = PAGE.read_text().split("## Every arrow", 1)[1].split("\n## ", 1)[0]
    assert (
        set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))
        == GROUP | ALONE | SERVED | FED_ARROWS
    )


def test_of_a_group(plane: ControlPlane, tmp_path: Path) -> None:
    arrows = Arrows(plane, "walked")
    with small_disk(tmp_path / "checkpoints", 256) as folder:
        filler = fill(folder)
        text = PROGRAM.format(folder=str(folder), filler=FILLER)
        between = {"minReplicas": 1, "maxReplicas": 2}
        plane.apply(job_manifest("walked", script(text), strategy="AllReduce", worker=between))
        arrows.seen("apply", lambda: plane.get("ej", "walked"))
        uid = arrows.uid
        for kind, name in (
            ("secret", "walked-token"),
            ("serviceaccount", "walked-trainer"),
            ("role", "walked-trainer"),
            ("rolebinding", "walked-trainer"),
            ("service", "walked"),
        ):
            arrows.seen("objects", lambda k=kind, n=name: n in plane.kubectl("get", k, "-o=name"))
        arrows.seen("pods", lambda: arrows.pods("trainer") and arrows.pods("worker"))
        arrows.seen("probe", lambda: arrows.ready("trainer"))
        arrows.seen("register", arrows.told)
        plans = arrows.seen("plan", lambda: plane.brain(f"/v1/jobs/{uid}/plans")["items"])
        [scale, *_] = arrows.seen("scale", lambda: arrows.scales("Brain"))
        number = scale["metadata"]["annotations"]["penstock.dev/plan"]
        assert number in {str(plan["id"]) for plan in plans}, "arrow 'plan'"
        arrows.seen("status", lambda: arrows.condition(arrows.scales("Brain")[0], "Admitted"))
        arrows.seen(
            "problem", lambda: storage(plane.get("ej", "walked")).get("status") == "False", 60
        )
        arrows.seen("session", lambda: arrows.summary()["committed_steps"] >= 10)
        arrows.holds("summary", arrows.summary()["samples_lost"] == 0)
        arrows.seen("sample", arrows.samples)
        arrows.seen("agent", lambda: any(one.get("cpu_cores") for one in arrows.ranks("worker")))
        arrows.seen("ledger", lambda: arrows.told("/ledger"))
        stranger = httpx.get(
            f"{plane.brain_url}/v1/jobs/{uid}",
            headers={"Authorization": "Bearer nobody's"},
            trust_env=False,
        )
        # The cluster knows the token that `plane.brain` shows, and not this one.
        arrows.holds("token", stranger.status_code == 401)
        own = {"roles": {"worker": {"replicas": 2}}, "policy": "Apply", "message": "by hand"}
        answer = httpx.post(
            f"{plane.brain_url}/v1/jobs/{uid}/plans",
            json=own,
            headers={"Authorization": f"Bearer {plane.token}", "If-Match": "*"},
            trust_env=False,
        )
        assert answer.status_code == 201, answer.text
        arrows.seen("override", lambda: arrows.scales("User"))
        filler.unlink()
        plane.wait_for("walked", "Succeeded")
        arrows.seen("finish", lambda: plane.brain(f"/v1/jobs/{uid}")["phase"] == "Succeeded", 20)
    for name in ("brain", "controller", "scheduler"):
        url = plane.state.components[name].url
        text = httpx.get(f"{url}/metrics", trust_env=False).text
        arrows.holds("metrics", f"penstock_{'api' if name == 'brain' else name}_" in text)
    plane.kubectl("delete", "ej", "walked", "--wait=false")
    assert arrows.walked == GROUP


def test_of_processes_on_their_own(plane: ControlPlane, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    (tmp_path / "shards.py").write_text(SHARDS)
    command = ["penstock", "run", "--", sys.executable, str(tmp_path / "shards.py"), str(enough)]
    two = {"minReplicas": 2, "maxReplicas": 2}
    manifest = job_manifest(
        "shards", command, strategy="AllReduce", independentWorkers=True, worker=two
    )
    [container] = manifest["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"memory": "512Mi"}}
    arrows = Arrows(plane, "shards")
    plane.apply(manifest)
    until(lambda: len(arrows.ready("worker")) == 2, 40)
    arrows.seen("lease", lambda: (arrows.summary()["data"] or {}).get("dataset_size") == 40)
    for worker in arrows.ready("worker"):
        plane.fault("oom_kill_container", name=worker["metadata"]["name"])

    def asked() -> list[Json]:
        page = arrows.told("/runs")
        runs = [] if page is None else page.json()["items"]
        return [one for one in runs if one["algorithm"]["name"] == "oom_worker"]

    arrows.seen("event", asked)
    enough.touch()
    plane.wait_for("shards", "Succeeded")
    plane.kubectl("delete", "ej", "shards", "--wait=false")
    assert arrows.walked == ALONE


def test_of_parameter_servers(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(claim("served"))
    plane.apply(counting_job("served", tmp_path / "hurry", workers=1, servers=1))
    arrows, job = Arrows(plane, "served"), Job(plane, "served")
    job.wait_for_servers("0-0")
    arrows.seen("parameter-server", lambda: arrows.summary()["servers"])
    arrows.seen("parameter-worker", lambda: arrows.summary()["samples_seen"] > 0)
    name = job.scale(replicas=2)

    def prepared() -> bool:
        scale = plane.get("scales", name)
        return arrows.condition(scale, "Prepared") == "True"

    arrows.seen("consent", prepared)
    job.wait_for_scale(name)
    (tmp_path / "hurry").touch()
    finished(plane, "served")  # fails unless every row is what was trained into it
    arrows.walked.add("parameters")
    assert arrows.walked == SERVED


def test_of_data_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SCHEDULER_INTERVAL", "2")
    enough = tmp_path / "enough"
    (tmp_path / "fed.py").write_text(FED)
    command = ["penstock", "run", "--", sys.executable, str(tmp_path / "fed.py"), str(enough)]
    manifest = job_manifest("fed", command, optimize="Manual")
    image = {"name": "main", "image": "penstock/examples"}
    data_worker = {**image, "command": ["penstock", "data-worker"]}
    manifest["spec"]["replicaSpecs"]["dataWorker"] = {
        "maxReplicas": 1,
        "template": {"spec": {"containers": [data_worker]}},
    }
    with control_plane(tmp_path) as plane:
        arrows = Arrows(plane, "fed")
        plane.apply(manifest)
        arrows.seen("consumer", lambda: any(one.get("queue") for one in arrows.samples()))
        arrows.seen("snapshot", lambda: plane.brain("/v1/cluster/nodes")["items"])
        # That the scheduler asks for a data worker shows that it was told of the empty queue.
        [asked, *_] = arrows.seen("tuning", lambda: arrows.scales("Scheduler"))
        arrows.holds("queue", asked["spec"]["roles"]["dataWorker"]["replicas"] == 1)
        [feeder] = arrows.seen("placement", lambda: arrows.ready("data-worker"))
        assert "Placed" in plane.kubectl("get", "events", "--field-selector=reason=Placed")
        name = feeder["metadata"]["name"]
        arrows.seen("data-worker", lambda: "serving" in plane.kubectl("logs", name, check=False))
        arrows.seen("batch", lambda: arrows.ranks("dataWorker"))
        enough.touch()
        plane.wait_for("fed", "Succeeded")
    assert arrows.walked == FED_ARROWS
