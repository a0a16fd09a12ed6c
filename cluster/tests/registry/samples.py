"""Valid objects of many kinds, for tests that break them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

WIDGETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.dev"},
    "spec": {
        "group": "test.dev",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "maximum": 100},
                                    "replicas": {"type": "integer", "default": 1, "minimum": 0},
                                    "mode": {
                                        "type": "string",
                                        "enum": ["Fast", "Safe"],
                                        "default": "Safe",
                                    },
                                    "tags": {
                                        "type": "array",
                                        "maxItems": 8,
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string", "maxLength": 16},
                                    },
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "limits": {
                                        "type": "object",
                                        "maxProperties": 8,
                                        "additionalProperties": {
                                            "x-kubernetes-int-or-string": True,
                                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                                        },
                                    },
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "count": {"type": "integer"},
                                            },
                                        },
                                    },
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "self.replicas <= self.size",
                                        "message": "replicas must not exceed size",
                                    }
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "replicas": {"type": "integer"},
                                    "conditions": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                        "items": {
                                            "type": "object",
                                            "required": ["type", "status"],
                                            "properties": {
                                                "type": {"type": "string"},
                                                "status": {"type": "string"},
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str = "one", **spec: Any) -> Json:
    return {
        "apiVersion": "test.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }


def pod(name: str = "one", **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "example.test/app:1"}],
            **spec,
        },
    }


def config_map(name: str = "one", **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


#: Objects by the resource they are sent to.
MANY: dict[str, Json] = {
    "pods": pod(
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        schedulingGates=[{"name": "test.dev/hold"}],
        volumes=[{"name": "state", "emptyDir": {}}],
    ),
    "configmaps": config_map(a="1"),
    "secrets": {"metadata": {"name": "one"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}},
    "services": {
        "metadata": {"name": "one"},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "http", "port": 80}]},
    },
    "nodes": {
        "metadata": {"name": "one", "labels": {"pool": "gpu"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "8", "memory": "64Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    "events": {
        "metadata": {"name": "one"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Because",
        "type": "Normal",
    },
    "namespaces": {"metadata": {"name": "one"}},
    "serviceaccounts": {"metadata": {"name": "one"}},
    "persistentvolumeclaims": {
        "metadata": {"name": "one"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "leases.coordination.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {"holderIdentity": "a", "renewTime": "2001-01-01T00:00:00.000000Z"},
    },
    "roles.rbac.authorization.k8s.io": {
        "metadata": {"name": "one"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    "rolebindings.rbac.authorization.k8s.io": {
        "metadata": {"name": "one"},
        "roleRef": {"kind": "Role", "name": "one"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "default"}],
    },
    "poddisruptionbudgets.policy": {
        "metadata": {"name": "one"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}},
    },
    "priorityclasses.scheduling.k8s.io": {"metadata": {"name": "one"}, "value": 10},
    "deployments.apps": {
        "metadata": {"name": "one"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "main", "image": "i"}]},
            },
        },
    },
    "jobs.batch": {
        "metadata": {"name": "one"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "i"}],
                }
            }
        },
    },
    "validatingadmissionpolicies.admissionregistration.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["test.dev"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE"],
                        "resources": ["nothing"],
                    }
                ]
            },
            "validations": [{"expression": "object.spec.size < 5", "message": "too big"}],
        },
    },
    "customresourcedefinitions.apiextensions.k8s.io": {
        **WIDGETS,
        "metadata": {"name": "gizmos.test.dev"},
        "spec": {**WIDGETS["spec"], "names": {"kind": "Gizmo", "plural": "gizmos"}},
    },
    "widgets.test.dev": widget(
        tags=["a"], limits={"cpu": "1", "gpu": 2}, parts=[{"name": "x", "count": 1}], free={"a": 1}
    ),
}

CLUSTER_SCOPED = {
    "nodes",
    "namespaces",
    "priorityclasses.scheduling.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
}
