"""The SDK against a real API server and a real Brain, in both its forms."""

from __future__ import annotations

import asyncio
import inspect
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from penstock.base.enums import Policy, Role
from penstock.base.targets import Resources, RoleTarget
from penstock.client import (
    AsyncPenstock,
    BrainClient,
    InvalidObjectError,
    JobEndedError,
    ObjectConflictError,
    ObjectNotFoundError,
    Penstock,
    WaitTimeoutError,
    job_calls,
)
from penstock.client.waiting import one_manifest
from penstock.crds import labels
from penstock.wire import JobRegistration, Override, RankSample, Sample, SampleBatch
from penstock_cluster.testing import RunningCluster
from tests.api.service import REGISTRATION
from tests.client.embedded import cluster_with_definitions, condition, job, set_status
from tests.client.servers import REAL
from tests.client.test_against_the_service import service
from tests.patience import patient

Sdk = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with cluster_with_definitions() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def sdk(request: pytest.FixtureRequest, cluster: RunningCluster) -> Sdk:
    """Calls one method of one form of the SDK: ``sdk("submit", manifest)``."""

    def call(name: str, *args: Any, brain_url: str | None = None, **given: Any) -> Any:
        options: Any = {
            "kubeconfig": cluster.kubeconfig_path,
            "brain_url": brain_url,
            "brain_token": "token",
            "retry": REAL,
        }
        if request.param == "sync":
            with Penstock(**options) as penstock:
                found = getattr(penstock, name)(*args, **given)
                return list(found) if hasattr(found, "__next__") else found

        async def main() -> Any:
            async with AsyncPenstock(**options) as penstock:
                found = getattr(penstock, name)(*args, **given)
                if hasattr(found, "__anext__"):
                    return [each async for each in found]
                return await found

        return asyncio.run(main())

    call.form = request.param  # type: ignore[attr-defined]  # the fixture's note on the function
    return call


def named(sdk: Sdk, what: str) -> str:
    return f"{what}-{sdk.form}"  # type: ignore[attr-defined]  # the fixture's note on the function


def later(work: Callable[[], None], seconds: float = 0.3) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


def test_a_job_is_submitted_from_a_mapping_a_model_and_a_file(sdk: Sdk, tmp_path: Path) -> None:
    stored = sdk("submit", job(named(sdk, "mapping")))
    assert stored.metadata.uid
    assert stored.spec.strategy == "AllReduce"
    again = stored.model_copy(update={"metadata": type(stored.metadata)(name=named(sdk, "model"))})
    assert sdk("submit", again).metadata.name == named(sdk, "model")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job(named(sdk, "file"))))
    assert sdk("submit", path).metadata.name == named(sdk, "file")
    assert {named(sdk, each) for each in ("mapping", "model", "file")} <= {
        each.metadata.name for each in sdk("jobs")
    }
    sdk("delete", named(sdk, "file"))
    with pytest.raises(ObjectNotFoundError, match=named(sdk, "file")):
        sdk("job", named(sdk, "file"))


def test_what_is_refused_names_the_fields(sdk: Sdk) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        sdk("submit", job("refused", strategy="Guess", activeDeadlineSeconds=0))
    assert {field for field, _ in caught.value.fields} >= {"spec.strategy"}
    with pytest.raises(InvalidObjectError, match=r"spec\.nonsense"):
        sdk("submit", job("refused", nonsense=1))
    with pytest.raises(ValueError, match="ElasticJob expected"):
        sdk("submit", {"kind": "Job"})
    sdk("submit", job(named(sdk, "twice")))
    with pytest.raises(ObjectConflictError, match="already exists"):
        sdk("submit", job(named(sdk, "twice")))


def test_waiting_ends_when_it_has_come_about(sdk: Sdk, cluster: RunningCluster) -> None:
    name = named(sdk, "waited")
    sdk("submit", job(name))
    timer = later(lambda: set_status(cluster, name, condition("Succeeded")))
    try:
        assert sdk("wait", name, timeout_seconds=patient(20)).metadata.name == name
    finally:
        timer.join()


def test_waiting_ends_when_there_is_no_hope(sdk: Sdk, cluster: RunningCluster) -> None:
    failed, deleted = named(sdk, "failed"), named(sdk, "deleted")
    sdk("submit", job(failed))
    set_status(cluster, failed, condition("Failed", "exit code 1"))
    with pytest.raises(JobEndedError, match=r"ended as Failed before it was Succeeded: exit code"):
        sdk("wait", failed, timeout_seconds=patient(20))
    sdk("submit", job(deleted))
    timer = later(lambda: cluster.delete("elasticjobs.penstock.dev", deleted, "default") and None)
    try:
        with pytest.raises(JobEndedError, match="was deleted"):
            sdk("wait", deleted, timeout_seconds=patient(20))
    finally:
        timer.join()
    with pytest.raises(ObjectNotFoundError):
        sdk("wait", "never-was")


def test_waiting_ends_in_time(sdk: Sdk, cluster: RunningCluster) -> None:
    name = named(sdk, "slow")
    sdk("submit", job(name))
    set_status(cluster, name, condition("Running"), state="Running")
    with pytest.raises(WaitTimeoutError, match=r"not Succeeded after 0\.1 s; it is Running"):
        sdk("wait", name, timeout_seconds=0.1)
    assert sdk("wait", name, "Running", timeout_seconds=patient(5)).status.state == "Running"


@pytest.mark.parametrize("form", [Penstock, AsyncPenstock])
def test_a_server_that_hangs_does_not_outlast_the_wait(form: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        path = tmp_path / "kubeconfig"
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": access}],
        }
        path.write_text(yaml.safe_dump(document))

        def wait() -> None:
            found = form(kubeconfig=path).wait("x", timeout_seconds=0.5)
            if inspect.iscoroutine(found):
                asyncio.run(found)

        began = time.monotonic()
        with pytest.raises(WaitTimeoutError, match=r"not Succeeded after 0\.5 s"):
            wait()
        assert time.monotonic() - began < 5


def test_a_persons_targets_are_scales(sdk: Sdk, cluster: RunningCluster) -> None:
    name = named(sdk, "scaled")
    sdk("submit", job(name))
    target = RoleTarget(replicas=3, resources=Resources(cpu="2"))
    scale = sdk("scale", name, {Role.WORKER: target}, message="more")
    assert scale.spec.source == "User"
    assert scale.spec.policy is Policy.APPLY
    assert scale.spec.roles[Role.WORKER].replicas == 3
    pin = sdk("pin", name, {Role.WORKER: RoleTarget(replicas=2)})
    assert pin.metadata.name > scale.metadata.name, "the newer one must sort after the older"
    assert sdk("release", name) == 1
    left = [each["metadata"]["name"] for each in cluster.list("scales.penstock.dev", "default")]
    assert scale.metadata.name in left
    assert pin.metadata.name not in left
    assert sdk("suspend", name).spec.suspend is True
    assert sdk("resume", name).spec.suspend is False


def test_two_who_scale_within_one_moment_do_not_meet_in_one_name() -> None:
    document = {"metadata": {"name": "x", "uid": "u", "namespace": "default"}}
    names = [
        job_calls.scale(document, {Role.WORKER: {"replicas": 2}}, now_seconds=now).body
        for now in (1795333744.255111, 1795333744.255112, 1795333744.2562)
    ]
    found = [(each or {})["metadata"]["name"] for each in names]
    assert found == sorted(set(found))


def test_the_brain_is_told_that_its_pin_is_gone(
    sdk: Sdk, cluster: RunningCluster, sqlite_url: str
) -> None:
    name = named(sdk, "pinned")
    uid = sdk("submit", job(name)).metadata.uid
    pin = sdk("pin", name, {Role.WORKER: RoleTarget(replicas=2)})
    noted = {"metadata": {"annotations": {labels.PLAN: "2"}}}
    cluster.patch("scales.penstock.dev", pin.metadata.name, noted, "default")
    with service(sqlite_url) as url, BrainClient(url, retry=REAL) as brain:
        brain.register(uid, JobRegistration.model_validate({**REGISTRATION, "name": name}))
        override = {"policy": "Pin", "roles": {"worker": {"replicas": 2}}}
        brain.override(uid, Override.model_validate(override))
        assert brain.job(uid).pinned_by is not None
        assert sdk("release", name, Role.PS, brain_url=url) == 0
        assert sdk("release", name, brain_url=url) == 1
        assert brain.job(uid).pinned_by is None


def test_what_the_brain_knows(sdk: Sdk, cluster: RunningCluster, sqlite_url: str) -> None:
    name = named(sdk, "known")
    uid = sdk("submit", job(name)).metadata.uid
    with service(sqlite_url) as url, BrainClient(url, retry=REAL) as brain:
        brain.register(uid, JobRegistration.model_validate({**REGISTRATION, "name": name}))
        rank = RankSample(cpu_cores=1.5, memory_bytes=2**30)
        now = time.time()
        samples = [
            Sample(
                time=now - 10 + i, step=i, steps_per_second=2.0, roles={Role.WORKER: {"0": rank}}
            )
            for i in range(3)
        ]
        brain.send_samples(uid, SampleBatch(samples=samples))
        plans = sdk("plans", name, brain_url=url)
        assert [plan.id for plan in plans] == [1]
        found = sdk("samples", name, brain_url=url)
        assert [sample.step for sample in found] == [0, 1, 2]
        assert found[0].roles[Role.WORKER].cpu_cores == 1.5
        assert sdk("propose", name, brain_url=url).runs is not None

        def end() -> None:
            override = Override.model_validate({"roles": {"worker": {"replicas": 2}}})
            brain.override(uid, override)
            brain.finish(uid, "Succeeded")

        timer = later(end)
        try:
            watched = sdk("watch_plans", name, brain_url=url)
        finally:
            timer.join()
        assert [plan.id for plan in watched] == [1, 2], "it ends with the job, and misses nothing"


def test_a_frame_needs_pandas_and_says_so(
    sdk: Sdk, cluster: RunningCluster, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = named(sdk, "framed")
    uid = sdk("submit", job(name)).metadata.uid
    made: dict[str, Any] = {}

    class Frame(dict[str, Any]):
        def __init__(self, rows: list[Any], columns: Any = None) -> None:
            made["rows"] = rows
            super().__init__(time=[row["time"] for row in rows])

        def set_index(self, column: str) -> Frame:
            made["index"] = column
            return self

    with service(sqlite_url) as url, BrainClient(url, retry=REAL) as brain:
        brain.register(uid, JobRegistration.model_validate({**REGISTRATION, "name": name}))
        sample = Sample(
            time=time.time(),
            step=7,
            steps_per_second=2.0,
            roles={Role.DATA_WORKER: {"0": RankSample(cpu_cores=0.5)}},
        )
        brain.send_samples(uid, SampleBatch(samples=[sample]))
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            sdk("samples_frame", name, brain_url=url)
        stand_in = SimpleNamespace(DataFrame=Frame, to_datetime=lambda column, **_: column)
        monkeypatch.setitem(sys.modules, "pandas", stand_in)
        sdk("samples_frame", name, brain_url=url)
    [row] = made["rows"]
    assert made["index"] == "time"
    assert (row["step"], row["data_worker_cpu_cores"]) == (7, 0.5)


def test_both_forms_have_the_same_methods() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(of).items()
            if not name.startswith("_") and inspect.isfunction(member)
        }

    plain, asynchronous = methods(Penstock), methods(AsyncPenstock)
    assert asynchronous.pop("aclose") == plain.pop("close")
    assert asynchronous.pop("brain") == ["self"]  # a property of the plain form
    assert plain == asynchronous


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", r"^job.yaml: line [12]: not YAML"),
        ("a: 1\nb: 2\na: 3", "^job.yaml: line 3: not YAML: 'a' is there twice"),
        ("- a", "found something else"),
        ("", "found 0"),
        ("a: 1\n---\nb: 2", "found 2"),
        ("a: \x07", "not YAML"),
    ],
)
def test_a_text_that_is_no_manifest_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        one_manifest(text, "job.yaml")
