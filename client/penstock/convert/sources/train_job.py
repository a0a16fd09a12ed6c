"""TrainJob of Kubeflow Trainer (v2), with the runtime that it names.

A runtime that is converted along is read; the built-in ones for PyTorch are known by name; of any
other what it says is not known, and a note names it. Runtimes that start MPI or Flux are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final

from penstock.base.enums import Optimize, Strategy
from penstock.convert.assembly import (
    Conversion,
    bounded,
    carried,
    fixed,
    in_units,
    job,
    restarts,
    role,
)
from penstock.convert.gang import named_in, of_pod_group_policy, queue_in
from penstock.convert.overlay import overlaid
from penstock.convert.program import Program, Setting
from penstock.convert.source import Json, Path, Source, leaves
from penstock.convert.template import (
    RoleProgram,
    Template,
    ask_for_image,
    checked_template,
    plain_template,
    program_of,
)

SPEC: Final = ("spec",)
TRAINER: Final = ("spec", "trainer")
RUNTIMES: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
BUILT_IN: Final = "torch-distributed"
BUILT_IN_IMAGE: Final = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
NODE: Final = "node"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
NOT_OURS: Final = {
    "flux": "Flux starts its programs",
    "mpi": "MPI starts its programs",
    "deepspeed": "MPI starts its programs: torch-distributed starts DeepSpeed's scripts as well",
    "mlx": "MPI starts its programs",
    "jax": "nothing tells JAX its coordinator here",
    "xgboost": "nothing forms a Rabit ring here",
}
"""What the name of a runtime, or a policy of it, begins with, and why it has no correspondence."""
POLICIES: Final = ("mpi", "flux", "jax", "xgboost")

DROPPED: Final = {
    "managedBy": "no other controller is to run the job: spec.managedBy would name one",
    "initializer": "nothing fetches it before the start: do so in an initContainer of the "
    "template, or in the program",
}
RUNTIME_DROPPED: Final = {
    "spec.mlPolicy.torch.elasticPolicy": "spec.replicaSpecs.worker.minReplicas and maxReplicas",
    "metadata": "a runtime is written into the job that names it",
}
VARIABLES: Final = {
    "PET_NNODES": "GROUP_WORLD_SIZE of processes that --nproc-per-node starts",
    "PET_NODE_RANK": "PENSTOCK_RANK of the pod, GROUP_RANK of processes that --nproc-per-node "
    "starts",
    "PET_NPROC_PER_NODE": "LOCAL_WORLD_SIZE of processes that --nproc-per-node starts",
    "PET_MASTER_ADDR": "MASTER_ADDR of processes that --nproc-per-node starts",
    "PET_MASTER_PORT": "MASTER_PORT of processes that --nproc-per-node starts",
}
_CONTAINER_FIELDS: Final = ("image", "command", "args")


def convert(source: Source, runtimes: Iterable[Source] = ()) -> Conversion:
    """An ElasticJob of strategy AllReduce.

    Args:
        source: the TrainJob.
        runtimes: those that were found beside it.

    Raises:
        RefusedError: the job, or its runtime, has no correspondence.
    """
    runtime = _runtime(source, runtimes)
    template = _base_template(source, runtime)
    _fill_container(source, template["spec"]["containers"][0])
    extra = _patched(source, template)
    checked_template(source, template)
    container: Json = template["spec"]["containers"][0]
    nodes, processes = _numbers(source, runtime)
    how = RoleProgram(
        Setting(processes=processes, variables={"PET_NNODES": nodes}), NODE, VARIABLES
    )
    program = _program(source, runtime, container, how)
    queued = _queue(source, template)
    fields = {
        **restarts(source, [], program.max_restarts),
        **carried(source, {"activeDeadlineSeconds": (*SPEC, "activeDeadlineSeconds")}),
    }
    if queued:
        source.drop((*SPEC, "suspend"), "Kueue holds back the pods, and not the job")
    else:
        fields |= carried(source, {"suspend": (*SPEC, "suspend")})
    if runtime is not None and (gang := _gang(runtime)) is not None:
        fields["gang"] = gang
    source.drop_all(SPEC, DROPPED)
    source.ask((*SPEC, "initializer"), "have the workers fetch it")
    count = in_units(source, TRAINER, bounded(fixed(nodes), program.nodes), program)
    roles = {"worker": role(count, Template(template, program, TRAINER))}
    document = job(source, Strategy.ALL_REDUCE, Optimize.MANUAL, fields, roles)
    for field in ("labels", "annotations"):
        if found := {**extra.get(field, {}), **document["metadata"].get(field, {})}:
            document["metadata"][field] = found
    notes = source.finish()
    if runtime is not None:
        runtime.drop_all((), RUNTIME_DROPPED)
        runtime.change_lost(_pods_of(runtime), document, "the job says otherwise")
        notes = [*notes, *runtime.finish()]
    return Conversion(source.label, document, tuple(notes))


def names(source: Source, runtime: Source) -> bool:
    """Whether a TrainJob names a runtime."""
    kind = source.at((*SPEC, "runtimeRef", "kind")) or RUNTIMES[0]
    name = source.at((*SPEC, "runtimeRef", "name"))
    return (kind, name) == (runtime.document.get("kind"), runtime.at(("metadata", "name")))


def is_known_by_name(runtime: str) -> bool:
    """Whether the name of a runtime alone says what becomes of its jobs."""
    return runtime == BUILT_IN or runtime.startswith(tuple(NOT_OURS))


# ---------------------------------------------------------------------- the runtime


def _runtime(source: Source, runtimes: Iterable[Source]) -> Source | None:
    """The runtime that the job names, where it is at hand.

    Raises:
        RefusedError: it is none of ours.
    """
    path = (*SPEC, "runtimeRef")
    name = source.text((*path, "name"))
    if not name:
        raise source.refused((*path, "name"), "must name a runtime")
    kind = source.text((*path, "kind")) or RUNTIMES[0]
    for prefix, why in NOT_OURS.items():
        if name.startswith(prefix):
            raise source.refused((*path, "name"), f"{why}: keep the TrainJob")
    found = [one for one in runtimes if names(source, one)]
    if found:
        source.change(path, "what the runtime says is written into the job")
        policies = found[0].mapping(("spec", "mlPolicy"))
        for policy in POLICIES:
            if policy in policies:
                raise found[0].refused(("spec", "mlPolicy", policy), NOT_OURS[policy])
        return Source(found[0].document)
    if name == BUILT_IN:
        source.change(path, f"known: torchrun in each pod, image {BUILT_IN_IMAGE} unless named")
    else:
        source.drop(path, "what it says is not known here, and PyTorch is assumed")
        source.ask(
            path,
            f"convert it along: put what kubectl get {kind.lower()} {name} -o yaml prints into "
            "the same file or folder",
        )
    return None


def _container_of(runtime: Source) -> Path:
    """Where a runtime has the container that trains."""
    at = _pods_of(runtime)
    names = [one.get("name") for one in runtime.items((*at, "spec", "containers"))]
    return (*at, "spec", "containers", names.index(NODE) if NODE in names else 0)


def _pods_of(runtime: Source) -> Path:
    """Where a runtime has the template of the pods that train.

    Raises:
        RefusedError: it has none.
    """
    jobs: Path = ("spec", "template", "spec", "replicatedJobs")
    for index in range(len(runtime.items(jobs))):
        if runtime.text((*jobs, index, "name")) == NODE:
            return (*jobs, index, "template", "spec", "template")
    raise runtime.refused(jobs, "has no job named node: nothing trains")


def _base_template(source: Source, runtime: Source | None) -> Json:
    """The template of the runtime; without one, a container that the job fills."""
    if runtime is None:
        built_in = source.at((*SPEC, "runtimeRef", "name")) == BUILT_IN
        container: Json = {"name": NODE}
        if built_in:
            container["image"] = BUILT_IN_IMAGE
        elif source.text((*TRAINER, "image")) is None:
            raise source.refused(
                (*SPEC, "runtimeRef", "name"),
                "says which image, and is not known here: convert it along, or write spec.trainer."
                "image",
            )
        return {"spec": {"containers": [container]}}
    pods = _pods_of(runtime)
    template = plain_template(runtime, pods, NODE)
    at = pods[:-3]
    runtime.change((*at, "name"), "the role worker")
    runtime.change((*at, "replicas"), "spec.replicaSpecs.worker")
    runtime.drop((*at, "dependsOn"), "nothing runs before the job but initContainers")
    runtime.drop((*at, "template", "metadata"), "there is no Job between the job and its pods")
    for index in range(len(runtime.items(at[:-1]))):
        if (*at[:-1], index) != at:
            runtime.drop((*at[:-1], index), "a job of its own beside the training: it does not run")
    return template


def _numbers(source: Source, runtime: Source | None) -> tuple[int, str]:
    """Pods, and processes of each where the command does not say."""
    nodes: int | None = None
    processes = "auto"
    if runtime is not None:
        nodes = runtime.integer(("spec", "mlPolicy", "numNodes"))
        runtime.change(("spec", "mlPolicy", "numNodes"), "spec.replicaSpecs.worker.replicas")
        torch: Path = ("spec", "mlPolicy", "torch")
        if runtime.at(torch) == {}:
            runtime.change(torch, "strategy AllReduce")
        processes = str(runtime.at((*torch, "numProcPerNode")) or processes)
        runtime.change((*torch, "numProcPerNode"), "--nproc-per-node of penstock run")
    said = source.integer((*TRAINER, "numNodes"))
    source.change((*TRAINER, "numNodes"), "spec.replicaSpecs.worker.replicas")
    per_node = source.at((*TRAINER, "numProcPerNode"))
    source.change(
        (*TRAINER, "numProcPerNode"),
        "--nproc-per-node of penstock run, where the command is a launcher's and does not say",
    )
    number = said if said is not None else nodes
    number = 1 if number is None else number
    if number == 0:
        raise source.refused((*TRAINER, "numNodes"), "must be at least 1")
    return number, str(per_node) if per_node is not None else processes


# ---------------------------------------------------------------------- the pods


def _fill_container(source: Source, container: Json) -> None:
    """Put what ``spec.trainer`` says into the container that trains."""
    for field in _CONTAINER_FIELDS:
        if (value := source.at((*TRAINER, field))) is not None:
            container[field] = copy.deepcopy(value)
            source.keep((*TRAINER, field))
    variables = source.items((*TRAINER, "env"))
    if variables:
        container["env"] = overlaid(container.get("env") or [], variables)
        source.keep((*TRAINER, "env"))
    resources = (*TRAINER, "resourcesPerNode")
    if source.mapping(resources):
        container["resources"] = copy.deepcopy(dict(source.mapping(resources)))
        source.keep(resources)


def _program(source: Source, runtime: Source | None, container: Json, how: RoleProgram) -> Program:
    """Have the container run its program under the agent."""
    image = source.at((*TRAINER, "image")) or (runtime is None and container.get("image"))
    if image and source.at((*TRAINER, "image")) is None:
        ask_for_image(source, (*SPEC, "runtimeRef", "name"), image)
    said = [field for field in ("command", "args") if source.at((*TRAINER, field)) is not None]
    if runtime is None:
        return program_of(source, TRAINER, container, how)
    at = _container_of(runtime)
    if not said:
        return program_of(runtime, at, container, how)
    program = program_of(source, TRAINER, container, how)
    if not source.at((*TRAINER, "image")):
        ask_for_image(runtime, (*at, "image"), container.get("image"))
    return program


def _patched(source: Source, template: Json) -> Json:
    """Lay the job's own patches over the template; labels and annotations for the job come back."""
    extra: Json = {}
    for field in ("labels", "annotations"):
        if source.mapping((*SPEC, field)):
            extra[field] = dict(source.mapping((*SPEC, field)))
            source.keep((*SPEC, field))
    for index in range(len(source.items((*SPEC, "runtimePatches")))):
        patch: Path = (*SPEC, "runtimePatches", index)
        source.drop((*patch, "manager"), "nobody else patches the job")
        inner: Path = (*patch, "trainingRuntimeSpec", "template")
        for field in ("labels", "annotations"):
            if source.mapping((*inner, "metadata", field)):
                found = dict(source.mapping((*inner, "metadata", field)))
                extra[field] = {**extra.get(field, {}), **found}
                source.keep((*inner, "metadata", field))
        jobs: Path = (*inner, "spec", "replicatedJobs")
        for number in range(len(source.items(jobs))):
            if source.text((*jobs, number, "name")) != NODE:
                source.drop((*jobs, number), "the job has the pods of node alone")
                continue
            source.change((*jobs, number, "name"), "the role worker")
            _lay_over(source, template, (*jobs, number, "template", "spec", "template"))
    for index in range(len(source.items((*SPEC, "podTemplateOverrides")))):
        one: Path = (*SPEC, "podTemplateOverrides", index)
        targets = source.items((*one, "targetJobs"))
        if any(isinstance(target, dict) and target.get("name") == NODE for target in targets):
            source.change((*one, "targetJobs"), "the role worker")
            _lay_over(source, template, one)
        else:
            source.drop(one, "the job has the pods of node alone")
    return extra


def _lay_over(source: Source, template: Json, path: Path) -> None:
    """Lay metadata and spec at a path over the template."""
    for field in ("metadata", "spec"):
        if source.mapping((*path, field)):
            patch = copy.deepcopy(dict(source.mapping((*path, field))))
            template[field] = overlaid(template.get(field) or {}, patch)
            for below, _ in leaves(patch):
                source.keep((*path, field, *below))


def _gang(runtime: Source) -> Json | None:
    """The gang that the runtime asks for, by its policy or by names in its pods."""
    found = [of_pod_group_policy(runtime, ("spec", "podGroupPolicy")), named_in(runtime)]
    asked = [one for one in found if one is not None]
    return (
        {**queue_in(runtime), **{k: v for one in asked for k, v in one.items()}} if asked else None
    )


def _queue(source: Source, template: Json) -> bool:
    """Kueue's queue is a label of the pods: whether there is one."""
    path = ("metadata", "labels", QUEUE)
    name = source.text(path)
    if name is None:
        return False
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), QUEUE: name}
    source.change(path, "a label of the workers' template as well: docs/tasks/kueue.md")
    return True
