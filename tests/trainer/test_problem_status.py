"""The trainer's fields of its job's status, written to a cluster that enforces its role and policy.

None of what may go wrong with it disturbs the trainer, and each is said once.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.crds.conditions import JobReason
from penstock.crds.manifests import MANIFESTS
from penstock.crds.policy import trainer_rules
from penstock.trainer.cluster import job_status
from penstock.trainer.cluster.job_status import TrainerStatus, written
from penstock.trainer.cluster.kube import ClusterAccess, KubeClient, KubeError
from penstock.trainer.control.model.problems import Problems
from penstock_cluster.registry.engine import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.trainer.cluster.test_kube import JOB

JOBS = "elasticjobs.penstock.dev"
CHECKPOINTS = JobReason.CHECKPOINTS_NOT_WRITTEN
RBAC = "rbac.authorization.k8s.io"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True)) as running:
        for manifest in MANIFESTS:
            for item in manifest.objects():
                running.apply(item)
        yield running


class Job:
    """A job, and its trainer's line to the API server."""

    def __init__(
        self, cluster: RunningCluster, name: str, folder: Path, *, earlier: bool = False
    ) -> None:
        self.cluster, self.name = cluster, name
        document = copy.deepcopy(JOB)
        document["metadata"]["name"] = name
        self.uid = cluster.create(JOBS, document)["metadata"]["uid"]
        account = f"{name}-trainer"
        cluster.create("serviceaccounts", {"metadata": {"name": account}}, "default")
        role = {"metadata": {"name": account}, "rules": trainer_rules(name, has_servers=False)}
        cluster.create(f"roles.{RBAC}", role, "default")
        of_earlier = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "penstock-trainer"}
        binding = {
            "metadata": {"name": account},
            "roleRef": of_earlier if earlier else {**of_earlier, "kind": "Role", "name": account},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
        }
        cluster.create(f"rolebindings.{RBAC}", binding, "default")
        token = folder / name
        token.write_text(cluster.account_token("default", account))
        self.access = ClusterAccess(cluster.url, token, None)
        self.problems = Problems()
        self.input: Json | None = None

    @property
    def status(self) -> Json:
        found: Json = self.cluster.get(JOBS, self.name, "default").get("status") or {}
        return found

    def client(self) -> KubeClient:
        return KubeClient(self.access, "default", self.name, self.uid)

    def unbind(self) -> None:
        self.cluster.delete(f"rolebindings.{RBAC}", f"{self.name}-trainer", "default")


def run(job: Job, story: Callable[[KubeClient], Awaitable[None]]) -> None:
    """A story while the trainer keeps its field of the status."""

    async def main() -> None:
        kube = job.client()
        status = TrainerStatus(
            kube, job.uid, job.problems, lambda: job.input, retry_seconds=(0.05,)
        )
        task = asyncio.create_task(status.run())
        try:
            await story(kube)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kube.close()

    asyncio.run(main())


async def until(ready: Callable[[], object], timeout: float = 20) -> None:
    async with asyncio.timeout(timeout):
        while not await asyncio.to_thread(ready):  # noqa: ASYNC110  (the cluster's state)
            await asyncio.sleep(0.02)


def reasons(job: Job) -> list[str]:
    return [one["reason"] for one in job.status.get("problems") or ()]


def test_problems_come_and_go_in_the_status_beside_the_controllers_writes(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    job = Job(cluster, "comes", tmp_path)

    async def story(kube: KubeClient) -> None:
        job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
        await until(lambda: reasons(job) == ["CheckpointsNotWritten"])
        changed = {"status": {"observedGeneration": 1, "state": "Running"}}
        await asyncio.to_thread(cluster.patch, JOBS, job.name, changed, "default", "status")
        job.problems.report("trainer", JobReason.SEPARATE_COPIES, "2 workers", 1.0, fatal=True)
        await until(lambda: reasons(job) == ["SeparateCopies", "CheckpointsNotWritten"])
        assert job.status["state"] == "Running"
        assert job.status["problems"][0]["fatal"] is True
        job.problems.clear("worker-0", CHECKPOINTS)
        await until(lambda: reasons(job) == ["SeparateCopies"])

    run(job, story)


def test_other_words_for_the_same_are_not_worth_a_write_each() -> None:
    problems, writes = Problems(), []

    class Api:
        """An API server that has one job."""

        async def job(self) -> Json:
            return {"metadata": {"uid": "u", "resourceVersion": "1"}}

        async def set_job_status(self, version: str, fields: Json) -> Json:
            writes.append(fields["problems"])
            return {**await self.job(), "status": fields}

    async def story() -> None:
        status = TrainerStatus(Api(), "u", problems)  # type: ignore[arg-type]  # a fake of the API
        for step in range(20):
            problems.report("worker-0", CHECKPOINTS, f"step {step}", 0.0)
            assert await status._attempt()
        assert len(writes) == 1
        problems.report("trainer", JobReason.JOURNAL_NOT_WRITTEN, "full", 1.0)
        assert await status._attempt()
        assert len(writes) == 2, "a new reason is written at once"
        problems.report("trainer", JobReason.JOURNAL_NOT_WRITTEN, "full", 1.0, fatal=True)
        assert await status._attempt()
        assert len(writes) == 3, "a fatal one too"
        problems.clear("worker-0", CHECKPOINTS)
        assert await status._attempt()
        assert len(writes) == 4, "and that one is over"
        problems.report("trainer", JobReason.JOURNAL_NOT_WRITTEN, "fuller", 1.0)
        await status.settle(10)
        assert "fuller" in writes[-1][0]["message"], "nothing is left unwritten at the end"

    asyncio.run(story())


def partition(state: str, moved: int) -> Json:
    one = {"name": "the loader", "source": "worker-0", "state": state, "movedPercent": moved}
    return {"partition": [one]}


def test_what_is_said_of_the_input_stands_beside_the_problems(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_status, "INPUT_SECONDS", 0.0)
    job = Job(cluster, "moves", tmp_path)

    async def story(kube: KubeClient) -> None:
        job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
        job.input = partition("Verifying", 0)
        await until(lambda: job.status.get("input") == partition("Verifying", 0))
        assert reasons(job) == ["CheckpointsNotWritten"]
        job.input = partition("On", 1)
        await until(lambda: job.status.get("input") == partition("On", 1))
        job.input = partition("On", 2)
        job.problems.clear("worker-0", CHECKPOINTS)
        await until(lambda: not reasons(job))
        assert job.status["input"] == partition("On", 2), "it goes with what is written anyway"
        job.input = None
        await until(lambda: "input" not in job.status)

    run(job, story)


def test_numbers_of_the_input_alone_are_written_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_status, "INPUT_SECONDS", 0.0)
    writes: list[Json] = []

    class Api:
        """An API server that has one job, and keeps no field ``input`` once it is old."""

        old = False

        async def job(self) -> Json:
            return {"metadata": {"uid": "u", "resourceVersion": "1"}}

        async def set_job_status(self, version: str, fields: Json) -> Json:
            writes.append(fields)
            kept = {key: one for key, one in fields.items() if not (self.old and key == "input")}
            return {**await self.job(), "status": kept}

    async def story(api: Api) -> None:
        told, problems = partition("On", 1), Problems()
        status = TrainerStatus(api, "u", problems, lambda: told)  # type: ignore[arg-type]  # a fake of the API
        for moved in range(20):
            told = partition("On", moved)
            assert await status._attempt()
        assert len(writes) == 1
        if api.old:
            problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
            assert await status._attempt(), "nothing holds up the problems"
            assert [one["reason"] for one in writes[-1]["problems"]] == ["CheckpointsNotWritten"]
            return
        told = partition("FellBack", 19)
        assert await status._attempt()
        assert len(writes) == 2, "another state is written at once"

    asyncio.run(story(Api()))
    writes.clear()
    Api.old = True
    asyncio.run(story(Api()))


@pytest.mark.parametrize("earlier", [True, False])
def test_a_trainer_writes_no_other_field_and_no_other_jobs_status(
    cluster: RunningCluster, tmp_path: Path, earlier: bool
) -> None:
    """The role of earlier releases names no job, and the policy alone stands in the way."""
    job = Job(cluster, f"mine-{earlier}".lower(), tmp_path, earlier=earlier)
    other = Job(cluster, f"theirs-{earlier}".lower(), tmp_path)

    async def refusal(of: Job, fields: Json) -> str:
        kube = KubeClient(job.access, "default", of.name, of.uid)
        try:
            found = await asyncio.to_thread(cluster.get, JOBS, of.name, "default")
            await kube.set_job_status(found["metadata"]["resourceVersion"], fields)
        except KubeError as error:
            return f"{error.code} {error}"
        finally:
            await kube.close()
        return ""

    async def ask() -> list[str]:
        return [
            await refusal(job, {"state": "Succeeded"}),
            await refusal(other, {"problems": []}),
            await refusal(job, {"problems": []}),
        ]

    state, foreign, own = asyncio.run(ask())
    assert state.startswith("403 ")
    assert "a trainer does not change status.state" in state
    assert foreign.startswith("403 ")
    by_policy = "a trainer writes the status of its own job only"
    assert (by_policy if earlier else "cannot patch resource") in foreign
    assert own == ""


def test_without_the_right_one_line_is_logged_and_the_trainer_goes_on(
    cluster: RunningCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(cluster, "unbound", tmp_path)
    refused = 0

    async def story(kube: KubeClient) -> None:
        nonlocal refused
        version = (await kube.job())["metadata"]["resourceVersion"]
        await asyncio.to_thread(job.unbind)
        call = kube.set_job_status

        async def counted(version: str, fields: Json) -> Json:
            nonlocal refused
            refused += 1
            return await call(version, fields)

        kube.set_job_status = counted  # type: ignore[method-assign]  # stands in for the API's own
        # Stands in for the API's own.
        kube.job = _answers({"metadata": {"uid": job.uid, "resourceVersion": version}})  # type: ignore[method-assign]
        job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
        await until(lambda: refused >= 3)

    with caplog.at_level(logging.WARNING, "penstock.trainer"):
        run(job, story)
    [line] = [said for said in caplog.messages if "status.problems" in said]
    assert "403" in line


def test_a_cluster_whose_crd_lacks_the_field_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with api_server() as old:
        for manifest in MANIFESTS:
            for item in manifest.objects():
                if item["metadata"]["name"] == JOBS:
                    [version] = item["spec"]["versions"]
                    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
                    del status["properties"]["problems"]
                if item["kind"] == "CustomResourceDefinition" or item["kind"] == "ClusterRole":
                    old.apply(item)
        job = Job(old, "old", tmp_path)
        answers = 0

        async def story(kube: KubeClient) -> None:
            nonlocal answers
            call = kube.set_job_status

            async def counted(version: str, fields: Json) -> Json:
                nonlocal answers
                answer = await call(version, fields)
                answers += 1
                return answer

            # Stands in for the API's own.
            kube.set_job_status = counted  # type: ignore[method-assign]
            job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
            await until(lambda: answers >= 3)

        with caplog.at_level(logging.WARNING, "penstock.trainer"):
            run(job, story)
    [line] = [said for said in caplog.messages if "status.problems" in said]
    assert "update its CRD" in line


def test_another_job_of_the_name_is_not_written_to(cluster: RunningCluster, tmp_path: Path) -> None:
    job = Job(cluster, "again", tmp_path)
    document = copy.deepcopy(JOB)
    document["metadata"]["name"] = job.name
    asked = 0

    async def story(kube: KubeClient) -> None:
        nonlocal asked
        await asyncio.to_thread(cluster.delete, JOBS, job.name, "default")
        await asyncio.to_thread(cluster.create, JOBS, document)
        call = kube.job

        async def counted() -> Json:
            nonlocal asked
            asked += 1
            return await call()

        kube.job = counted  # type: ignore[method-assign]  # stands in for the API's own
        job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
        await until(lambda: asked >= 2)

    run(job, story)
    assert written(cluster.get(JOBS, job.name, "default")) == []


def test_what_an_earlier_trainer_wrote_stays_while_nobody_could_repeat_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    job = Job(cluster, "restarted", tmp_path)

    async def story(kube: KubeClient) -> None:
        job.problems.report("worker-0", CHECKPOINTS, "no space", 0.0)
        await until(lambda: reasons(job) == ["CheckpointsNotWritten"])

    run(job, story)

    async def second() -> None:
        kube = job.client()
        status = TrainerStatus(kube, job.uid, Problems(), retry_seconds=(0.05,))
        status.seen(await kube.job())
        task = asyncio.create_task(status.run(quiet_seconds=3600))
        await asyncio.sleep(0.3)
        assert reasons(job) == ["CheckpointsNotWritten"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await status.settle(10)
        assert reasons(job) == []
        await kube.close()

    asyncio.run(second())


def _answers(job: Json) -> Callable[[], Awaitable[Json]]:
    async def answer() -> Json:
        return job

    return answer


def test_the_estimate_of_its_end_is_the_trainers_to_write(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    job = Job(cluster, "ending", tmp_path)

    async def main() -> None:
        kube = job.client()
        status = TrainerStatus(kube, job.uid, job.problems, told_end=lambda: "2026-11-26T18:00:00Z")
        task = asyncio.create_task(status.run())
        try:
            await until(lambda: "estimatedCompletionTime" in job.status)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kube.close()

    asyncio.run(main())
    assert job.status == {"estimatedCompletionTime": "2026-11-26T18:00:00Z"}


def test_a_policy_of_an_earlier_release_keeps_no_problem_from_being_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = {"name": "job", "uid": "u", "resourceVersion": "1"}
    document: Json = {"metadata": metadata}
    sent: list[Json] = []

    class Refusing:
        async def job(self) -> Json:
            return document

        async def set_job_status(self, version: str, fields: Json) -> Json:
            sent.append(fields)
            if "estimatedCompletionTime" in fields:
                raise KubeError(403, "a trainer does not change it")
            return {**document, "status": fields}

    problems = Problems()
    problems.report("worker-0", CHECKPOINTS, "full", 0.0)

    async def main() -> None:
        end = "2026-11-26T18:00:00Z"
        status = TrainerStatus(Refusing(), "u", problems, told_end=lambda: end)  # type: ignore[arg-type]  # a fake of the API
        await status.settle(5)

    asyncio.run(main())
    assert [sorted(fields) for fields in sent] == [
        ["estimatedCompletionTime", "problems"],
        ["problems"],
    ]
    assert caplog.text.count("status.estimatedCompletionTime is not written") == 1
