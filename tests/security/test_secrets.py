"""Every secret has a row in a table that the documentation shows, and a test that attacks it."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import replica_pod, trainer_pod
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.observed import Settings
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.charts.rendering import VALUE_SETS, render
from tests.controller.life import job as make_job
from tests.house.test_layout import ROOMS, ROOT
from tests.security.secret_table import NO_SECRETS, SECRETS, markdown_table

DOCS = ROOT / "docs/operations/security.md"
RANDOM = {"token_hex", "token_urlsafe", "token_bytes", "urandom", "getrandom", "SystemRandom"}
KEYS = {"generate_private_key", "generate_key"}
PASSWORD = "correct-horse-battery-staple"


def made_in_rooms() -> Iterator[tuple[str, str]]:
    """Where the source makes what nobody can guess: file and call."""
    for room in (*ROOMS, "cluster/penstock_cluster"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            if not any(name in text for name in RANDOM | KEYS):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    if name in RANDOM | KEYS:
                        yield str(path.relative_to(ROOT)), name


def given_to(pod: dict[str, Any], where: str) -> Iterator[str]:
    """The secrets that a pod's specification mentions, as rows name them."""
    if pod.get("automountServiceAccountToken") is not False:
        yield f"{where}:account"
    for volume in pod.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        for source in (volume, *sources):
            items = {one["key"] for one in (source.get("secret") or {}).get("items") or ()}
            if "tls.key" in items:
                yield f"{where}:tls.key"
            elif "secret" in source and items != {"ca.crt"}:  # a certificate is none
                yield f"{where}:secret"
            if token := source.get("serviceAccountToken"):
                yield f"{where}:token:{token.get('audience', '')}"
    for container in (*pod["containers"], *(pod.get("initContainers") or ())):
        for variable in container.get("env") or ():
            if "secretKeyRef" in (variable.get("valueFrom") or {}):
                yield f"{where}:secret"


def given_to_components() -> Iterator[str]:
    for values in VALUE_SETS.values():
        for each in render(values):
            if each["kind"] == "Deployment":
                component = each["metadata"]["name"].removeprefix("penstock-")
                yield from given_to(each["spec"]["template"]["spec"], f"chart:{component}")


def given_to_jobs() -> Iterator[str]:
    raw = make_job()
    raw["metadata"].update(uid="job-uid", resourceVersion="1", namespace="team")
    spec, fault = read_spec(raw["spec"])
    assert spec is not None, fault
    job = read_job(raw, spec, "")
    yield from given_to(
        trainer_pod(job, spec, Settings(trainer_image="trainer:1"), 0)["spec"], "trainer"
    )
    for role in Role:
        yield from given_to(replica_pod(job, spec, role, 0, 0, RankTarget())["spec"], "training")


def test_every_secret_has_a_row() -> None:
    made = set(made_in_rooms())
    found = {f"{path}:{call}" for path, call in made if path not in NO_SECRETS}
    found |= {*given_to_components(), *given_to_jobs()}
    rows = {one for each in SECRETS for one in each.found}
    assert found - rows == set(), "tests/security/secret_table.py: where does it lie?"
    assert rows - found == set(), "a row of nothing"
    assert set(NO_SECRETS) <= {path for path, _ in made}


def test_every_row_is_attacked() -> None:
    for each in SECRETS:
        file, _, test = each.shown.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), each.name


def test_the_documentation_has_the_table() -> None:
    assert markdown_table() in DOCS.read_text()


def test_a_database_that_is_away_costs_no_password() -> None:
    """Neither what it is nor how it is written in an address stands in what the Brain says."""
    url = f"postgresql+asyncpg://me:{PASSWORD}@127.0.0.1:1/penstock"
    for given in ([f"--database={url}"], [f"--database={url}?sslmode=nonsense"]):
        command = [sys.executable, "-m", "penstock.cli", "brain", "--port=0", "--auth=none", *given]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
        assert ended.returncode != 0
        assert "127.0.0.1" in ended.stderr or "sslmode" in ended.stderr, ended.stderr
        assert PASSWORD not in ended.stderr + ended.stdout


def test_the_embedded_clusters_keys_are_its_owners_alone(tmp_path: Path) -> None:
    def look(token: bytes) -> None:
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        secret = [path for path, kept in files.items() if token in kept or b"PRIVATE" in kept]
        assert secret, files.keys()
        assert [path for path in secret if path.stat().st_mode & 0o077] == []

    async def main() -> None:
        options = ClusterOptions(
            folder=tmp_path / "pods", database=tmp_path / "cluster.sqlite", rbac=True
        )
        async with EmbeddedCluster(options) as cluster:
            look(cluster.token.encode())

    asyncio.run(main())
