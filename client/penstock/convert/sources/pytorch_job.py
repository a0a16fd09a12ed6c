"""PyTorchJob of Kubeflow's training-operator (v1): Master and Worker become one role of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base.enums import Optimize, Strategy
from penstock.convert.assembly import (
    Conversion,
    Count,
    bounded,
    fixed,
    in_units,
    job,
    restarts,
    role,
)
from penstock.convert.merged_roles import merge_roles, replica_counts
from penstock.convert.program import Setting
from penstock.convert.source import Path, Source
from penstock.convert.sources.run_policy import RESTART_POLICIES, policy_fields
from penstock.convert.template import RoleProgram, Template, role_template

SPEC: Final = ("spec",)
ELASTIC: Final = ("spec", "elasticPolicy")
ROLES: Final = ("spec", "pytorchReplicaSpecs")
_KNOWS: Final = "the job knows its pods and where they meet"

DROPPED: Final = {
    "elasticPolicy.rdzvBackend": _KNOWS,
    "elasticPolicy.rdzvHost": _KNOWS,
    "elasticPolicy.rdzvPort": _KNOWS,
    "elasticPolicy.rdzvId": _KNOWS,
    "elasticPolicy.rdzvConf": _KNOWS,
    "elasticPolicy.standalone": "all pods of the job are one world",
}
VARIABLES: Final = {
    "PET_NNODES": "GROUP_WORLD_SIZE",
    "PET_NODE_RANK": "GROUP_RANK",
    "PET_NPROC_PER_NODE": "LOCAL_WORLD_SIZE",
    "PET_MASTER_ADDR": "MASTER_ADDR",
    "PET_MASTER_PORT": "MASTER_PORT",
    "PET_RDZV_ENDPOINT": "MASTER_ADDR and MASTER_PORT",
}
"""What training-operator tells launchers, and what the processes find here instead."""


def convert(source: Source) -> Conversion:
    """An ElasticJob of strategy AllReduce.

    Raises:
        RefusedError: the job has no correspondence.
    """
    roles = source.mapping(ROLES)
    others = sorted(roles.keys() - {"Master", "Worker"})
    if others or not roles:
        raise source.refused(ROLES, "must have Worker, Master, or both")
    counts = replica_counts(source, ROLES)
    number = sum(counts.values())
    main = "Worker" if counts.get("Worker") else "Master"
    if not number:
        raise source.refused(ROLES, "has no replica at all")
    how = RoleProgram(
        Setting(processes=_processes(source), ranks=True, variables={"PET_NNODES": number}),
        container="pytorch",
        variables=VARIABLES,
    )
    template = role_template(source, (*ROLES, main, "template"), how)
    count = bounded(_elastic(source, number, counts.get("Master", 0)), template.program.nodes)
    count = in_units(source, template.container, count, template.program)
    source.drop_all(SPEC, DROPPED)
    scaled = source.at((*ELASTIC, "metrics")) is not None
    source.drop((*ELASTIC, "metrics"), "the Brain scales between minReplicas and maxReplicas")
    said = f"{number} workers in all, Master included"
    merge_roles(source, ROLES, counts, main, said)
    fields = {
        **policy_fields(source, (*SPEC, "runPolicy"), template.manifest),
        **_failures(source, template),
    }
    optimize = Optimize.AUTO if scaled else Optimize.MANUAL
    document = job(source, Strategy.ALL_REDUCE, optimize, fields, {"worker": role(count, template)})
    return Conversion(source.label, document, tuple(source.finish()))


def _processes(source: Source) -> str:
    """Processes of a pod, where the command does not say."""
    found = "auto"
    for path in ((*SPEC, "nprocPerNode"), (*ELASTIC, "nProcPerNode")):
        said = source.at(path)
        if said is None:
            continue
        if isinstance(said, bool) or not isinstance(said, int | str):
            raise source.refused(path, "must be a number, gpu, cpu or auto")
        found = str(said)
        source.change(path, "--nproc-per-node of penstock run, where the command does not say")
    return found


def _elastic(source: Source, number: int, masters: int) -> Count:
    """How many workers: as many as there were pods, or the bounds of an elastic job."""
    if not source.mapping(ELASTIC):
        return fixed(number)
    least = source.integer((*ELASTIC, "minReplicas"))
    most = source.integer((*ELASTIC, "maxReplicas"))
    for field in ("minReplicas", "maxReplicas"):
        source.change((*ELASTIC, field), f"spec.replicaSpecs.worker.{field}, Master included")
    low = max(1, (number if least is None else least + masters))
    high = number if most is None else most + masters
    scaled = source.at((*ELASTIC, "metrics")) is not None
    return Count(min(low, number), max(high, number), 0 if scaled else number)


def _failures(source: Source, template: Template) -> Mapping[str, Any]:
    said: list[tuple[Path, int]] = [
        (path, number)
        for path in ((*ELASTIC, "maxRestarts"), ("spec", "runPolicy", "backoffLimit"))
        if (number := source.integer(path)) is not None
    ]
    policies = [(*ROLES, name, "restartPolicy") for name in source.mapping(ROLES)]
    never = [path for path in policies if source.at(path) == "Never"]
    for path in policies:
        source.change(path, RESTART_POLICIES.get(str(source.at(path)), RESTART_POLICIES[""]))
    if never and not said and template.program.max_restarts is None:
        return {"failurePolicy": {"maxRestarts": 0}}
    return restarts(source, said, template.program.max_restarts)
