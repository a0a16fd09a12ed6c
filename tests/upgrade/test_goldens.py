"""What earlier releases left behind is understood by this one.

For each release ``golden/VERSION`` holds its objects, as its API server returned them after a real
life of jobs, and the Brain's database of that life (``record.py`` wrote them). They are never
changed: whoever upgrades has exactly these.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cluster.tests.registry.running import CRDS, run, settle
from penstock.base.enums import Role
from penstock.brain.store.database import Database
from penstock.brain.store.schema import configuration, upgrade
from penstock.brain.store.tables import METADATA
from penstock.controller.reconcile.desired.targets import compute_target
from penstock.controller.reconcile.model.parsing import read_job, read_scale, read_spec
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.manifests import MANIFESTS
from penstock.crds.scale import Scale
from penstock_cluster.registry import Api, Engine
from tests.api.service import api
from tests.brain.brains import Clock

Json = dict[str, Any]

GOLDEN = Path(__file__).parent / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir())
MODELS = {"ElasticJob": ElasticJob, "Scale": Scale}
TABLES = {"ElasticJob": "elasticjobs.penstock.dev", "Scale": "scales.penstock.dev"}

each_release = pytest.mark.parametrize("release", RELEASES)


def objects(release: str) -> list[Json]:
    found = list(yaml.safe_load_all((GOLDEN / release / "objects.yaml").read_text()))
    assert {one["kind"] for one in found} == set(MODELS)
    return found


@each_release
def test_the_models_read_every_object_and_lose_nothing(release: str) -> None:
    for document in objects(release):
        model = MODELS[document["kind"]].model_validate(document)
        again = model.model_dump(by_alias=True, exclude_none=True, mode="json")
        assert document["spec"].items() <= again["spec"].items()
        for name, value in document["status"].items():
            if value != {} and name != "conditions":
                assert again["status"][name] == value


@each_release
def test_the_api_server_stores_and_changes_every_object(release: str) -> None:
    async def story(engine: Engine, api: Api) -> None:
        for manifest in MANIFESTS:
            for document in manifest.objects():
                if document["kind"] == "CustomResourceDefinition":
                    await api.create(CRDS, document)
        await settle()
        for document in objects(release):
            table, name = TABLES[document["kind"]], document["metadata"]["name"]
            fresh = copy.deepcopy(document)
            status = fresh.pop("status")
            for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
                del fresh["metadata"][field]
            fresh["metadata"].pop("ownerReferences", None)
            await api.create(table, fresh, "default")
            body = {"status": status}
            stored = await api.patch(table, name, body, "default", subresource="status")
            assert stored["spec"] == document["spec"]
            assert stored["status"] == status
            # An object of then may be written to now, its status as well as the rest.
            await api.patch(table, name, {"metadata": {"labels": {"a": "b"}}}, "default")

    run(story)


@each_release
def test_the_controller_follows_the_plans_of_then(release: str) -> None:
    documents = objects(release)
    scales = [read_scale(one) for one in documents if one["kind"] == "Scale"]
    for document in documents:
        if document["kind"] != "ElasticJob":
            continue
        spec, fault = read_spec(document["spec"])
        assert spec is not None, fault
        job = read_job(document, spec, fault)
        assert set(job.status.conditions) == {
            one["type"] for one in document["status"]["conditions"]
        }
        own = [scale for scale in scales if scale.job_uid == job.uid]
        target = compute_target(spec, own)
        desired = document["status"]["replicas"]["worker"]["desired"]
        assert target.roles[Role.WORKER].total == desired, job.name


def restored(release: str, folder: Path) -> str:
    """The database of then in a file of now; its URL."""
    connection = sqlite3.connect(folder / "brain.sqlite")
    connection.executescript((GOLDEN / release / "brain.sql").read_text())
    connection.close()
    return f"sqlite+aiosqlite:///{folder / 'brain.sqlite'}"


def rows(folder: Path) -> dict[str, int]:
    connection = sqlite3.connect(folder / "brain.sqlite")
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not name.startswith("sqlite_")
    ]
    counts = {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names
    }
    connection.close()
    return counts


@each_release
def test_the_schema_of_then_becomes_that_of_now_and_no_row_is_lost(
    release: str, tmp_path: Path
) -> None:
    url = restored(release, tmp_path)
    before = rows(tmp_path)
    # One statement: none is empty.
    assert before["jobs"] and before["samples"] and before["plans"]  # noqa: PT018

    async def migrate() -> list[Any]:
        database = Database(url)
        await upgrade(database)
        async with database.engine.connect() as connection:
            left = await connection.run_sync(
                lambda one: compare_metadata(MigrationContext.configure(one), METADATA)
            )
        await database.close()
        return list(left)

    assert asyncio.run(migrate()) == []
    after = rows(tmp_path)
    assert {name: after.get(name) for name in before} == before


@each_release
def test_the_migration_of_then_is_still_there(release: str, tmp_path: Path) -> None:
    restored(release, tmp_path)
    connection = sqlite3.connect(tmp_path / "brain.sqlite")
    [(revision,)] = connection.execute("SELECT version_num FROM alembic_version")
    connection.close()
    known = ScriptDirectory.from_config(configuration()).walk_revisions()
    assert revision in [one.revision for one in known]


@each_release
def test_the_brain_shows_the_history_of_then_and_plans_on_it(release: str, tmp_path: Path) -> None:
    url = restored(release, tmp_path)
    [digits] = [one for one in objects(release) if one["metadata"]["name"] == "digits"]
    uid = digits["metadata"]["uid"]

    async def story() -> None:
        connection = sqlite3.connect(tmp_path / "brain.sqlite")
        [(newest,)] = connection.execute("SELECT max(time_seconds) FROM samples")
        connection.close()
        async with api(url, clock=Clock(newest + 60)) as service:

            async def get(path: str) -> Any:
                answer = await service.http.get(path)
                assert answer.status_code == 200, answer.text
                return answer.json()

            job = await get(f"/v1/jobs/{uid}")
            assert (job["name"], job["phase"]) == ("digits", "Succeeded")
            plans = (await get(f"/v1/jobs/{uid}/plans"))["items"]
            assert {plan["stage"] for plan in plans} >= {"Create"}
            for plan in plans:
                await get(f"/v1/jobs/{uid}/plans/{plan['id']}")
            samples = (await get(f"/v1/jobs/{uid}/samples"))["items"]
            assert samples
            assert all(sample["steps_per_second"] >= 0 for sample in samples)
            assert (await get("/v1/audit"))["items"]
            assert (await get(f"/v1/jobs/{uid}/runs"))["items"]
            await get("/v1/cluster/nodes")
            ledger = await service.http.get(f"/v1/jobs/{uid}/ledger")
            assert ledger.status_code == 200
            assert ledger.content
            # A job like that one begins where it ended.
            body = await service.register("later", signature=job["signature"])
            assert body["current_plan"] == 1
            [first] = (await get("/v1/jobs/later/plans"))["items"]
            assert first["algorithm"]["name"] == "history_create"

    asyncio.run(asyncio.wait_for(story(), 40))
