"""``spec.gang`` from what other systems say of pods that start together.

A job says so in a field of its own (``schedulingPolicy``, ``podGroupPolicy``), or in labels and
annotations that name a group of pods for a scheduler. Such a name leaves the pods: the group that
it names is nobody's once its job is another one, and pods of a group that is not there wait for
ever. `spec.gang` has the controller make the job's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.base.fields import DNS_LABEL
from penstock.convert.source import Json, Path, Source, leaves

MAX_TIMEOUT_SECONDS: Final = 86_400
MADE: Final = "spec.gang: the workers that the job starts with start together"

_COUNTED: Final = "spec.gang holds replicas, else minReplicas, of workers and parameter servers"
_SIZED: Final = "a gang is counted in pods: spec.gang"
_QUEUES: Final = frozenset({"scheduling.volcano.sh/queue-name"})
_TIMES: Final = frozenset({"gang.scheduling.koordinator.sh/waiting-time"})
_GROUPS: Final = _TIMES | {
    "gang.scheduling.koordinator.sh/groups",
    "gang.scheduling.koordinator.sh/match-policy",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/mode",
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/total-number",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-min-member",
    "scheduling.volcano.sh/group-min-resources",
    "scheduling.volcano.sh/group-name",
    "scheduling.x-k8s.io/pod-group",
}
"""Labels and annotations of Volcano, Koordinator and scheduler-plugins, its releases of old too."""

_TAGS: Final = ("labels", "annotations")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def of_scheduling_policy(source: Source, path: Path) -> Json | None:
    """The gang of a ``schedulingPolicy`` of Kubeflow's training-operator; None: it asks for none.

    Raises:
        RefusedError: a field has a value of another type.
    """
    gang = _queue(source, (*path, "queue"))
    gang |= _timeout(source, (*path, "scheduleTimeoutSeconds"))
    source.change((*path, "minAvailable"), _COUNTED)
    source.drop((*path, "minResources"), _SIZED)
    asked = ("queue", "scheduleTimeoutSeconds", "minAvailable", "minResources")
    return gang if any(source.at((*path, field)) is not None for field in asked) else None


def of_pod_group_policy(runtime: Source, path: Path) -> Json | None:
    """The gang of a ``podGroupPolicy`` of Kubeflow Trainer; None: it asks for none.

    Raises:
        RefusedError: a field has a value of another type.
    """
    if not runtime.mapping(path):
        return None
    gang = _timeout(runtime, (*path, "coscheduling", "scheduleTimeoutSeconds"))
    for kind in ("coscheduling", "volcano"):
        if runtime.at((*path, kind)) == {}:
            runtime.change((*path, kind), MADE)
    runtime.drop(
        (*path, "volcano", "networkTopology"),
        "spec.gang.topologyKey asks for nodes with a label in common",
    )
    return gang


def named_in(source: Source) -> Json | None:
    """The gang that labels and annotations of a manifest name; None: they name none."""
    gang: Json = {}
    found = False
    for path, value in _tags(source):
        if path[-1] in _GROUPS:
            found = True
            source.change(path, MADE)
            if path[-1] in _TIMES:
                gang |= _bounded(_seconds(value))
    return gang if found else None


def queue_in(source: Source) -> Json:
    """The queue that annotations name, which stay: a queue is one without a gang as well."""
    for path, value in _tags(source):
        if path[-1] in _QUEUES and _is_queue(value):
            return {"queue": value}
    return {}


def take_out(metadata: Json) -> None:
    """Take the names of groups out of labels and annotations."""
    for field in _TAGS:
        tags = metadata.get(field)
        if not isinstance(tags, dict):
            continue
        for name in _GROUPS & tags.keys():
            del tags[name]
            if not tags:
                del metadata[field]


def _tags(source: Source) -> Iterator[tuple[Path, Any]]:
    for path, value in leaves(source.document):
        if len(path) > 2 and path[-3] == "metadata" and path[-2] in _TAGS:
            yield path, value


def _queue(source: Source, path: Path) -> Json:
    name = source.text(path)
    if name is None:
        return {}
    if not _is_queue(name):
        source.drop(path, "spec.gang.queue is one label of at most 63 characters")
        return {}
    source.change(path, "spec.gang.queue")
    return {"queue": name}


def _is_queue(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= 63 and bool(re.fullmatch(DNS_LABEL, name))


def _timeout(source: Source, path: Path) -> Json:
    seconds = source.integer(path)
    found = _bounded(seconds)
    if found:
        source.change(path, f"spec.gang.timeoutSeconds: {found['timeoutSeconds']}")
    else:
        source.drop(path, "spec.gang.timeoutSeconds is 600 without it")
    return found


def _bounded(seconds: int | None) -> Json:
    return {"timeoutSeconds": min(seconds, MAX_TIMEOUT_SECONDS)} if seconds else {}


def _seconds(text: Any) -> int | None:
    """Seconds of a duration of one unit, such as 30s; None where it is something else."""
    found = re.fullmatch(r"([0-9]{1,9})([smh])", text) if isinstance(text, str) else None
    return int(found[1]) * _SECONDS[found[2]] if found else None
