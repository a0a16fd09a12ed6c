"""``TF_CONFIG``: how a TensorFlow program finds the others of its job, and which of them it is.

TensorFlow's strategies read it as a program begins and never again
(``tf.distribute.cluster_resolver.TFConfigClusterResolver``): a cluster is of one size for as long
as it lives, so a job that has it fixes its counts (`penstock.crds.tensorflow_rules`). Addresses are
host names, which stay the same when a pod is replaced.

With parameter servers, worker 0 is the task ``chief``, which coordinates and saves, and the others
count from 0 again, as ``ParameterServerStrategy`` and estimators have it; without, all are
``worker``, of which MultiWorkerMirroredStrategy takes the first for chief. An evaluator is no part
of the cluster that it evaluates, and is told of it all the same.
"""

from __future__ import annotations

import json
from typing import Final

from penstock.base import ports
from penstock.base.enums import Framework, Role, Strategy
from penstock.crds.elasticjob import ElasticJobSpec

VARIABLE: Final = "TF_CONFIG"

_CHIEF: Final = "chief"
_WORKER: Final = "worker"
_SERVER: Final = "ps"
_EVALUATOR: Final = "evaluator"


def tf_config(spec: ElasticJobSpec, role: Role, rank: int, domain: str) -> str | None:
    """The value of the variable for one rank.

    Args:
        spec: the job's spec, whose counts are fixed.
        role: the rank's role.
        rank: the rank within the role.
        domain: what follows the host names of the job's pods, as ``JOB.NAMESPACE.svc``.

    Returns:
        JSON; None for a job that has no cluster of this kind, and for roles that run none of it.
    """
    if spec.framework is not Framework.TENSORFLOW or spec.strategy is Strategy.LOCAL:
        return None
    roles = spec.replica_specs
    workers = _addresses(Role.WORKER, roles.worker.replicas, domain)
    servers = _addresses(Role.PS, roles.ps.replicas if roles.ps else 0, domain)
    has_chief = spec.strategy is Strategy.PARAMETER_SERVER
    if has_chief:
        cluster = {_CHIEF: workers[:1], _WORKER: workers[1:], _SERVER: servers}
    else:
        cluster = {_WORKER: workers}
    match role:
        case Role.WORKER if has_chief:
            kind, index = (_WORKER, rank - 1) if rank else (_CHIEF, 0)
        case Role.WORKER:
            kind, index = _WORKER, rank
        case Role.PS:
            kind, index = _SERVER, rank
        case Role.EVALUATOR:
            kind, index = _EVALUATOR, rank
        case _:
            return None
    return json.dumps(
        {
            "cluster": {name: hosts for name, hosts in cluster.items() if hosts},
            "task": {"type": kind, "index": index},
        }
    )


def ends_with_its_chief(spec: ElasticJobSpec) -> bool:
    """Whether the other workers wait for orders and never end, as servers do."""
    return spec.framework is Framework.TENSORFLOW and spec.strategy is Strategy.PARAMETER_SERVER


def _addresses(role: Role, count: int, domain: str) -> list[str]:
    return [f"{role.in_names}-{rank}.{domain}:{ports.TENSORFLOW}" for rank in range(count)]
