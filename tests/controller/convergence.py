"""What must hold of a job at every moment, and what when nothing changes any more."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.base import quantity
from penstock.base.enums import DATA_ROLES, Role
from penstock.controller.reconcile.desired import quota
from penstock.controller.reconcile.desired.targets import Target, compute_target
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.model.parsing import read_scale, read_spec
from penstock.crds.conditions import ConditionReason, JobReason, ScaleReason
from penstock.crds.elasticjob import ElasticJobSpec
from tests.controller.fake_server import copied
from tests.controller.life import Life

Json = dict[str, Any]


def check_always(life: Life) -> None:
    """No incarnation of a rank was ever given to two pods."""
    twice = [one for one, count in Counter(life.server.created_pods).items() if count > 1]
    assert not twice, f"created twice: {twice}"


def check_catalogue(life: Life) -> None:
    """Every condition has a reason that the catalogue lists for that condition and status."""
    statuses: list[tuple[Json, type[ConditionReason]]] = [
        (life.status, JobReason),
        *(
            (found.get("status") or {}, ScaleReason)
            for found in life.server.objects["scales"].values()
        ),
    ]
    for status, catalogue in statuses:
        for one in status.get("conditions") or ():
            if one["reason"] == "Trainer":  # the trainer's own answer
                continue
            shown = f"{one['type']}={one['status']}"
            assert shown in catalogue(one["reason"]).conditions, (shown, one["reason"])


def scales_of(life: Life) -> list[Scale]:
    uid = life.job["metadata"]["uid"]
    return [
        read
        for raw in life.server.objects["scales"].values()
        if (read := read_scale(raw)).job_uid == uid
    ]


def spec_of(life: Life) -> ElasticJobSpec:
    spec, fault = read_spec(life.job["spec"])
    assert spec is not None, fault
    return spec


def target_of(life: Life) -> Target:
    """The target as a function of the spec and the admitted Scales, and of nothing else."""
    return compute_target(spec_of(life), scales_of(life))


def shape(life: Life) -> dict[str, Any]:
    """The pods that a job has, as far as its target determines them.

    Resources that no Scale names are the template's at the time when a pod was made: a change of
    template, or a Scale that goes, reaches new incarnations only.
    """
    found: dict[str, Any] = {}
    target = target_of(life)
    for role in Role:
        own = target.role(role)
        resources = []
        for pod in life.pods(role.in_names):
            rank = rank_of(pod)
            cpu = _amount(pod, "cpu") if own.rank(rank).cpu_milli is not None else None
            memory = _amount(pod, "memory") if own.rank(rank).memory_bytes is not None else None
            resources.append((rank, cpu, memory))
        if role in DATA_ROLES:  # which ranks they have is left open
            found[role.value] = len(resources)
        elif resources:
            found[role.value] = sorted(resources)
    return found


def rank_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["penstock.dev/rank"])


def incarnation_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["penstock.dev/incarnation"])


def _amount(pod: Json, resource: str) -> int:
    text = pod["spec"]["containers"][0]["resources"]["requests"].get(resource, "0")
    if resource == "cpu":
        return quantity.parse_milli_cpu(text)
    return quantity.parse_bytes(text)


def check_settled(life: Life) -> None:
    """What must hold once everything has been delivered and nothing happens any more."""
    check_always(life)
    check_catalogue(life)
    check_owned(life)
    check_problems(life)
    life_scales = scales_of(life)
    for scale in life_scales:
        admitted = scale.status_of("Admitted")
        if life.condition("Accepted")[0] == "True" or finished(life):
            assert admitted in {"True", "False"}, f"{scale.name} is undecided"
    if finished(life):
        assert not life.pods(), f"a finished job has pods: {life.names()}"
        return
    if life.condition("Accepted")[0] != "True":
        over = quota.excess(spec_of(life), target_of(life))
        assert over, f"not accepted: {life.condition('Accepted')} {life.message('Accepted')}"
        return
    if life.job["spec"].get("suspend"):
        assert not life.pods(), f"a suspended job has pods: {life.names()}"
        assert life.condition("Suspended")[0] == "True"
        return
    _check_pods(life, target_of(life))


def check_owned(life: Life) -> None:
    """Every Scale of the job goes with the job."""
    loose = [scale.name for scale in scales_of(life) if not scale.owned]
    assert not loose, f"not owned by the job: {loose}"


def check_problems(life: Life) -> None:
    """What the trainer has said is in the conditions."""
    said = life.status.get("problems") or []
    unwritten = [one for one in said if one["reason"].endswith("NotWritten")]
    expected = "False" if unwritten else "True"
    assert life.condition("StorageHealthy")[0] == expected, said
    if any(one.get("fatal") for one in said) and life.condition("Accepted")[0] == "True":
        assert finished(life), said


def finished(life: Life) -> bool:
    return "True" in {life.condition("Succeeded")[0], life.condition("Failed")[0]}


def _check_pods(life: Life, target: Target) -> None:
    trainers = life.pods("trainer") + [
        one for one in life.pods("trainer", live=False) if one["status"]["phase"] == "Succeeded"
    ]
    assert len(trainers) == 1, f"trainers: {trainers}"
    ranks: Json = life.status.get("ranks") or {}
    for role in Role:
        live = life.pods(role.in_names)
        done = {
            rank_of(pod)
            for pod in life.pods(role.in_names, live=False)
            if pod["status"]["phase"] == "Succeeded"
            and _is_newest(ranks.get(role.value) or {}, pod)
        }
        own = target.role(role)
        have = sorted(rank_of(pod) for pod in live)
        if role in DATA_ROLES:
            assert len(have) == own.total - len(done), (role, have, own.total, done)
            assert len(set(have)) == len(have)
        else:
            want = [rank for rank in range(own.total) if rank not in done]
            assert have == want, f"{role}: has {have}, should have {want}"
        for pod in live:
            assert _is_newest(ranks.get(role.value) or {}, pod), (pod["metadata"]["name"], ranks)
            _check_resources(role, pod, target)


def _is_newest(ranks: Json, pod: Json) -> bool:
    record = ranks.get(str(rank_of(pod))) or {}
    return bool(record.get("incarnation", 0) == incarnation_of(pod))


def _check_resources(role: Role, pod: Json, target: Target) -> None:
    own = target.role(role).rank(rank_of(pod))
    if own.cpu_milli is not None:
        assert _amount(pod, "cpu") == own.cpu_milli, (pod["metadata"]["name"], own)
    if own.memory_bytes is not None:
        assert _amount(pod, "memory") == own.memory_bytes, (pod["metadata"]["name"], own)
    assert pod["spec"].get("nodeName", "") not in own.avoid_nodes
    assert incarnation_of(pod) >= own.min_incarnation


def same_from_scratch(life: Life) -> Life:
    """Another life that begins with the same spec and the same decided Scales, and nothing else."""
    other = Life(life.settings)
    other.planner_alive = life.planner_alive
    other.server.now = life.server.now
    raw = copied(life.job)
    raw["metadata"] = {"name": "job", "namespace": "ns"}
    raw.pop("status", None)
    uid = other.server.put("elasticjobs", raw)["metadata"]["uid"]
    for found in life.server.objects["scales"].values():
        if found["spec"]["jobRef"]["uid"] != life.job["metadata"]["uid"]:
            continue
        raw_scale = copied(found)
        raw_scale["spec"]["jobRef"]["uid"] = uid
        status = raw_scale.pop("status", None)
        created = raw_scale["metadata"]["creationTimestamp"]
        raw_scale["metadata"] = {"name": found["metadata"]["name"], "namespace": "ns"}
        stored = other.server.put("scales", raw_scale)
        stored["metadata"]["creationTimestamp"] = created
        if status is not None:
            stored["status"] = status
    other.relist()
    return other
