"""ElasticJobs with parameter servers, for benchmarks on an embedded cluster."""

from __future__ import annotations

import sys
from typing import Any

from penstock.crds.environment import CHECKPOINT_DIR, STEP_LOG

Json = dict[str, Any]


def server_job(
    name: str,
    program: str,
    arguments: list[str],
    *,
    workers: Json,
    servers: Json,
    step_log: str,
    checkpoints: str = "",
    **spec: Any,
) -> Json:
    """A job whose workers run a script.

    ``workers`` and ``servers`` are laid over the ReplicaSpecs; ``resources`` in them over the
    containers. ``step_log`` and ``checkpoints`` are folders of this machine.
    """
    env = [{"name": STEP_LOG, "value": step_log}]
    if checkpoints:
        env.append({"name": CHECKPOINT_DIR, "value": checkpoints})
    command = ["penstock", "run", "--", sys.executable, program, *arguments]
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "strategy": "ParameterServer",
            "replicaSpecs": {
                "worker": _role(workers, {"command": command, "env": env}),
                "ps": _role(servers, {"command": ["penstock", "ps"]}),
            },
            **spec,
        },
    }


def _role(given: Json, container: Json) -> Json:
    given = dict(given)
    resources = given.pop("resources", None)
    main = {"name": "main", "image": "penstock/examples:latest", **container}
    if resources:
        main["resources"] = resources
    return {**given, "template": {"spec": {"containers": [main]}}}
