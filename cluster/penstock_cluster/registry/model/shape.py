"""The shape of a kind: what merging, ownership and typed decoding need to know about each field.

A :class:`Shape` is one node of a type. Built-in kinds get theirs from ``data/core-types.json``
(:class:`CoreTypes`), custom kinds from their CRD (:mod:`penstock_cluster.registry.model.structural`
has what reads them).
Shapes are immutable once built and may be recursive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

Json = dict[str, Any]

Code = Literal[
    "any",
    "object",
    "map",
    "list",
    "string",
    "integer",
    "number",
    "boolean",
    "quantity",
    "int-or-string",
    "time",
    "micro-time",
    "bytes",
]
ListKind = Literal["atomic", "set", "map"]


@dataclass(slots=True, eq=False)
class Shape:
    """One node of a type."""

    code: Code
    #: Go name of the struct, for decoding errors; empty for what is not a struct.
    name: str = ""
    #: Go name of the type, for decoding errors.
    go_type: str = ""
    fields: dict[str, Shape] = field(default_factory=dict)
    #: Shape of the values of a map or the items of a list.
    items: Shape | None = None
    list_kind: ListKind = "atomic"
    keys: tuple[str, ...] = ()
    #: Values of the list keys that an element may leave out.
    key_defaults: Json = field(default_factory=dict)
    #: An atomic map or struct is owned and merged as one value.
    atomic: bool = False
    #: Strategic merge patch: lists merge by this key, sets of scalars by value.
    merge_key: str = ""
    merges: bool = False
    retains_keys: bool = False
    #: A zero value of this scalar is not written out.
    omits_zero: bool = False
    #: Fields that are written out even when empty, with their empty value.
    always: Json = field(default_factory=dict)
    #: Undeclared fields are kept, with a shape deduced from their value.
    open: bool = False

    def child(self, name: str) -> Shape:
        """The shape of field ``name``; :data:`UNTYPED` for what is not declared."""
        found = self.fields.get(name)
        if found is not None:
            return found
        if self.code == "map" and self.items is not None:
            return self.items
        return UNTYPED

    @property
    def element(self) -> Shape:
        return self.items if self.items is not None else UNTYPED


#: Data without a schema: maps merge by key, lists are atomic.
UNTYPED = Shape("any", open=True)

# What the OpenAPI document does not tell: Go structs that are written out when empty, and scalars
# that are not pointers although optional (their zero value is left out).
_ALWAYS: dict[str, Json] = {
    "Container": {"resources": {}},
    "EphemeralContainer": {"resources": {}},
    "ContainerStatus": {"state": {}, "lastState": {}},
    "CustomResourceDefinition": {"spec": {}, "status": {}},
    "CustomResourceDefinitionStatus": {
        "conditions": None,
        "acceptedNames": {},
        "storedVersions": None,
    },
    "DaemonSet": {"spec": {}, "status": {}},
    "DaemonSetSpec": {"template": {}, "updateStrategy": {}},
    "Deployment": {"spec": {}, "status": {}},
    "DeploymentSpec": {"template": {}, "strategy": {}},
    "core.Event": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "events.Event": {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    "HorizontalPodAutoscaler": {"spec": {}, "status": {}},
    "Ingress": {"spec": {}, "status": {}},
    "IngressStatus": {"loadBalancer": {}},
    "Job": {"spec": {}, "status": {}},
    "JobSpec": {"template": {}},
    "CronJob": {"spec": {}, "status": {}},
    "CronJobSpec": {"jobTemplate": {}},
    "JobTemplateSpec": {"metadata": {}, "spec": {}},
    "Lease": {"spec": {}},
    "LimitRange": {"spec": {}},
    "Namespace": {"spec": {}, "status": {}},
    "NetworkPolicy": {"spec": {}},
    "NetworkPolicySpec": {"podSelector": {}},
    "Node": {"spec": {}, "status": {}},
    "NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "NodeStatus": {"daemonEndpoints": {}, "nodeInfo": {}},
    "NodeDaemonEndpoints": {"kubeletEndpoint": {}},
    "PersistentVolume": {"spec": {}, "status": {}},
    "PersistentVolumeClaim": {"spec": {}, "status": {}},
    "PersistentVolumeClaimSpec": {"resources": {}},
    "Pod": {"spec": {}, "status": {}},
    "PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "PodDisruptionBudget": {"spec": {}, "status": {}},
    "PodTemplate": {"template": {}},
    "PodTemplateSpec": {"metadata": {}, "spec": {}},
    "ReplicaSet": {"spec": {}, "status": {}},
    "ReplicaSetSpec": {"template": {}},
    "ReplicationController": {"spec": {}, "status": {}},
    "ResourceQuota": {"spec": {}, "status": {}},
    "Scale": {"spec": {}, "status": {}},
    "Service": {"spec": {}, "status": {}},
    "ServiceStatus": {"loadBalancer": {}},
    "StatefulSet": {"spec": {}, "status": {}},
    "StatefulSetSpec": {"template": {}, "updateStrategy": {}},
    "TokenRequestSpec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None},
    "TokenRequestStatus": {"token": "", "expirationTimestamp": None},
    "TokenReview": {"spec": {}, "status": {}},
    "TokenReviewStatus": {"user": {}},
    "SelfSubjectReview": {"status": {}},
    "SelfSubjectReviewStatus": {"userInfo": {}},
    "SelfSubjectAccessReview": {"spec": {}, "status": {}},
    "SubjectAccessReview": {"spec": {}, "status": {}},
    "LocalSubjectAccessReview": {"spec": {}, "status": {}},
    "SubjectAccessReviewStatus": {"allowed": False},
    "Role": {"rules": None},
    "ClusterRole": {"rules": None},
}
_OMITS_ZERO = {
    "Container": "stdin stdinOnce tty",
    "ContainerPort": "hostPort",
    "DeploymentSpec": "minReadySeconds paused",
    "DeploymentStatus": (
        "observedGeneration replicas updatedReplicas readyReplicas availableReplicas "
        "unavailableReplicas"
    ),
    "Event": "count deprecatedCount",
    "EventSeries": "count",
    "JobStatus": "active succeeded failed",
    "NodeSpec": "unschedulable",
    "ObjectMeta": "generation",
    "PodDisruptionBudgetStatus": "observedGeneration",
    "PodSpec": "hostNetwork hostPID hostIPC",
    "PodStatus": "observedGeneration",
    "PodCondition": "observedGeneration",
    "Condition": "observedGeneration",
    "Probe": "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold",
    "ReplicaSetStatus": "fullyLabeledReplicas readyReplicas availableReplicas observedGeneration",
    "ScaleSpec": "replicas",
    "ServicePort": "nodePort",
    "ServiceSpec": "publishNotReadyAddresses healthCheckNodePort",
    "StatefulSetStatus": "observedGeneration readyReplicas currentReplicas updatedReplicas",
    "VolumeMount": "readOnly",
    "PersistentVolumeClaimVolumeSource": "readOnly",
    "PriorityClass": "globalDefault",
    "TokenReviewStatus": "authenticated",
    "SubjectAccessReviewStatus": "denied",
    "CustomResourceColumnDefinition": "priority",
    "CustomResourceDefinitionSpec": "preserveUnknownFields",
    "CustomResourceDefinitionVersion": "deprecated",
    "JSONSchemaProps": "nullable exclusiveMaximum exclusiveMinimum uniqueItems "
    "x-kubernetes-embedded-resource x-kubernetes-int-or-string",
}
_POINTER_STRINGS = {
    "LeaseSpec": "holderIdentity strategy preferredHolder",
    "PersistentVolumeClaimSpec": "storageClassName volumeAttributesClassName",
    "PodSpec": "runtimeClassName hostnameOverride",
    "EndpointPort": "name protocol appProtocol",
    "JSONSchemaProps": "x-kubernetes-list-type x-kubernetes-map-type",
}
_ZERO: Json = {"string": "", "integer": 0, "number": 0, "boolean": False, "list": None}
_GO = {"int32": "int32", "int64": "int64", "double": "float64"}


class CoreTypes:
    """The built-in types, by their OpenAPI name (``io.k8s.api.core.v1.Pod``)."""

    def __init__(self) -> None:
        text = (
            resources.files("penstock_cluster.registry")
            .joinpath("data/core-types.json")
            .read_text()
        )
        self.definitions: dict[str, Json] = json.loads(text)
        self._shapes: dict[str, Shape] = {}

    def shape(self, name: str) -> Shape:
        """The shape of a definition; ``KeyError`` for a name that is none."""
        found = self._shapes.get(name)
        if found is None:
            found = self._special(name) or Shape("object", name=name.rsplit(".", 1)[-1])
            self._shapes[name] = found
            if found.code == "object" and not found.open:
                self._fill(found, name, self.definitions[name])
        return found

    @staticmethod
    def _special(name: str) -> Shape | None:
        last = name.rsplit(".", 1)[-1]
        if last == "Quantity":
            return Shape("quantity", go_type="resource.Quantity")
        if last == "IntOrString":
            return Shape("int-or-string", go_type="intstr.IntOrString")
        if last == "Time":
            return Shape("time", go_type="v1.Time")
        if last == "MicroTime":
            return Shape("micro-time", go_type="v1.MicroTime")
        if last in ("FieldsV1", "RawExtension", "JSON") or last.startswith("JSONSchemaPropsOr"):
            return Shape("any", open=True, atomic=True)
        return None

    def _fill(self, shape: Shape, name: str, schema: Json) -> None:
        short = shape.name
        family = name.split(".")[3] if name.startswith("io.k8s.api.") else ""
        shape.atomic = schema.get("x-kubernetes-map-type") == "atomic"
        omits = _OMITS_ZERO.get(short, "").split()
        pointers = _POINTER_STRINGS.get(short, "").split()
        for field_name, property_schema in schema.get("properties", {}).items():
            child = self._build(property_schema)
            if child.code == "string":
                child.omits_zero = field_name not in pointers
            elif child.code in ("integer", "number", "boolean"):
                child.omits_zero = field_name in omits
            shape.fields[field_name] = child
        for field_name in schema.get("required", ()):
            child = shape.fields[field_name]
            child.omits_zero = False
            if child.code in _ZERO:
                shape.always[field_name] = _ZERO[child.code]
        shape.always.update(_ALWAYS.get(f"{family}.{short}", _ALWAYS.get(short, {})))
        if "x-kubernetes-group-version-kind" in schema:
            for written_elsewhere in ("apiVersion", "kind", "metadata"):
                shape.always.pop(written_elsewhere, None)

    def _build(self, schema: Json) -> Shape:
        reference = schema.get("$ref")
        if reference is not None:
            target = self.shape(reference)
            retains = "retainKeys" in schema.get("x-kubernetes-patch-strategy", "")
            if target.code == "object":
                if not retains and schema.get("x-kubernetes-map-type") is None:
                    return target
                view = Shape("object", target.name, fields=target.fields, always=target.always)
                view.atomic = target.atomic or schema.get("x-kubernetes-map-type") == "atomic"
                view.retains_keys = retains
                return view
            return Shape(target.code, go_type=target.go_type, open=target.open)
        kind = schema.get("type", "object")
        if kind == "array":
            return self._list(schema)
        if kind == "object":
            values = schema.get("additionalProperties")
            if values is None:
                return Shape("any", open=True)
            shape = Shape("map", items=self._build(values))
            shape.atomic = schema.get("x-kubernetes-map-type") == "atomic"
            return shape
        if kind == "string":
            if schema.get("format") == "byte":
                return Shape("bytes", go_type="[]uint8")
            return Shape("string", go_type="string")
        if kind == "boolean":
            return Shape("boolean", go_type="bool")
        return Shape(kind, go_type=_GO.get(schema.get("format", ""), "int64"))

    def _list(self, schema: Json) -> Shape:
        shape = Shape("list", items=self._build(schema.get("items", {})))
        shape.list_kind = schema.get("x-kubernetes-list-type", "atomic")
        shape.keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        if "protocol" in shape.keys:
            shape.key_defaults = {"protocol": "TCP"}
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        shape.merges = "merge" in strategy.split(",")
        shape.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
        return shape
