"""The target is a function of the spec and of the set of admitted Scales, in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.targets import RankTarget, compute_target
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.model.parsing import read_scale, read_spec
from penstock.controller.reconcile.model.target_fields import FieldKey, flatten
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.scale import ScaleSpec
from tests.controller.life import job, scale, template
from tests.controller.test_convergence import role_targets

GIB = 1 << 30


def spec(**worker: Any) -> ElasticJobSpec:
    found, fault = read_spec(job(workers=worker)["spec"])
    assert found is not None, fault
    return found


def admitted(name: str, roles: dict[str, Any], second: int = 0, **more: Any) -> Scale:
    raw = scale(name, "uid", roles, **more)
    raw["metadata"].update(
        uid=f"uid-{name}",
        resourceVersion="1",
        creationTimestamp=f"2026-01-01T00:00:{second:02d}Z",
    )
    raw["status"] = {
        "conditions": [
            {
                "type": "Admitted",
                "status": "True",
                "reason": "Admitted",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }
    return read_scale(raw)


@st.composite
def histories(draw: st.DrawFn) -> list[Scale]:
    count = draw(st.integers(0, 6))
    return [
        admitted(
            f"s-{number}",
            {draw(st.sampled_from(["worker", "dataWorker"])): draw(role_targets("worker"))},
            draw(st.integers(0, 2)),
            policy=draw(st.sampled_from(["Apply", "Apply", "Pin"])),
        )
        for number in range(count)
    ]


@given(history=histories(), data=st.data())
def test_order_of_arrival_does_not_matter(history: list[Scale], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(history))
    assert compute_target(spec(), history) == compute_target(spec(), shuffled)


@given(history=histories())
def test_what_is_superseded_can_go(history: list[Scale]) -> None:
    target = compute_target(spec(), history)
    kept = set(target.underneath.values()) | {
        one.name for one in history if one.policy.value == "Pin"
    }
    rest = [one for one in history if one.name in kept]
    assert compute_target(spec(), rest) == target


@given(history=histories(), replicas=st.integers(0, 8))
def test_counts_lie_within_the_bounds(history: list[Scale], replicas: int) -> None:
    bounded = spec(minReplicas=2, maxReplicas=4, replicas=replicas if 2 <= replicas <= 4 else 0)
    count = compute_target(bounded, history).role(Role.WORKER).replicas
    assert 2 <= count <= 4
    if 2 <= replicas <= 4:
        assert count == replicas


def test_defaults_without_scales() -> None:
    target = compute_target(spec(minReplicas=3), [])
    assert target.role(Role.WORKER).replicas == 3
    assert target.role(Role.DATA_WORKER).replicas == 0
    assert target.role(Role.EVALUATOR).replicas == 0
    assert target.origins == {}


def test_a_rank_stands_out_until_a_newer_scale_names_it() -> None:
    one = admitted("a", {"worker": {"replicas": 2, "ranks": {"1": {"memory": "4Gi"}}}}, 0)
    two = admitted("b", {"worker": {"resources": {"memory": "2Gi"}}}, 1)
    role = compute_target(spec(), [one, two]).role(Role.WORKER)
    assert role.rank(0).memory_bytes == 2 * GIB
    assert role.rank(1).memory_bytes == 4 * GIB
    three = admitted("c", {"worker": {"ranks": {"1": {"memory": "3Gi"}}}}, 2)
    role = compute_target(spec(), [one, two, three]).role(Role.WORKER)
    assert role.rank(1).memory_bytes == 3 * GIB


def test_flatten_reads_every_field() -> None:
    roles = {
        "worker": {
            "replicas": 3,
            "spareReplicas": 1,
            "resources": {"cpu": "1500m", "memory": "1Gi"},
            "ranks": {
                "2": {"cpu": "2", "memory": "3Gi", "minIncarnation": 4, "avoidNodes": ["bad"]}
            },
        }
    }
    found = flatten(ScaleSpec.model_validate(scale("x", "uid", roles)["spec"]))
    worker = Role.WORKER
    assert found == {
        FieldKey(worker, None, "replicas"): 3,
        FieldKey(worker, None, "spareReplicas"): 1,
        FieldKey(worker, None, "cpu"): 1500,
        FieldKey(worker, None, "memory"): GIB,
        FieldKey(worker, 2, "cpu"): 2000,
        FieldKey(worker, 2, "memory"): 3 * GIB,
        FieldKey(worker, 2, "minIncarnation"): 4,
        FieldKey(worker, 2, "avoidNodes"): ("bad",),
    }


def test_rank_target_falls_back_to_the_role() -> None:
    one = admitted("a", {"worker": {"resources": {"cpu": "2"}, "ranks": {"0": {"memory": "1Gi"}}}})
    role = compute_target(spec(), [one]).role(Role.WORKER)
    assert role.rank(0) == RankTarget(2000, GIB)
    assert role.rank(1) == RankTarget(2000, None)


def test_evaluator_takes_part() -> None:
    found, _ = read_spec(
        job(roles={"evaluator": {"template": template(), "minReplicas": 2}})["spec"]
    )
    assert found is not None
    assert compute_target(found, []).role(Role.EVALUATOR).replicas == 2
