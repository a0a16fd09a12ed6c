"""What a job of ``framework: TensorFlow`` must say: its programs form a cluster of fixed size."""

from __future__ import annotations

from typing import Final

from penstock.base.structural import Rule

_OTHER: Final = "!has(self.framework) || self.framework != 'TensorFlow' || "

TENSORFLOW_RULES: Final = (
    Rule(
        cel=f"{_OTHER}self.replicaSpecs.worker.replicas > 0",
        message="with framework TensorFlow the number of workers is fixed: replicas must be greater"
        " than 0",
        field_path=".replicaSpecs.worker.replicas",
    ),
    Rule(
        cel=f"{_OTHER}self.replicaSpecs.worker.spareReplicas == 0",
        message="with framework TensorFlow the number of workers is fixed: there are no"
        " spareReplicas",
        field_path=".replicaSpecs.worker.spareReplicas",
    ),
    Rule(
        cel=f"{_OTHER}!has(self.replicaSpecs.ps) || self.replicaSpecs.ps.replicas > 0",
        message="with framework TensorFlow the number of parameter servers is fixed: replicas must"
        " be greater than 0",
        field_path=".replicaSpecs.ps",
    ),
    Rule(
        cel=f"{_OTHER}(self.replicaSpecs.worker.replicas == oldSelf.replicaSpecs.worker.replicas &&"
        " (!has(self.replicaSpecs.ps) || !has(oldSelf.replicaSpecs.ps) ||"
        " self.replicaSpecs.ps.replicas == oldSelf.replicaSpecs.ps.replicas))",
        message="with framework TensorFlow the numbers of workers and of parameter servers are"
        " immutable: create a new job to change them",
        field_path=".replicaSpecs",
    ),
)
