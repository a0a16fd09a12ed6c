"""Pod manifests: a role's template with what makes it one incarnation of one rank of one job.

What Penstock sets wins over the template: labels, owner, host name and subdomain, the environment
of `penstock.crds.environment`, ``restartPolicy: Never`` (a container that ends is replaced by a new
incarnation of its pod, never restarted in place) and, where the target names them, the main
container's cpu and memory as requests and limits. All else is the template's.

Every container is told which pod it is of. The job's tokens, and what its program alone needs, are
the main container's (`penstock.crds.main_container`); another that names the variable of a token in
its ``env`` is given that token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import ports, quantity
from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Framework, Role
from penstock.controller.reconcile.desired import cache, shared_memory, snapshots, tensorflow
from penstock.controller.reconcile.desired.accelerators import accelerator_of
from penstock.controller.reconcile.desired.quota import snapshot_bytes, template_of
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.objects import (
    SHARE_TOKEN_KEY,
    TOKEN_KEY,
    job_labels,
    owner_reference,
    token_secret_name,
    trainer_account_name,
)
from penstock.controller.reconcile.model.observed import Job, Settings, role_in_names
from penstock.controller.reconcile.model.share_group import share_address
from penstock.crds import environment, labels
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.group import GROUP
from penstock.crds.main_container import main_index

SPARE_PRIORITY_CLASS: Final = "penstock-spare"
DATA_PRIORITY_CLASS: Final = "penstock-data"

TRAINER_CONTAINER: Final = "trainer"
STATE_PATH: Final = "/var/lib/penstock/state"
STATE_VOLUME: Final = "penstock-state"
KUBERNETES_TOKEN_PATH: Final = f"/var/run/secrets/{GROUP}/kubernetes"
BRAIN_TOKEN_PATH: Final = f"/var/run/secrets/{GROUP}/brain"

TRAINER_STARTUP_SECONDS: Final = 5
"""Asked earlier, a trainer that is well would answer with a Warning at each of its starts.

Nobody waits for its readiness but the job that gets no plan: workers reach it before.
"""

TRAINER_CPU_LIMIT: Final = "2"
"""A limit must be there, since a quota on limits.cpu admits no pod without one, and must never be
felt, since a throttled trainer holds up every worker. The trainer is one process with one thread
that interprets: it fills one core at most, under whatever load, and what writes its journal and
reads its connections beside that is a fraction of another."""

_CHECK_SHARE: Final = "0.001"
"""Of the time, for checks of machines between steps."""
_RUNTIME_GROUP: Final = 65532
"""The group of our images, in which the trainer runs unless its template says otherwise."""

_DATA_WORKER: Final = ["penstock", "data-worker"]
_PARAMETER_SERVER: Final = ["penstock", "ps"]
_SHARING: Final = frozenset({TRAINER_ROLE, Role.WORKER.value, *(role.value for role in DATA_ROLES)})
"""Roles that the data of a share group goes through."""

MOST_PROCESSES: Final = 64
"""Of a data worker's pod that make batches."""
_PREPARING: Final = frozenset({Role.WORKER, *DATA_ROLES})
"""Roles whose programs may make batches, and do what is stateless of a step."""

_REPLACED_WHOLE: Final = frozenset({"readinessProbe", "livenessProbe", "startupProbe"})
"""A probe has one of several handlers: two probes merged would be an invalid one."""

Json = dict[str, Any]


def pod_name(job: Job, role: str, rank: int, incarnation: int) -> str:
    """The name of one incarnation of a rank. It is written, never read: labels say what a pod is.

    It may be longer than a host name; the pod's ``hostname`` is always short enough.
    """
    return f"{job.name}-{role_in_names(role)}-{rank}-{incarnation}"


def _domain(job: Job) -> str:
    """What follows the host name of each pod of the job."""
    return f"{job.name}.{job.namespace}.svc"


def trainer_address(job: Job) -> str:
    """HOST:PORT of the job's trainer, the same over all its incarnations."""
    return f"{TRAINER_ROLE}-0.{_domain(job)}:{ports.TRAINER}"


def replica_pod(
    job: Job,
    spec: ElasticJobSpec,
    role: Role,
    rank: int,
    incarnation: int,
    target: RankTarget,
    *,
    spare: bool = False,
    gated: bool = False,
    group: str = "",
    cache_socket: str | None = None,
) -> Json:
    """The pod of one incarnation of a rank.

    Args:
        job: the job.
        spec: its spec.
        role: the role.
        rank: the rank within the role.
        incarnation: the incarnation, recorded in the job's status beforehand.
        target: resources and nodes to avoid.
        spare: whether the rank is beyond the quota and may be preempted first.
        gated: whether the planner is to place the pod.
        group: the share group that the job has joined; empty: none.
        cache_socket: where the cache of each node listens, for a job that asks for it.
    """
    pod = _from_template(job, template_of(spec, role), role.value, rank, incarnation, group)
    pod_spec = pod["spec"]
    pod_spec.setdefault("automountServiceAccountToken", False)
    main = pod_spec["containers"][main_index(pod_spec["containers"])]
    _set_resources(main, target)
    if target.avoid_nodes:
        _avoid_nodes(pod_spec, target.avoid_nodes)
    if spare:
        pod_spec["priorityClassName"] = SPARE_PRIORITY_CLASS
        pod_spec.pop("priority", None)
    told = [*_of_input(spec, role, pod_spec), *_of_size(role, main)]
    if spec.node_check and role is Role.WORKER:
        told.append(_plain(environment.NODE_CHECK, "1"))
    if spec.node_check_while_training and role is Role.WORKER:
        told.append(_plain(environment.NODE_CHECK_SHARE, _CHECK_SHARE))
    if role is Role.WORKER and (unit := spec.replica_specs.worker.unit) > 1:
        told.append(_plain(environment.REPLICA_PODS, str(unit)))
    if spec.snapshots is not None and role is Role.WORKER:
        own = snapshots.main_memory(spec.replica_specs.worker.template)
        room = snapshots.room(snapshot_bytes(spec), own, target.memory_bytes)
        told.append(_plain(environment.SNAPSHOT_MEMORY, str(room)))
    _set_variables(main, told)
    cluster = tensorflow.tf_config(spec, role, rank, _domain(job))
    if cluster is not None:
        _set_default(main, _plain(tensorflow.VARIABLE, cluster))
    if role in DATA_ROLES:
        if role not in spec.replica_specs.by_role():
            _run_data_worker(pod_spec, main)
        _ready_when_it_serves(main, _DATA_WORKER, ports.DATA_WORKER)
        pod_spec.setdefault("priorityClassName", DATA_PRIORITY_CLASS)
    if role is Role.PS and spec.framework is not Framework.TENSORFLOW:
        if not main.get("command") and not main.get("args"):
            main["command"] = list(_PARAMETER_SERVER)
        _ready_when_it_serves(main, _PARAMETER_SERVER, ports.PARAMETER_SERVER)
    if role in shared_memory.ROLES:
        shared_memory.add_shared_memory(pod_spec, main)
    if cache_socket is not None and cache.wants_socket(spec, role):
        cache.add_socket(pod_spec, main, cache_socket)
    if gated:
        gates = pod_spec.setdefault("schedulingGates", [])
        if not any(gate.get("name") == labels.PLACEMENT_GATE for gate in gates):
            gates.append({"name": labels.PLACEMENT_GATE})
    return pod


def trainer_pod(
    job: Job, spec: ElasticJobSpec, settings: Settings, incarnation: int, group: str = ""
) -> Json:
    """The pod of one incarnation of the job's Elastic Trainer; ``group`` as in `replica_pod`.

    ``spec.trainer.template`` is laid over the default template: maps merge, containers, volumes and
    environment variables merge by name, probes and other lists replace.
    """
    template = _default_trainer_template(job, spec, settings)
    overlay = spec.trainer.template if spec.trainer else None
    merged = _overlay(template, overlay) if overlay else template
    pod = _from_template(job, merged, TRAINER_ROLE, 0, incarnation, group)
    if group:
        pod["metadata"]["labels"][labels.SHARE_GROUP] = group
    variables = [
        _plain(environment.STATE_DIR, STATE_PATH),
        _plain(environment.KUBERNETES_TOKEN_FILE, f"{KUBERNETES_TOKEN_PATH}/token"),
        _plain(environment.BRAIN_TOKEN_FILE, f"{BRAIN_TOKEN_PATH}/token"),
    ]
    if settings.brain_url:
        variables.append(_plain(environment.BRAIN_URL, settings.brain_url))
        if settings.brain_authority:
            variables.append(_plain(environment.BRAIN_CA, settings.brain_authority))
    for container in pod["spec"]["containers"]:
        if container["name"] == TRAINER_CONTAINER:
            _set_variables(container, variables)
    pod["spec"]["serviceAccountName"] = trainer_account_name(job)
    return pod


def _default_trainer_template(job: Job, spec: ElasticJobSpec, settings: Settings) -> Json:
    """What the *restricted* Pod Security Standard and a quota on requests and limits admit."""
    state: list[Json] = [] if spec.state_volume else [{"name": STATE_VOLUME, "emptyDir": {}}]
    security: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if spec.state_volume:  # a fresh volume is root's, and the journal is not written as root
        security |= {"fsGroup": _RUNTIME_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    return {
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [
                {
                    "name": TRAINER_CONTAINER,
                    "image": settings.trainer_image,
                    "command": ["penstock", "trainer"],
                    "ports": [{"name": "trainer", "containerPort": ports.TRAINER}],
                    "readinessProbe": {
                        "httpGet": {"path": "/healthz", "port": ports.TRAINER},
                        "initialDelaySeconds": TRAINER_STARTUP_SECONDS,
                        "periodSeconds": 2,
                        "failureThreshold": 5,
                    },
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "256Mi"},
                        "limits": {"cpu": TRAINER_CPU_LIMIT, "memory": "2Gi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": spec.state_volume or STATE_VOLUME, "mountPath": STATE_PATH},
                        {"name": "kubernetes-token", "mountPath": KUBERNETES_TOKEN_PATH},
                        {"name": "brain-token", "mountPath": BRAIN_TOKEN_PATH},
                    ],
                }
            ],
            "volumes": [
                *state,
                {
                    "name": "kubernetes-token",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "optional": True,
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                        ]
                    },
                },
                {
                    "name": "brain-token",
                    "projected": {
                        "sources": [
                            {
                                "serviceAccountToken": {
                                    "path": "token",
                                    "audience": environment.BRAIN_AUDIENCE,
                                    "expirationSeconds": 3600,
                                }
                            }
                        ]
                    },
                },
            ],
        }
    }


def _overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> Json:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if value is None:
            continue  # as in the API server, a null is an absent field
        if key in _REPLACED_WHOLE:
            merged[key] = value
        elif isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _overlay(below, value)
        elif isinstance(below, list) and isinstance(value, list) and _named(below + value):
            merged[key] = _overlay_named(below, value)
        else:
            merged[key] = value
    return merged


def _named(items: list[Any]) -> bool:
    return all(
        isinstance(item, Mapping)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("mountPath", ""), str)
        for item in items
    )


def _overlay_named(below: list[Any], top: list[Any]) -> list[Any]:
    """Merge by name; volumeMounts, which may share a name, by name and mountPath."""
    merged = {(item["name"], item.get("mountPath")): item for item in below}
    for item in top:
        key = (item["name"], item.get("mountPath"))
        merged[key] = _overlay(merged[key], item) if key in merged else item
    return list(merged.values())


def _copy(value: Any) -> Any:
    """A deep copy of JSON data without its nulls; several times faster than one of anything."""
    if isinstance(value, Mapping):
        return {key: _copy(below) for key, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_copy(below) for below in value]
    return value


def _from_template(
    job: Job, template: Mapping[str, Any], role: str, rank: int, incarnation: int, group: str
) -> Json:
    pod_spec: Json = _copy(template["spec"])
    given = template.get("metadata") or {}
    in_names = role_in_names(role)
    pod_spec.update(restartPolicy="Never", hostname=f"{in_names}-{rank}", subdomain=job.name)
    variables = _identity(job, role, rank, incarnation)
    tokens = [_from_secret(job, environment.JOB_TOKEN, TOKEN_KEY)]
    if group and role in _SHARING:
        variables.append(_plain(environment.SHARE_ADDRESS, share_address(job, group)))
        tokens.append(_from_secret(job, environment.SHARE_TOKEN, SHARE_TOKEN_KEY))
    containers = pod_spec["containers"]
    main = containers[main_index(containers)]
    if role == TRAINER_ROLE:
        main = next((one for one in containers if one["name"] == TRAINER_CONTAINER), main)
    for container in (*(pod_spec.get("initContainers") or ()), *containers):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        asked = {one.get("name") for one in container.get("env") or ()}
        its_own = [one for one in tokens if container is main or one["name"] in asked]
        _set_variables(container, [*variables, *its_own])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, role, rank, incarnation),
            "namespace": job.namespace,
            "labels": {
                **(given.get("labels") or {}),
                **job_labels(job),
                labels.ROLE: in_names,
                labels.RANK: str(rank),
                labels.INCARNATION: str(incarnation),
            },
            "annotations": {
                **(given.get("annotations") or {}),
                labels.MAIN_CONTAINER: main["name"],
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod_spec,
    }


def _identity(job: Job, role: str, rank: int, incarnation: int) -> list[Json]:
    return [
        _plain(environment.JOB_NAME, job.name),
        _plain(environment.JOB_NAMESPACE, job.namespace),
        _plain(environment.JOB_UID, job.uid),
        _plain(environment.ROLE, role),
        _plain(environment.RANK, str(rank)),
        _plain(environment.INCARNATION, str(incarnation)),
        _from_field(environment.POD_NAME, "metadata.name"),
        _from_field(environment.POD_IP, "status.podIP"),
        _from_field(environment.NODE_NAME, "spec.nodeName"),
        _plain(environment.TRAINER_ADDRESS, trainer_address(job)),
    ]


def _of_input(spec: ElasticJobSpec, role: Role, pod_spec: Json) -> list[Json]:
    """What the pod has to know of the job's input, and which accelerator it has for it."""
    told = []
    if spec.input.partition is not None and role in _PREPARING:
        told.append(_plain(environment.PARTITION, spec.input.partition.lower()))
    if role is Role.ACCELERATED_DATA_WORKER and (found := accelerator_of({"spec": pod_spec})):
        told.append(_plain(environment.ACCELERATOR, found))
    return told


def _of_size(role: Role, container: Json) -> list[Json]:
    """How many processes make batches in a data worker's pod: one for each whole core.

    Where the pod has a limit, that says how many, also once it was resized where it runs.
    """
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.get("cpu")
    cores = quantity.parse_milli_cpu(str(asked)) // 1000 if asked is not None else 1
    if role is not Role.DATA_WORKER:
        return []
    return [_plain(environment.DATA_PROCESSES, str(max(1, min(cores, MOST_PROCESSES))))]


def _from_secret(job: Job, name: str, key: str) -> Json:
    reference = {"name": token_secret_name(job), "key": key}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _plain(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _set_variables(container: Json, variables: list[Json]) -> None:
    """Penstock's variables first, so that the template's own may refer to them as ``$(NAME)``."""
    ours = {variable["name"] for variable in variables}
    kept = [one for one in container.get("env") or () if one.get("name") not in ours]
    container["env"] = [*variables, *kept]


def _set_default(container: Json, variable: Json) -> None:
    """One that the template may have of its own."""
    variables = container.get("env") or []
    if not any(one.get("name") == variable["name"] for one in variables):
        container["env"] = [*variables, variable]


def _set_resources(container: Json, target: RankTarget) -> None:
    wanted: dict[str, str] = {}
    if target.cpu_milli is not None:
        wanted["cpu"] = quantity.format_milli_cpu(target.cpu_milli)
    if target.memory_bytes is not None:
        wanted["memory"] = quantity.format_bytes(target.memory_bytes)
    if wanted:
        resources = container.setdefault("resources", {})
        for kind in ("requests", "limits"):
            resources[kind] = {**(resources.get(kind) or {}), **wanted}


def _avoid_nodes(pod_spec: Json, nodes: tuple[str, ...]) -> None:
    """Add "not on these nodes" to every alternative of the required node affinity."""
    required = (
        pod_spec.setdefault("affinity", {})
        .setdefault("nodeAffinity", {})
        .setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        term.setdefault("matchFields", []).extend(
            {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes
        )


def _ready_when_it_serves(container: Json, program: list[str], port: int) -> None:
    """Our programs take connections once they serve: their predecessors stay until then."""
    if (container.get("command") or [])[:2] == program:
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 1}
        container.setdefault("readinessProbe", probe)


def _run_data_worker(pod_spec: Json, main: Json) -> None:
    """Turn a worker's pod into a data worker: its image and files, our command, no probes."""
    main["command"] = list(_DATA_WORKER)
    for key in ("args", "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"):
        main.pop(key, None)
    pod_spec["containers"] = [main]
