"""The chart as Helm renders it: the library is Helm 4 itself."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

from penstock.base.yaml_text import Loader

Json = dict[str, Any]

CHART = Path(__file__).parents[2] / "charts" / "penstock"
CLUSTERS = CHART.parent / "values"
"""Values for known kinds of clusters."""
SYSTEM = "penstock-system"

VALUE_SETS: dict[str, Json] = {
    "defaults": {},
    "postgresql-from-a-secret": {
        "brain": {
            "replicas": 3,
            "database": {"kind": "postgresql", "postgresql": {"secretName": "pg", "port": 6432}},
        },
        "image": {"registry": "registry.example.com/ml/", "pullSecrets": ["credentials"]},
    },
    "postgresql-from-values": {
        "brain": {
            "database": {
                "kind": "postgresql",
                "postgresql": {"url": "postgresql+asyncpg://me:pass#1@db/penstock"},
            },
            "config": {
                "administrator": {"interval_seconds": 30},
                "executor": {"memory_bytes": 2147483648},
                "policies": {"ParameterServer": {"Optimize": ["optimize_ps"]}},
                "algorithms": {"mine": {"shadow": True, "params": {"anything": [1, "a"]}}},
                "limits": {"pod_cpu": "64"},
            },
        }
    },
    "monitored": {
        "admission": {"requirePodCreation": True},
        "monitoring": {
            "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prom"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prom"}},
            "dashboards": {"enabled": True},
        },
        "networkPolicy": {
            "monitoring": [{"namespaceSelector": {}}],
            "brainClients": [{"podSelector": {"matchLabels": {"app": "ingress"}}}],
        },
        "brain": {
            "tls": {
                "source": "cert-manager",
                "issuer": {"kind": "ClusterIssuer", "name": "internal"},
                "plain": "always",
            }
        },
    },
    "small": {
        "controller": {"replicas": 1, "resources": {}},
        "scheduler": {"enabled": False},
        "brain": {
            "database": {"sqlite": {"existingClaim": "mine"}},
            "tls": {"source": "secret", "secretName": "mine"},
        },
        "crds": {"install": False},
        "roles": {"aggregate": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "monitoring": {
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
        },
        "logFormat": "text",
    },
    "placed": {
        "image": {"control": {"digest": f"sha256:{'a' * 64}"}, "runtime": {"tag": "1.2.3"}},
        "crds": {"keep": False},
        "roles": {
            "brainUsers": [
                {"kind": "Group", "name": "trainers"},
                {"kind": "ServiceAccount", "name": "ci", "namespace": "team"},
            ]
        },
        "listenAddress": "::",
        "controller": {
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "pool", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
        },
        "brain": {
            "database": {"sqlite": {"storageClass": "fast", "size": "1.5Ti", "keep": False}},
        },
        "scheduler": {
            "interval": 5.5,
            "allocation": "Fair",
            "placement": "bestfit",
            "tuneTrainingWorkers": True,
            "accelerators": ["nvidia.com/gpu", "amd.com/gpu"],
        },
    },
    "cached": {
        "cache": {"enabled": True, "memory": "40Gi", "paths": [{"path": "/data/imagenet"}]},
    },
    "cached-over-nodes": {
        "cache": {
            "enabled": True,
            "nodes": True,
            "paths": [
                {"path": "/data/a", "hostPath": "/mnt/a"},
                {"path": "/data/b", "claim": "mine"},
            ],
            "resources": {
                "requests": {"cpu": "1", "memory": "18Gi"},
                "limits": {"memory": "20Gi"},
            },
            "nodeSelector": {"accelerated": "yes"},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
        },
        "listenAddress": "::",
        "image": {"pullSecrets": ["credentials"]},
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prom"}}},
    },
    "cached-with-a-token-of-ones-own": {
        "cache": {
            "enabled": True,
            "nodes": True,
            "paths": [{"path": "/data", "hostPath": "/data"}],
            "tokenSecret": "mine",
        },
        "networkPolicy": {"monitoring": []},
    },
    **{path.stem: yaml.safe_load(path.read_text()) for path in sorted(CLUSTERS.glob("*.yaml"))},
}
"""Nine that between them take every branch of the templates, and those for known clusters."""


def render(values: Json, namespace: str = SYSTEM) -> list[Json]:
    """Every object of the chart with these values, in the order of the templates."""
    return copy.deepcopy(_rendered(json.dumps(values), namespace))


@lru_cache
def _rendered(values: str, namespace: str) -> list[Json]:
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(json.loads(values), name="penstock", namespace=namespace)
    return [
        document
        for path, text in sorted(texts.items())
        if path.endswith(".yaml")
        for document in yaml.load_all(text, Loader=Loader)
        if document
    ]


def named(objects: list[Json], kind: str, name: str) -> Json:
    """The one object of that kind and name."""
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def of_kind(objects: list[Json], kind: str) -> dict[str, Json]:
    """The objects of a kind by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}
