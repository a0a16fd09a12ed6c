"""Server-side printing: the columns of every kind and the cells of every object.

``data/columns.json`` holds the column definitions of built-in kinds as a Kubernetes 1.36 server
sends them (their texts are part of the protocol). Kinds without a row of their own here get Name
and Age; custom kinds what their CRD says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Any

from penstock_cluster.registry.model.documents import read
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.resource import Resource

_UNKNOWN = "<unknown>"
_NONE = "<none>"
Cells = Callable[[Json, datetime], list[Any]]


@lru_cache(maxsize=1)
def _recorded() -> dict[str, list[Json]]:
    text = resources.files("penstock_cluster.apiserver").joinpath("data/columns.json").read_text()
    found: dict[str, list[Json]] = json.loads(text)
    return found


def _name_column() -> Json:
    return _recorded()["namespaces"][0]


def _age_column(kind: str) -> Json:
    return {**_recorded()["namespaces"][2], "type": kind}


def age(moment: Any, now: datetime) -> str:
    """A duration as people read it: ``5s``, ``3m12s``, ``4h``, ``2d``."""
    if not moment:
        return _UNKNOWN
    try:
        since = datetime.fromisoformat(moment)
    except ValueError:
        return _UNKNOWN
    return duration(int((now - since).total_seconds()))


def duration(seconds: int) -> str:
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(0, seconds)}s"
    minutes = seconds // 60
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = seconds // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if years < 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def definitions(resource: Resource) -> list[Json]:
    """The column definitions of a kind."""
    if resource.custom:
        return _custom_definitions(resource)
    recorded = _recorded().get(resource.plural)
    if recorded is not None:
        return recorded
    columns = _EXTRA.get(resource.plural)
    if columns is not None:
        found = [_name_column()]
        for text in columns[0].split(","):
            name, _, form = text.partition(":")
            wide = name.endswith("*")
            found.append(
                {
                    "name": name.rstrip("*"),
                    "type": form or "string",
                    "format": "",
                    "description": f"{name.rstrip('*')} of the object.",
                    "priority": 1 if wide else 0,
                }
            )
        return [*found, _age_column("string")]
    return [_name_column(), _age_column("string")]


def cells(resource: Resource) -> Cells:
    """A function that gives the cells of one object."""
    if resource.custom:
        return _custom_cells(resource)
    found = _CELLS.get(resource.plural)
    if found is not None:
        return found
    columns = _EXTRA.get(resource.plural)
    if columns is not None:
        give = columns[1]
        return lambda item, now: [item["metadata"]["name"], *give(item), _age(item, now)]
    return lambda item, now: [item["metadata"]["name"], _age(item, now)]


def _age(item: Json, now: datetime) -> str:
    return age(item["metadata"].get("creationTimestamp"), now)


def _custom_definitions(resource: Resource) -> list[Json]:
    found = [_name_column()]
    columns = resource.crd_version.get("additionalPrinterColumns")
    if not columns:
        return [*found, _age_column("date")]
    for column in columns:
        description = column.get("description") or (
            f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
        )
        found.append(
            {
                "name": column["name"],
                "type": column["type"],
                "format": column.get("format", ""),
                "description": description,
                "priority": column.get("priority", 0),
            }
        )
    return found


def _custom_cells(resource: Resource) -> Cells:
    columns = resource.crd_version.get("additionalPrinterColumns")
    if not columns:
        return lambda item, now: [item["metadata"]["name"], _age(item, now)]
    readers = [(json_path(column["jsonPath"]), column["type"]) for column in columns]

    def give(item: Json, now: datetime) -> list[Any]:
        row: list[Any] = [item["metadata"]["name"]]
        for reader, kind in readers:
            row.append(_cell(reader(item), kind, now))
        return row

    return give


def _cell(found: list[Any], kind: str, now: datetime) -> Any:
    if not found:
        return None
    value = found[0]
    if kind == "date":
        return age(value, now)
    if kind == "string":
        if type(value) is str:
            return value
        if type(value) is bool:
            return "true" if value else "false"
        return json.dumps(value, separators=(",", ":"))
    if kind == "integer":
        return int(value) if type(value) in (int, float) else None
    if kind == "number":
        return float(value) if type(value) in (int, float) else None
    if kind == "boolean":
        return value if type(value) is bool else None
    return None


_STEP = re.compile(
    r"\.([A-Za-z0-9_\-]+|\*)|\[(\d+|\*)\]|\['([^']*)'\]|\[\?\(@\.([A-Za-z0-9_.\-]+)\s*==\s*"
    r"[\"']([^\"']*)[\"']\)\]|\.'([^']*)'"
)


@lru_cache(maxsize=1024)
def json_path(text: str) -> Callable[[Any], list[Any]]:
    """A reader for the JSON paths of printer columns: names, indexes, filters on equality."""
    steps: list[tuple[str | None, ...]] = []
    unescaped = text.replace("\\.", "\0")
    at = 0
    while at < len(unescaped):
        match = _STEP.match(unescaped, at)
        if match is None:
            # A path of another form finds nothing.
            steps.clear()
            break
        steps.append(match.groups())
        at = match.end()

    def find(document: Any) -> list[Any]:
        values = [document] if steps else []
        for name, index, quoted, filtered, wanted, other in steps:
            following: list[Any] = []
            for value in values:
                following.extend(_follow(value, name, index, quoted or other, filtered, wanted))
            values = following
        return values

    return find


def _follow(
    value: Any,
    name: str | None,
    index: str | None,
    quoted: str | None,
    filtered: str | None,
    wanted: str | None,
) -> list[Any]:
    if name == "*" or index == "*":
        return list(value.values()) if type(value) is dict else list(value or ())
    key = quoted if quoted is not None else name
    if key is not None:
        key = key.replace("\0", ".")
        if type(value) is dict and value.get(key) is not None:
            return [value[key]]
        return []
    if index is not None:
        if type(value) is list and int(index) < len(value):
            return [value[int(index)]]
        return []
    if filtered is not None and type(value) is list:
        path = filtered.split(".")
        return [item for item in value if str(read(item, path, "")) == wanted]
    return []


# Built-in kinds


def _pod_cells(pod: Json, now: datetime) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    total = len(spec.get("containers") or ())
    restarts = sum(item.get("restartCount", 0) for item in statuses)
    ready = sum(bool(item.get("ready")) for item in statuses)
    last = max(
        (read(item, ("lastState", "terminated", "finishedAt")) or "" for item in statuses),
        default="",
    )
    shown = str(restarts)
    if restarts and last:
        shown = f"{restarts} ({age(last, now)} ago)"
    gates = spec.get("readinessGates") or []
    met = {
        item.get("type") for item in status.get("conditions") or () if item.get("status") == "True"
    }
    gates_shown = (
        f"{sum(gate.get('conditionType') in met for gate in gates)}/{len(gates)}"
        if gates
        else _NONE
    )
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        pod_state(pod),
        shown,
        _age(pod, now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        gates_shown,
    ]


def pod_state(pod: Json) -> str:
    """The word in the Status column: a phase, or why it is not what it should be."""
    status = pod.get("status") or {}
    state: str = status.get("phase") or "Unknown"
    if status.get("reason"):
        state = status["reason"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            state = "SchedulingGated"
    starting = False
    for index, item in enumerate(status.get("initContainerStatuses") or ()):
        current = item.get("state") or {}
        terminated, waiting = current.get("terminated"), current.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            state = "Init:" + _ended(terminated)
        elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            state = "Init:" + waiting["reason"]
        else:
            state = f"Init:{index}/{len((pod.get('spec') or {}).get('initContainers') or ())}"
        starting = True
        break
    if not starting:
        state = _containers_state(status, state)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return state


def _containers_state(status: Json, state: str) -> str:
    running = False
    for item in reversed(status.get("containerStatuses") or ()):
        current = item.get("state") or {}
        waiting, terminated = current.get("waiting"), current.get("terminated")
        if waiting and waiting.get("reason"):
            state = waiting["reason"]
        elif terminated is not None:
            state = _ended(terminated)
        elif item.get("ready") and current.get("running") is not None:
            running = True
    if state == "Completed" and running:
        conditions = status.get("conditions") or ()
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
        return "Running" if ready else "NotReady"
    return state


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _node_cells(node: Json, now: datetime) -> list[Any]:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    info = status.get("nodeInfo") or {}
    states = [
        "Ready" if item.get("status") == "True" else "NotReady"
        for item in status.get("conditions") or ()
        if item.get("type") == "Ready"
    ]
    shown = states or ["Unknown"]
    if spec.get("unschedulable"):
        shown.append("SchedulingDisabled")
    roles = sorted(
        label.partition("node-role.kubernetes.io/")[2]
        for label in node["metadata"].get("labels") or ()
        if label.startswith("node-role.kubernetes.io/")
    )
    addresses = {item.get("type"): item.get("address") for item in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or _UNKNOWN
    architecture = info.get("architecture")
    return [
        node["metadata"]["name"],
        ",".join(shown),
        ",".join(role for role in roles if role) or _NONE,
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        f"{kernel} ({architecture})" if architecture else kernel,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event_cells(event: Json, now: datetime) -> list[Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    first = (
        event.get("firstTimestamp")
        or event.get("deprecatedFirstTimestamp")
        or event.get("eventTime")
    )
    last = (
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    )
    series = event.get("series") or {}
    if series:
        last = series.get("lastObservedTime") or last
    count = series.get("count") or event.get("count") or event.get("deprecatedCount") or 1
    reporters = [
        source.get("component")
        or event.get("reportingComponent")
        or event.get("reportingController"),
        source.get("host") or event.get("reportingInstance"),
    ]
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(str(item) for item in reporters if item),
        str(event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        count,
        event["metadata"]["name"],
    ]


def _budget_cells(budget: Json, now: datetime) -> list[Any]:
    spec = budget.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        budget["metadata"]["name"],
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        (budget.get("status") or {}).get("disruptionsAllowed", 0),
        _age(budget, now),
    ]


_CELLS: dict[str, Cells] = {
    "pods": _pod_cells,
    "nodes": _node_cells,
    "events": _event_cells,
    "poddisruptionbudgets": _budget_cells,
    "namespaces": lambda item, now: [
        item["metadata"]["name"],
        (item.get("status") or {}).get("phase", ""),
        _age(item, now),
    ],
    "configmaps": lambda item, now: [
        item["metadata"]["name"],
        len(item.get("data") or ()) + len(item.get("binaryData") or ()),
        _age(item, now),
    ],
    "leases": lambda item, now: [
        item["metadata"]["name"],
        (item.get("spec") or {}).get("holderIdentity") or "",
        _age(item, now),
    ],
    "customresourcedefinitions": lambda item, now: [
        item["metadata"]["name"],
        item["metadata"]["creationTimestamp"],
    ],
}


def _ports(service: Json) -> str:
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _ready_of(item: Json) -> str:
    ready = read(item, ("status", "readyReplicas")) or 0
    return f"{ready}/{read(item, ('spec', 'replicas')) or 0}"


def _completions_of(item: Json) -> str:
    done = read(item, ("status", "succeeded")) or 0
    return f"{done}/{read(item, ('spec', 'completions')) or 1}"


def _selector(labels: Any) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels or {})) or _NONE


#: Columns between Name and Age of other built-in kinds (``*``: only with ``-o wide``).
_EXTRA: dict[str, tuple[str, Callable[[Json], list[Any]]]] = {
    "secrets": (
        "Type,Data:integer",
        lambda item: [item.get("type", ""), len(item.get("data") or ())],
    ),
    "serviceaccounts": ("Secrets:integer", lambda item: [len(item.get("secrets") or ())]),
    "services": (
        "Type,Cluster-IP,External-IP,Port(s),Selector*",
        lambda item: [
            read(item, ("spec", "type")),
            read(item, ("spec", "clusterIP")) or _NONE,
            _NONE,
            _ports(item),
            _selector(read(item, ("spec", "selector"))),
        ],
    ),
    "deployments": (
        "Ready,Up-to-date:integer,Available:integer",
        lambda item: [
            _ready_of(item),
            read(item, ("status", "updatedReplicas")) or 0,
            read(item, ("status", "availableReplicas")) or 0,
        ],
    ),
    "replicasets": (
        "Desired:integer,Current:integer,Ready:integer",
        lambda item: [
            read(item, ("spec", "replicas")) or 0,
            read(item, ("status", "replicas")) or 0,
            read(item, ("status", "readyReplicas")) or 0,
        ],
    ),
    "statefulsets": (
        "Ready",
        lambda item: [_ready_of(item)],
    ),
    "jobs": (
        "Status,Completions",
        lambda item: [
            "Running" if read(item, ("status", "active")) else "",
            _completions_of(item),
        ],
    ),
    "priorityclasses": (
        "Value:integer,Global-Default:boolean",
        lambda item: [item.get("value", 0), bool(item.get("globalDefault"))],
    ),
    "rolebindings": (
        "Role",
        lambda item: [f"{item['roleRef']['kind']}/{item['roleRef']['name']}"],
    ),
    "clusterrolebindings": (
        "Role",
        lambda item: [f"{item['roleRef']['kind']}/{item['roleRef']['name']}"],
    ),
    "persistentvolumeclaims": (
        "Status,Volume,StorageClass",
        lambda item: [
            read(item, ("status", "phase")) or "",
            read(item, ("spec", "volumeName")) or "",
            read(item, ("spec", "storageClassName")) or "",
        ],
    ),
    "validatingadmissionpolicies": (
        "Validations:integer",
        lambda item: [len(read(item, ("spec", "validations")) or ())],
    ),
    "validatingadmissionpolicybindings": (
        "PolicyName",
        lambda item: [read(item, ("spec", "policyName")) or ""],
    ),
}
