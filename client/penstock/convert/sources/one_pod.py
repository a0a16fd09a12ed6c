"""Jobs of Kubeflow's training-operator (v1) in which one pod does all, whatever it trains with.

With several pods JAXJobs, PaddleJobs, XGBoostJobs and MPIJobs rest on what their framework is told
(hosts of MPI, a coordinator's address), which nothing here sets: such a job is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Optimize, Strategy
from penstock.convert.assembly import Conversion, fixed, job, restarts, role
from penstock.convert.merged_roles import replica_counts
from penstock.convert.source import Path, Source
from penstock.convert.sources.run_policy import RESTART_POLICIES, policy_fields
from penstock.convert.template import RoleProgram, role_template


@dataclass(frozen=True)
class Framework:
    """One kind.

    Attributes:
        roles: the field with its roles.
        container: the name of the container that trains.
        several: why several pods have no correspondence.
    """

    roles: str
    container: str
    several: str


FRAMEWORKS: Final = {
    "JAXJob": Framework(
        "jaxReplicaSpecs", "jax", "nothing tells JAX its coordinator here: keep the JAXJob"
    ),
    "PaddleJob": Framework(
        "paddleReplicaSpecs", "paddle", "nothing forms a Paddle cluster here: keep the PaddleJob"
    ),
    "XGBoostJob": Framework(
        "xgbReplicaSpecs", "xgboost", "nothing forms a Rabit ring here: keep the XGBoostJob"
    ),
    "MPIJob": Framework(
        "mpiReplicaSpecs", "mpi", "nothing starts programs of MPI here: keep the MPIJob"
    ),
}


def convert(source: Source) -> Conversion:
    """An ElasticJob of strategy Local.

    Raises:
        RefusedError: the job has more than one pod.
    """
    framework = FRAMEWORKS[str(source.document["kind"])]
    roles: Path = ("spec", framework.roles)
    counts = replica_counts(source, roles)
    if sum(counts.values()) != 1:
        raise source.refused(roles, framework.several if counts else "must have a role")
    return one_pod(source, roles, framework.container, counts)


def one_pod(source: Source, roles: Path, container: str, counts: Mapping[str, int]) -> Conversion:
    """An ElasticJob of one pod.

    Args:
        source: the job.
        roles: where it has its roles.
        container: the name of the container that trains.
        counts: replicas of each role, one in all.

    Raises:
        RefusedError: its template or its program has no correspondence.
    """
    [name] = [name for name, count in counts.items() if count]
    path = (*roles, name)
    how = RoleProgram(container=container, several=False)
    template = role_template(source, (*path, "template"), how)
    source.change((*path, "replicas"), "strategy Local has one worker")
    for other in counts.keys() - {name}:
        source.drop((*roles, other), f"{other} has no replica")
    source.change(
        (*path, "restartPolicy"),
        RESTART_POLICIES.get(str(source.at((*path, "restartPolicy"))), RESTART_POLICIES[""]),
    )
    policy: Path = ("spec", "runPolicy")
    backoff = source.integer((*policy, "backoffLimit"))
    limits = [] if backoff is None else [((*policy, "backoffLimit"), backoff)]
    fields = {
        **policy_fields(source, policy, template.manifest),
        **restarts(source, limits, template.program.max_restarts),
    }
    strategy = Strategy.LOCAL if template.program.launcher is None else Strategy.ALL_REDUCE
    document = job(source, strategy, Optimize.MANUAL, fields, {"worker": role(fixed(1), template)})
    return Conversion(source.label, document, tuple(source.finish()))
