"""``spec.snapshots``: memory that workers get on top, as far as limits and quotas leave room."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.base import quantity
from penstock.base.enums import Role
from penstock.controller.reconcile.desired import quota, snapshots
from penstock.crds.elasticjob import ElasticJob, ElasticJobSpec
from penstock.kube.errors import ApiRefusedError
from tests.controller.life import Life, job, template

Json = dict[str, Any]
MIB = 1 << 20
COPY = 103 * MIB
"""Of a state of 100 MiB: one percent and two mebibytes more, as whole mebibytes."""


def spec_of(workers: Json | None = None, **spec: Any) -> ElasticJobSpec:
    raw = job(workers=workers, **{"snapshots": {"stateSize": "100Mi"}, **spec})
    return ElasticJob.model_validate(raw).spec


def memory(pod: Json, kind: str = "requests") -> int:
    return quantity.parse_bytes(pod["spec"]["containers"][0]["resources"][kind]["memory"])


def told(pod: Json) -> int | None:
    variables = pod["spec"]["containers"][0]["env"]
    values = [one["value"] for one in variables if one["name"] == "PENSTOCK_SNAPSHOT_MEMORY"]
    return int(values[0]) if values else None


def events(life: Life) -> list[str]:
    found = life.server.objects["events"].values()
    return [one["message"] for one in found if one["reason"] == "SnapshotsReduced"]


def test_workers_get_room_for_two_copies_on_top(life: Life) -> None:
    life.create_job(workers={"replicas": 2}, snapshots={"stateSize": "100Mi"})
    life.settle()
    for pod in life.pods("worker"):
        assert memory(pod) == 1024 * MIB + 2 * COPY
        assert told(pod) == 2 * COPY
    assert life.condition("Accepted") == ("True", "Accepted")


def test_without_the_field_nothing_is_added_and_nothing_is_said(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    [pod] = life.pods("worker")
    assert memory(pod) == 1024 * MIB
    assert told(pod) is None


@pytest.mark.parametrize(("limit", "copies"), [(2048 + 412, 2), (2048 + 206, 1), (2048 + 205, 0)])
def test_within_the_jobs_limits_there_are_as_many_copies_as_fit(
    life: Life, limit: int, copies: int
) -> None:
    life.create_job(
        workers={"minReplicas": 1, "maxReplicas": 2},
        snapshots={"stateSize": "100Mi"},
        resourceLimits={"memory": f"{limit}Mi"},
    )
    life.settle()
    [pod] = life.pods("worker")
    assert (memory(pod), told(pod)) == (1024 * MIB + copies * COPY, copies * COPY)
    reason = "Accepted" if copies == 2 else "SnapshotsReduced"
    assert life.condition("Accepted") == ("True", reason)
    life.create_scale("more", {"worker": {"replicas": 2}})
    life.settle()
    assert [told(pod) for pod in life.pods("worker")] == 2 * [copies * COPY], "room for all"


def test_the_line_names_the_field_what_is_missing_and_what_to_do() -> None:
    spec = spec_of({"replicas": 3}, resourceLimits={"memory": "4Gi"})
    assert quota.snapshot_copies(spec) == 2
    spec = spec_of({"replicas": 4}, resourceLimits={"memory": "4Gi"})
    assert snapshots.missing(spec, quota.snapshot_copies(spec)) == (
        "spec.snapshots: workers keep no snapshot in memory, as two for each of 4 workers need"
        " 824Mi more than the replicas request, of at most 4Gi; raise spec.resourceLimits[memory]"
        " or lower replicas"
    )


@pytest.mark.parametrize(
    ("workers", "spec", "copies"),
    [
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 8}, {}, 2),
        ({"replicas": 8, "minReplicas": 1, "maxReplicas": 8}, {}, 0),
        ({"minReplicas": 1, "maxReplicas": 8}, {}, 0),
        ({"minReplicas": 2}, {}, 2),
        ({"minReplicas": 1, "maxReplicas": 8}, {"strategy": "Local"}, 2),
    ],
)
def test_the_room_is_for_as_many_workers_as_there_can_be(
    workers: Json, spec: Json, copies: int
) -> None:
    found = spec_of(workers, resourceLimits={"memory": f"{2 * (1024 + 2 * 103)}Mi"}, **spec)
    assert quota.snapshot_copies(found) == copies


def test_of_another_role_that_is_fixed_no_more_are_counted_either() -> None:
    data: Json = {"replicas": 1, "minReplicas": 0, "maxReplicas": 8, "template": template()}
    room = {"resourceLimits": {"memory": f"{2 * 1024 + 2 * 103}Mi"}}
    fixed = spec_of({"replicas": 1}, roles={"dataWorker": data}, **room)
    assert quota.snapshot_copies(fixed) == 2
    planned = spec_of({"replicas": 1}, roles={"dataWorker": {**data, "replicas": 0}}, **room)
    assert quota.snapshot_copies(planned) == 0


def test_what_to_lower_is_what_bounds_the_workers() -> None:
    spec = spec_of({"minReplicas": 1, "maxReplicas": 4}, resourceLimits={"memory": "4Gi"})
    assert snapshots.missing(spec, 0).endswith("or lower maxReplicas")


def test_where_the_namespaces_quota_has_no_room_the_pod_is_as_it_was(life: Life) -> None:
    put, most = life.server.put, 1100 * MIB

    def refusing(resource: str, found: Json) -> Json:
        is_worker = resource == "pods" and "worker" in found["metadata"]["name"]
        if is_worker and memory(found) > most:
            why = "exceeded quota: memory, requested: requests.memory=1230Mi"
            raise ApiRefusedError(why, code=403, reason="Forbidden")
        return put(resource, found)

    life.server.put = refusing  # type: ignore[method-assign]  # stands in for the server's own
    life.create_job(workers={"replicas": 2}, snapshots={"stateSize": "100Mi"})
    life.settle()
    assert [(memory(pod), told(pod)) for pod in life.pods("worker")] == 2 * [(1024 * MIB, 0)]
    [line] = events(life)
    assert line.startswith("no memory is added for snapshots, the job runs without them: exceeded")


def test_a_scale_that_names_memory_names_all_of_it(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, snapshots={"stateSize": "100Mi"})
    rooms = {"2Gi": 2 * COPY, "1100Mi": 76 * MIB, "512Mi": 0}
    for number, (stated, room) in enumerate(rooms.items()):
        resources = {"memory": stated}
        again = {"ranks": {"0": {"minIncarnation": number + 1}}}
        life.create_scale(f"m{number}", {"worker": {"resources": resources, **again}})
        life.settle()
        pod = max(life.pods("worker"), key=lambda one: one["metadata"]["name"])
        assert (memory(pod), told(pod)) == (quantity.parse_bytes(stated), room)


def test_with_parameter_servers_the_field_is_refused() -> None:
    rules = [rule.message for rule in ElasticJobSpec.rules]
    assert any(rule.startswith("snapshots are the workers'") for rule in rules)
    with pytest.raises(ValidationError, match="stateSize"):
        spec_of(snapshots={"stateSize": "0"})


@given(
    replicas=st.integers(1, 50),
    limit=st.integers(1, 100_000),
    own=st.integers(1, 4000),
    size=st.integers(1, 4000),
)
def test_what_is_added_never_keeps_a_worker_from_fitting(
    replicas: int, limit: int, own: int, size: int
) -> None:
    container = {"name": "main", "image": "i", "resources": {"limits": {"memory": f"{own}Mi"}}}
    workers = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    limits = {"memory": f"{limit}Mi"}
    spec = spec_of(workers, snapshots={"stateSize": f"{size}Mi"}, resourceLimits=limits)
    copies = quota.snapshot_copies(spec)
    assert 0 <= copies <= 2
    [each] = quota.template_requests(quota.template_of(spec, Role.WORKER))
    fitted = replicas * own <= limit
    assert (replicas * each["memory"] <= limit * MIB) == fitted
    assert each["memory"] == own * MIB + copies * (snapshots.copy_bytes(spec) if copies else 0)
    if copies < 2:
        more = (copies + 1) * snapshots.copy_bytes(spec) * replicas
        assert replicas * own * MIB + more > limit * MIB, "as many as fit"


@given(added=st.integers(0, 1 << 40), own=st.integers(1, 1 << 40), stated=st.integers(1, 1 << 41))
def test_the_room_of_a_pod_is_only_what_is_beyond_its_own(
    added: int, own: int, stated: int
) -> None:
    room = snapshots.room(added, own, stated)
    assert 0 <= room <= added
    assert room == 0 or stated - room >= own
