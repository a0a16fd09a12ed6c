"""TFJob of Kubeflow's training-operator (v1): a job of ``framework: TensorFlow``, of fixed size.

Each program runs as it is, told of the others by ``TF_CONFIG``, with nothing of Penstock in its
image. Chief and Worker are one role, whose rank 0 is the chief.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base.enums import Framework, Optimize, Strategy
from penstock.convert.assembly import FIXED_SIZE, Conversion, fixed, job, restarts, role
from penstock.convert.merged_roles import merge_roles, replica_counts
from penstock.convert.source import Json, Path, Source
from penstock.convert.sources.one_pod import one_pod
from penstock.convert.sources.run_policy import RESTART_POLICIES, policy_fields
from penstock.convert.template import plain_template

ROLES: Final = ("spec", "tfReplicaSpecs")
POLICY: Final = ("spec", "runPolicy")
CONTAINER: Final = "tensorflow"
WORKERS: Final = ("Worker", "Chief", "Master")
SERVERS: Final = "PS"
EVALUATORS: Final = "Evaluator"
DROPPED: Final = {
    "successPolicy": "with parameter servers the job ends with worker 0, the chief; without, with "
    "all workers",
    "enableDynamicWorker": FIXED_SIZE,
}


def convert(source: Source) -> Conversion:
    """An ElasticJob: Local for one pod, else of TensorFlow's cluster.

    Raises:
        RefusedError: the job has no correspondence.
    """
    counts = replica_counts(source, ROLES)
    if others := sorted(counts.keys() - {*WORKERS, SERVERS, EVALUATORS}):
        raise source.refused(
            (*ROLES, others[0]), f"must be one of {', '.join((*WORKERS, SERVERS, EVALUATORS))}"
        )
    if sum(counts.values()) == 1:
        source.drop_all(("spec",), DROPPED)
        return one_pod(source, ROLES, CONTAINER, counts)
    workers: dict[str, int] = {name: counts[name] for name in WORKERS if name in counts}
    number = sum(workers.values())
    if not number:
        raise source.refused(ROLES, "has no Worker and no Chief")
    main = next(name for name in WORKERS if counts.get(name))
    servers = counts.get(SERVERS, 0)
    template = plain_template(source, (*ROLES, main, "template"), CONTAINER)
    chief = "the task chief" if servers else "the first worker, which is the chief"
    said = f"spec.replicaSpecs.worker.replicas: {number}, of which worker 0 is {chief}"
    merge_roles(source, ROLES, workers, main, said)
    roles: Json = {"worker": role(fixed(number), template)}
    for name, here in ((SERVERS, "ps"), (EVALUATORS, "evaluator")):
        if counts.get(name):
            own = plain_template(source, (*ROLES, name, "template"), CONTAINER)
            roles[here] = role(fixed(counts[name]), own)
            source.change((*ROLES, name, "replicas"), f"spec.replicaSpecs.{here}.replicas")
        elif name in counts:
            source.drop((*ROLES, name), f"{name} has no replica")
    fields = {
        "framework": Framework.TENSORFLOW.value,
        **policy_fields(source, POLICY, template),
        **_failures(source, counts),
    }
    source.drop_all(("spec",), DROPPED)
    strategy = Strategy.PARAMETER_SERVER if servers else Strategy.ALL_REDUCE
    document = job(source, strategy, Optimize.MANUAL, fields, roles)
    return Conversion(source.label, document, tuple(source.finish()))


def _failures(source: Source, counts: Mapping[str, int]) -> Mapping[str, Any]:
    """The failures that each rank may have: none, where no pod was ever to be restarted."""
    backoff: Path = (*POLICY, "backoffLimit")
    limit = source.integer(backoff)
    policies = [(*ROLES, name, "restartPolicy") for name in counts]
    said = [source.at(path) for path in policies if source.at(path) is not None]
    for path in policies:
        source.change(path, RESTART_POLICIES.get(str(source.at(path)), RESTART_POLICIES[""]))
    if limit is None and said and all(one == "Never" for one in said):
        return {"failurePolicy": {"maxRestarts": 0}}
    return restarts(source, [] if limit is None else [(backoff, limit)], None)
