"""ElasticJob of DLRover: AllReduce with its launcher, or parameter servers.

DLRover's servers are TensorFlow's: such a job becomes one of ``framework: TensorFlow``, of fixed
size, whose programs run as they are.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.enums import Framework, Optimize, Strategy
from penstock.convert.assembly import (
    FIXED_SIZE,
    Conversion,
    Count,
    bounded,
    carried,
    fixed,
    in_units,
    job,
    restarts,
    role,
)
from penstock.convert.program import Setting
from penstock.convert.source import Json, Path, Source
from penstock.convert.template import (
    RoleProgram,
    ask_for_variables,
    plain_template,
    role_template,
)

ROLES: Final = ("spec", "replicaSpecs")
STRATEGIES: Final = {
    "AllreduceStrategy": Strategy.ALL_REDUCE,
    "ParameterServerStrategy": Strategy.PARAMETER_SERVER,
    "CustomStrategy": Strategy.ALL_REDUCE,
    "Local": Strategy.LOCAL,
}
MODES: Final = {
    "manual": Optimize.MANUAL,
    "mannual": Optimize.MANUAL,  # as its documentation spells it
    "single-job": Optimize.AUTO,
    "cluster": Optimize.AUTO,
}
DROPPED: Final = {
    "brainService": "the controller tells jobs where the Brain is",
    "enableElasticScheduling": "always so: spec.optimize says what the Brain may do",
    "enableDynamicSharding": "elastic.session hands out samples, in programs that use it",
}
ROLE_DROPPED: Final = {
    "priority": "a priority class in the template is the same: priorityClassName; spareReplicas "
    "are workers that may be preempted first",
    "restartPolicy": "a failed pod is replaced: spec.failurePolicy.maxRestarts, of each rank",
    "restartTimeout": "the trainer ends a program that holds up the others for 30 minutes",
    "BatchScheduler": "the controller knows the gang scheduler: spec.gang asks for a gang",
}
MASTER: Final = "dlrover-master"
MASTER_DROPPED: Final = (
    "the job's trainer takes its place, and Penstock makes its pod: spec.trainer.template"
)
VARIABLES: Final = {
    "NODE_NUM": "GROUP_WORLD_SIZE of the processes",
    "NODE_RANK": "GROUP_RANK of the processes, PENSTOCK_RANK of the pod",
    "WORKER_NUM": "GROUP_WORLD_SIZE of the processes",
    "WORKER_RANK": "GROUP_RANK of the processes, PENSTOCK_RANK of the pod",
    "WORKER_ID": "PENSTOCK_RANK",
    "WORKER_TYPE": "PENSTOCK_ROLE",
    "ELASTIC_JOB_NAME": "PENSTOCK_JOB_NAME",
    "DLROVER_MASTER_ADDR": "PENSTOCK_TRAINER_ADDRESS, which speaks another protocol",
    "TF_CONFIG": "of jobs with spec.framework: TensorFlow alone",
}
CONTAINER: Final = "main"
WORKERS: Final = ("worker", "chief")
SCALED: Final = ("worker", "ps")
_TENSORFLOW: Final = (
    "runs as it is, told of the others by TF_CONFIG: what of it asks DLRover's master (its shards, "
    "its hooks) finds none. For numbers that change, move the model to PyTorch and "
    "penstock.trainer.ps (docs/tasks/parameter-servers.md)"
)
_TOLD_BY_TF_CONFIG: Final = frozenset({"TF_CONFIG"})


def convert(source: Source) -> Conversion:
    """An ElasticJob of Penstock.

    Raises:
        RefusedError: the job has no correspondence.
    """
    strategy = _strategy(source)
    named = source.mapping(ROLES)
    source.drop((*ROLES, MASTER), MASTER_DROPPED)
    if not any(name in named for name in WORKERS):
        raise source.refused(ROLES, "must have worker")
    if others := sorted(named.keys() - {*WORKERS, "ps", "evaluator", MASTER}):
        raise source.refused((*ROLES, others[0]), "is no role of Penstock's: take it out")
    tensorflow = strategy is Strategy.PARAMETER_SERVER
    from_command: int | None = None
    if tensorflow:
        roles = _tensorflow(source)
    else:
        worker, from_command = _workers(source, strategy)
        roles = {"worker": worker}
        source.drop((*ROLES, "ps"), "servers need strategy ParameterServer")
        if "evaluator" in named:
            roles["evaluator"] = _evaluator(source)
    scaled = "true leaves the number and the sizes to the Brain: spec.optimize, replicas"
    for name in named:
        source.drop_all((*ROLES, name), ROLE_DROPPED)
        source.change((*ROLES, name, "autoScale"), FIXED_SIZE if tensorflow else scaled)
    optimize = _optimize(source, fixed_size=tensorflow)
    fields = {
        **({"framework": Framework.TENSORFLOW.value} if tensorflow else {}),
        **carried(source, {"suspend": ("spec", "suspend")}),
        **_limits(source),
        **restarts(source, _restart_counts(source), from_command),
    }
    source.drop_all(("spec",), DROPPED)
    for each in roles.values():
        _environment(source, each)
    document = job(source, strategy, optimize, fields, roles)
    return Conversion(source.label, document, tuple(source.finish()))


def _strategy(source: Source) -> Strategy:
    path = ("spec", "distributionStrategy")
    said = source.text(path)
    if said is None:
        has_servers = source.at((*ROLES, "ps")) is not None
        return Strategy.PARAMETER_SERVER if has_servers else Strategy.ALL_REDUCE
    if said not in STRATEGIES:
        raise source.refused(path, f"must be one of {', '.join(STRATEGIES)}")
    source.change(path, f"spec.strategy: {STRATEGIES[said]}")
    return STRATEGIES[said]


def _optimize(source: Source, *, fixed_size: bool) -> Optimize:
    path = ("spec", "optimizeMode")
    said = source.text(path)
    if said is not None and said not in MODES:
        raise source.refused(path, "must be manual, single-job or cluster")
    if fixed_size:
        source.change(path, f"spec.optimize: {Optimize.MANUAL}: {FIXED_SIZE}")
        return Optimize.MANUAL
    scaled = any(
        source.flag((*ROLES, name, "autoScale"))
        or (name in SCALED and not source.integer((*ROLES, name, "replicas")))
        for name in source.mapping(ROLES)
    )
    if said is None:
        return Optimize.AUTO if scaled else Optimize.MANUAL
    source.change(path, f"spec.optimize: {MODES[said]}")
    return MODES[said]


def _count(source: Source, name: str) -> Count:
    """The number that is stated; without one, what the plan decides."""
    if source.at((*ROLES, name)) is None:
        return Count(0, 0)
    stated = source.integer((*ROLES, name, "replicas")) or 0
    if stated and not source.flag((*ROLES, name, "autoScale")):
        return fixed(stated)
    return Count(1, stated or None)


def _workers(source: Source, strategy: Strategy) -> tuple[Json, int | None]:
    """The role worker, of which the chief is one, and the failures that its launcher bears."""
    main = "worker" if source.at((*ROLES, "worker")) is not None else "chief"
    count = _count(source, main)
    if main == "worker" and source.at((*ROLES, "chief")) is not None:
        chiefs = source.integer((*ROLES, "chief", "replicas")) or 1
        source.change((*ROLES, "chief"), "the chief is one of the workers, of rank 0")
        most = count.most + chiefs if count.most is not None else None
        count = Count(count.least, most, count.fixed + chiefs if count.fixed else 0)
        if count.fixed:
            count = fixed(count.fixed)
    for name in WORKERS:
        source.change((*ROLES, name, "replicas"), "spec.replicaSpecs.worker, the chief included")
    if strategy is Strategy.LOCAL:
        count = fixed(1)
    several = strategy is not Strategy.LOCAL
    known = {"NODE_NUM": count.most, "WORKER_NUM": count.most} if count.most else {}
    setting = Setting(variables=known)
    how = RoleProgram(setting, CONTAINER, VARIABLES, several=several)
    path = (*ROLES, main, "template")
    template = role_template(source, path, how)
    count = bounded(count, template.program.nodes)
    count = in_units(source, template.container, count, template.program)
    return role(count, template), template.program.max_restarts


def _tensorflow(source: Source) -> Json:
    """The roles of TensorFlow's cluster, of fixed numbers, each with its program as it is."""
    if source.at((*ROLES, "ps")) is None:
        raise source.refused(ROLES, "must have ps, with ParameterServerStrategy")
    main = "worker" if source.at((*ROLES, "worker")) is not None else "chief"
    number = _fixed_number(source, main)
    if main == "worker" and source.at((*ROLES, "chief")) is not None:
        number += _fixed_number(source, "chief")
        source.change((*ROLES, "chief"), "the chief is one of the workers, of rank 0")
    roles: Json = {"worker": role(fixed(number), _tensorflow_template(source, main))}
    for name in ("ps", "evaluator"):
        if source.at((*ROLES, name)) is not None:
            count = fixed(_fixed_number(source, name))
            roles[name] = role(count, _tensorflow_template(source, name))
    for name in (*WORKERS, *roles):
        here = "worker, the chief included" if name in WORKERS else name
        source.change((*ROLES, name, "replicas"), f"spec.replicaSpecs.{here}")
    return roles


def _fixed_number(source: Source, name: str) -> int:
    """The number that is stated; one, where it was left to DLRover."""
    stated = source.integer((*ROLES, name, "replicas"))
    if not stated and name in SCALED:
        source.ask((*ROLES, name), f"one of {name}, as {FIXED_SIZE} and no number is said: say it")
    return stated or 1


def _tensorflow_template(source: Source, name: str) -> Json:
    path = (*ROLES, name, "template")
    manifest = plain_template(source, path, CONTAINER)
    first = manifest["spec"]["containers"][0]
    for index, container in enumerate(source.items((*path, "spec", "containers"))):
        if container.get("name") == first["name"]:
            place = (*path, "spec", "containers", index)
            source.ask((*place, "command"), _TENSORFLOW)
            others = {name: VARIABLES[name] for name in VARIABLES.keys() - _TOLD_BY_TF_CONFIG}
            ask_for_variables(source, place, first, others)
    return manifest


def _evaluator(source: Source) -> Json:
    path = (*ROLES, "evaluator", "template")
    template = role_template(source, path, RoleProgram(container=CONTAINER, variables=VARIABLES))
    source.change((*ROLES, "evaluator", "replicas"), "spec.replicaSpecs.evaluator")
    stated = source.integer((*ROLES, "evaluator", "replicas"))
    return role(fixed(1 if stated is None else stated), template)


def _restart_counts(source: Source) -> list[tuple[Path, int]]:
    paths = [(*ROLES, name, "restartCount") for name in source.mapping(ROLES) if name != MASTER]
    return [(path, said) for path in paths if (said := source.integer(path)) is not None]


def _limits(source: Source) -> Json:
    """``spec.resourceLimits``; a number of GPUs is one of NVIDIA's."""
    path = ("spec", "resourceLimits")
    limits: Json = {}
    for name, amount in source.mapping(path).items():
        if name == "gpu":
            limits["nvidia.com/gpu"] = amount
            source.change((*path, name), "as nvidia.com/gpu")
        else:
            limits[name] = amount
            source.keep((*path, name))
    return {"resourceLimits": limits} if limits else {}


def _environment(source: Source, of_role: Json) -> None:
    """``spec.envs``, which DLRover gives every pod, in the first container."""
    path = ("spec", "envs")
    given: dict[str, Any] = {}
    for name in source.mapping(path):
        if source.mapping((*path, name)):
            given[name] = {"name": name, **source.mapping((*path, name))}
            source.keep((*path, name))
    if given:
        first = of_role["template"]["spec"]["containers"][0]
        others = [one for one in first.get("env") or () if one.get("name") not in given]
        first["env"] = [*others, *given.values()]
