"""A node as a person declares it, and the Node object that comes of it.

The nodes file is YAML, a list under ``nodes``::

    nodes:
      - name: gpu-1
        cpu: "16"
        memory: 64Gi
        accelerators: {nvidia.com/gpu: 4}
        labels: {zone: a}
        taints: [{key: gpu, value: "yes", effect: NoSchedule}]
      - {name: cpu, count: 3, cpu: "32", memory: 128Gi}   # cpu-1, cpu-2, cpu-3

What is declared need not be there: it is what the scheduler counts with. Accelerators are counted,
and of ``nvidia.com/gpu`` the kubelet hands out those that the machine has. Everything else in the
file is refused with the field, the value and the rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil
import yaml

from penstock_cluster.gpus import GPU, machine_gpus
from penstock_cluster.quantity import format_bytes, parse_bytes, parse_milli_cpu

Json = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(r"[a-z0-9.-]+\.[a-z0-9-]+/[A-Za-z0-9._-]+")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_NODES = 10_000


class NodeDeclarationError(ValueError):
    """A node cannot be declared so; the message holds the field, the value and the rule."""


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """One node. Raises NodeDeclarationError when a field breaks its rule."""

    name: str
    cpu: str = "4"
    memory: str = "8Gi"
    accelerators: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    pods: int = 110
    ephemeral_storage: str = "100Gi"
    unschedulable: bool = False

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _refused("name", self.name, "text of lower-case letters, digits, '-' and '.'")
        for amount_of, parse in (
            ("cpu", parse_milli_cpu),
            ("memory", parse_bytes),
            ("ephemeral_storage", parse_bytes),
        ):
            value = getattr(self, amount_of)
            try:
                amount = parse(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise _refused(amount_of, value, str(error)) from None
            if amount <= 0:
                raise _refused(amount_of, value, "must be more than 0")
        pods: object = self.pods
        if not isinstance(pods, int) or not 0 < pods <= _MOST_NODES:
            raise _refused("pods", self.pods, f"a whole number from 1 to {_MOST_NODES}")
        _check_map("labels", self.labels, str)
        _check_map("accelerators", self.accelerators, int)
        for resource, count in self.accelerators.items():
            if not _RESOURCE.fullmatch(resource) or count < 0:
                raise _refused(
                    f"accelerators[{resource}]", count, "DOMAIN/NAME and a count of at least 0"
                )
        taints: tuple[object, ...] = self.taints
        for taint in taints:
            if not isinstance(taint, Mapping) or not taint.get("key"):
                raise _refused("taints", taint, "each has a key and an effect")
            if taint.get("effect") not in _EFFECTS:
                raise _refused("taints.effect", taint.get("effect"), f"one of {_EFFECTS}")

    def as_object(self, address: str, now: str) -> Json:
        """The Node as its kubelet registers it, Ready."""
        amounts = {
            "cpu": str(self.cpu),
            "memory": str(self.memory),
            "ephemeral-storage": self.ephemeral_storage,
            "pods": str(self.pods),
            **{resource: str(count) for resource, count in self.accelerators.items()},
        }
        own_labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64" if os.uname().machine == "x86_64" else "arm64",
        }
        spec: Json = {}
        if self.taints:
            spec["taints"] = [dict(taint) for taint in self.taints]
        if self.unschedulable:
            spec["unschedulable"] = True
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {**own_labels, **self.labels}},
            "spec": spec,
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": ready_conditions(now),
                "addresses": [
                    {"type": "InternalIP", "address": address},
                    {"type": "Hostname", "address": self.name},
                ],
                "nodeInfo": _node_info(),
            },
        }


def ready_conditions(now: str) -> list[Json]:
    """The conditions of a healthy node."""
    pressures = {"MemoryPressure": "Memory", "DiskPressure": "Disk", "PIDPressure": "PID"}
    quiet = [
        {
            "type": kind,
            "status": "False",
            "reason": f"KubeletHas{'No' if what == 'Disk' else 'Sufficient'}"
            f"{'DiskPressure' if what == 'Disk' else what}",
            "message": f"kubelet has no {what.lower()} pressure",
        }
        for kind, what in pressures.items()
    ]
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    }
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return [{**condition, **times} for condition in (*quiet, ready)]


def _node_info() -> Json:
    system = os.uname()
    return {
        "architecture": "amd64" if system.machine == "x86_64" else "arm64",
        "bootID": "",
        "containerRuntimeVersion": "process://1",
        "kernelVersion": system.release,
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.0-penstock",
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": "this machine",
        "systemUUID": "",
    }


def this_machine(name: str = "node-1") -> NodeDeclaration:
    """A node with what this machine has."""
    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory().total >> 20
    gpus = len(machine_gpus())
    return NodeDeclaration(
        name,
        cpu=str(cores),
        memory=format_bytes(memory << 20),
        accelerators={GPU: gpus} if gpus else {},
    )


def read_nodes_file(path: Path) -> list[NodeDeclaration]:
    """The nodes of a YAML file; raises NodeDeclarationError naming the file and the fault."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise NodeDeclarationError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A file that is no UTF-8 and a date that is none are ValueErrors.
        raise NodeDeclarationError(f"{path}: not YAML: {error}") from None
    try:
        return parse_nodes(document)
    except NodeDeclarationError as error:
        raise NodeDeclarationError(f"{path}: {error}") from None


def parse_nodes(document: object) -> list[NodeDeclaration]:
    """The nodes of a parsed nodes file."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise NodeDeclarationError("the file must be a map with a list under 'nodes'")
    known = {each.name for each in fields(NodeDeclaration)}
    found: dict[str, NodeDeclaration] = {}
    for number, entry in enumerate(document["nodes"]):
        place = f"nodes[{number}]"
        if not isinstance(entry, dict):
            raise NodeDeclarationError(f"{place}: a map is expected, not {entry!r}")
        values = {
            str(key).replace("ephemeralStorage", "ephemeral_storage"): value
            for key, value in entry.items()
        }
        count = values.pop("count", None)
        unknown = sorted(set(values) - known)
        if unknown:
            raise NodeDeclarationError(
                f"{place}.{unknown[0]}: unknown field; known are {', '.join(sorted(known))}, count"
            )
        if "name" not in values:
            raise NodeDeclarationError(f"{place}.name: a name is required")
        if count is not None and (not isinstance(count, int) or not 0 < count <= _MOST_NODES):
            raise NodeDeclarationError(f"{place}.count: {count!r}: must be 1 to {_MOST_NODES}")
        taints = values.get("taints") or ()
        if not isinstance(taints, list | tuple):
            raise NodeDeclarationError(f"{place}.taints: {taints!r}: a list is expected")
        values["taints"] = tuple(taints)
        names = (
            [values["name"]]
            if count is None
            else [f"{values['name']}-{index}" for index in range(1, count + 1)]
        )
        for name in names:
            if name in found:
                raise NodeDeclarationError(f"{place}.name: {name!r} is declared twice")
            try:
                found[name] = NodeDeclaration(**{**values, "name": name})
            except NodeDeclarationError as error:
                raise NodeDeclarationError(f"{place}.{error}") from None
    if not found:
        raise NodeDeclarationError("nodes: at least one node is needed")
    return list(found.values())


def _check_map(name: str, value: object, kind: type) -> None:
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and isinstance(item, kind) for key, item in value.items()
    ):
        raise _refused(name, value, f"a map of names to {kind.__name__}")


def _refused(name: str, value: object, rule: str) -> NodeDeclarationError:
    return NodeDeclarationError(f"{name}: {value!r}: {rule}")
