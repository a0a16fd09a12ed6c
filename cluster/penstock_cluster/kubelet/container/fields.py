"""The downward API: what a pod may read about itself, for variables and for files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock_cluster.requests import CPU, parse_amount, parse_amounts

Json = Mapping[str, Any]

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def field_value(pod: Json, path: str) -> str:
    """The value of a ``fieldRef``; what is not set yet is empty, as in a real pod."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match.group(1)) or {}).get(match.group(2), ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.partition(".")[2], ""))
        case "metadata.labels" | "metadata.annotations":
            entries = metadata.get(path.partition(".")[2]) or {}
            return "\n".join(f'{key}="{_escaped(entries[key])}"' for key in sorted(entries))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.partition(".")[2], ""))
        case "status.hostIP" | "status.podIP":
            return str(status.get(path.partition(".")[2], ""))
        case "status.podIPs" | "status.hostIPs":
            return ",".join(entry["ip"] for entry in status.get(path.partition(".")[2]) or ())
    raise ValueError(f"fieldPath {path!r} is not supported")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(
    pod: Json, container: Json, reference: Json, allocatable: Mapping[str, int]
) -> str:
    """The value of a ``resourceFieldRef`` in units of its divisor, rounded up.

    A limit that is not set is what the node has to give.
    """
    name = reference.get("containerName")
    if name and name != container["name"]:
        every = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        container = next(each for each in every if each["name"] == name)
    which, _, resource = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    limits = parse_amounts(resources.get("limits"))
    if which == "limits":
        amount = limits.get(resource, allocatable.get(resource, 0))
    else:
        amount = parse_amounts(resources.get("requests")).get(resource, limits.get(resource, 0))
    divisor = str(reference.get("divisor") or "0")
    unit = parse_amount(resource, "1" if divisor == "0" else divisor)
    if resource == CPU or unit > 1:
        return str(-(-amount // unit))
    return str(amount)
