"""ScalePlan of DLRover: what a person writes to scale a job, as a Scale.

A Scale names its job by uid, which no ScalePlan says: whoever sends it to a cluster looks it up.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.base.enums import Role
from penstock.base.enums import Source as WrittenBy
from penstock.convert.assembly import Conversion, checked, metadata
from penstock.convert.source import Json, Path, Source
from penstock.crds import labels
from penstock.crds.group import API_VERSION, SCALE_KIND

UNKNOWN_UID: Final = "unknown"
"""Stands for the uid of a job that has not been looked up."""

ROLES: Final = {
    "worker": Role.WORKER,
    "chief": Role.WORKER,
    "ps": Role.PS,
    "evaluator": Role.EVALUATOR,
}
TARGETS: Final = ("spec", "replicaResourceSpecs")
SIZES: Final = ("cpu", "memory")
DROPPED: Final = {
    "createPods": "a Scale says what should be, and the controller makes the pods",
    "removePods": "a Scale says what should be, and the controller removes the pods",
    "psHosts": "pods find their servers by the job's Service",
}
_LABELS: Final = ("elasticjob-name", "elasticjob.dlrover/name", "scale-type")
_POD: Final = re.compile(r".+-(worker|chief|ps|evaluator)-([0-9]{1,4})")
_RESIZED: Final = "a Scale sets cpu and memory"


def convert(source: Source) -> Conversion:
    """A Scale.

    Raises:
        RefusedError: the plan says nothing that a Scale could.
    """
    owner = source.text(("spec", "ownerJob"))
    if not owner:
        raise source.refused(("spec", "ownerJob"), "must name the job")
    source.change(("spec", "ownerJob"), "spec.jobRef.name")
    source.ask(
        ("spec", "ownerJob"),
        f"put the job's uid into spec.jobRef.uid (kubectl get ej {owner} -o "
        "jsonpath={.metadata.uid}), or have it sent by penstock submit -f, which looks it up",
    )
    roles: Json = {}
    for name in source.mapping(TARGETS):
        _target(source, name, roles)
    for index in range(len(source.items(("spec", "migratePods")))):
        _migration(source, ("spec", "migratePods", index), roles)
    source.drop_all(("spec",), DROPPED)
    if not roles:
        raise source.refused(("spec",), "says no number and no size of any role")
    named = metadata(source)
    others = dict(named.get("labels") or {})
    for name in _LABELS:
        source.drop(("metadata", "labels", name), "spec.jobRef names the job, spec.source who asks")
        others.pop(name, None)
    named["labels"] = {**others, labels.JOB: owner}
    document = {
        "apiVersion": API_VERSION,
        "kind": SCALE_KIND,
        "metadata": named,
        "spec": {
            "jobRef": {"name": owner, "uid": UNKNOWN_UID},
            "roles": roles,
            "source": WrittenBy.USER.value,
            "reason": "Override",
        },
    }
    checked(source, document)
    return Conversion(source.label, document, tuple(source.finish()))


def _target(source: Source, name: str, roles: Json) -> None:
    """The number and the size of one role."""
    path = (*TARGETS, name)
    if name not in ROLES:
        raise source.refused(path, f"must be one of {', '.join(ROLES)}")
    target = roles.setdefault(ROLES[name].value, {})
    replicas = source.integer((*path, "replicas"))
    if replicas is not None:
        target["replicas"] = target.get("replicas", 0) + replicas
        source.change((*path, "replicas"), f"spec.roles.{ROLES[name]}.replicas")
    if sizes := _sizes(source, (*path, "resource")):
        target["resources"] = {**target.get("resources", {}), **sizes}
    if not target:
        del roles[ROLES[name].value]


def _migration(source: Source, path: Path, roles: Json) -> None:
    """A pod that is to move to a larger one: its rank gets that size."""
    name = source.text((*path, "name")) or ""
    said = source.text((*path, "type")), source.integer((*path, "rankIndex"))
    found = _POD.fullmatch(name)
    kind, rank = (found[1], int(found[2])) if found else said
    if kind not in ROLES or rank is None:
        raise source.refused((*path, "name"), "must be JOB-ROLE-RANK, to know which pod is meant")
    role = ROLES[kind].value
    source.change((*path, "name"), f"spec.roles.{role}.ranks.{rank}")
    for field in ("id", "type", "rankIndex", "service"):
        source.drop((*path, field), "a rank says which pod is meant")
    if sizes := _sizes(source, (*path, "resource")):
        ranks = roles.setdefault(role, {}).setdefault("ranks", {})
        ranks[str(rank)] = {name: str(amount) for name, amount in sizes.items()}
        for name, amount in sizes.items():
            if not isinstance(amount, str):
                source.change((*path, "resource", name), f"as text: '{amount}'")


def _sizes(source: Source, path: Path) -> Json:
    found: Json = {}
    for name, amount in source.mapping(path).items():
        if name in SIZES:
            found[name] = amount
            source.keep((*path, name))
        else:
            source.drop((*path, name), _RESIZED)
    return found
