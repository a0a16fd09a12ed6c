"""Manifests for tests, in the form of other systems, and the account of their fields."""

from __future__ import annotations

from typing import Any

from benchmarks import manifests
from penstock.base.yaml_text import documents
from penstock.convert.assembly import Conversion
from penstock.convert.convert import convert
from penstock.convert.source import Note

Json = dict[str, Any]


def lost(document: Json, conversion: Conversion) -> list[str]:
    """Leaves of a manifest that are neither in the result nor named."""
    return manifests.lost(document, conversion.result, list(conversion.notes))


def converted(text: str, *beside: Any) -> Conversion:
    """The conversion of the one manifest in a text."""
    [document] = documents(text)
    conversion = convert(document, beside)
    assert lost(document, conversion) == []
    return conversion


def notes_on(conversion: Conversion, field: str) -> list[Note]:
    """What was said of a field."""
    return [note for note in conversion.notes if note.field == field]


def spec(conversion: Conversion) -> Json:
    found: Json = conversion.result["spec"]
    return found


def worker(conversion: Conversion) -> Json:
    found: Json = spec(conversion)["replicaSpecs"]["worker"]
    return found


def command(conversion: Conversion) -> list[str]:
    found: list[str] = worker(conversion)["template"]["spec"]["containers"][0]["command"]
    return found


PYTORCH_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: faces, namespace: vision, labels: {team: faces}}
spec:
  nprocPerNode: "2"
  runPolicy: {cleanPodPolicy: None, backoffLimit: 5, ttlSecondsAfterFinished: 60, suspend: true}
  pytorchReplicaSpecs:
    Master:
      restartPolicy: OnFailure
      template: &template
        spec:
          containers:
          - name: pytorch
            image: registry.example.com/faces:3
            command: [torchrun, --rdzv_backend, c10d, train.py]
            args: [--epochs=3]
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template: *template
"""

DLROVER_JOB = """
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: words}
spec:
  distributionStrategy: AllreduceStrategy
  optimizeMode: single-job
  resourceLimits: {cpu: "32", memory: 64Gi, gpu: "4"}
  envs: {LEVEL: {value: debug}}
  replicaSpecs:
    worker:
      replicas: 4
      restartCount: 2
      priority: low
      template:
        spec:
          restartPolicy: Always
          containers:
          - name: main
            image: registry.example.com/words:1
            command:
            - /bin/bash
            - -c
            - >-
              cd /work && dlrover-run --network-check --nnodes=2:$NODE_NUM --nproc_per_node=1
              --max_restarts=7 train.py --text "a b"
    dlrover-master:
      template: {spec: {containers: [{name: main, imagePullPolicy: Always}]}}
"""

TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tunes}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    numProcPerNode: 4
    image: registry.example.com/tunes:1
    command: [torchrun, -m, tunes.train]
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}}
    env: [{name: LEVEL, value: debug}]
"""

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: ours}
spec:
  mlPolicy: {numNodes: 3, torch: {numProcPerNode: 2}}
  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 60}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:
                nodeSelector: {pool: gpus}
                containers:
                - name: node
                  image: registry.example.com/base:1
                  command: [torchrun, base.py]
"""

TF_JOB = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: clicks}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Chief:
      restartPolicy: Never
      template: &template
        spec:
          containers:
          - name: tensorflow
            image: registry.example.com/clicks:1
            command: [python, train.py]
    Worker: {replicas: 2, restartPolicy: Never, template: *template}
    PS: {replicas: 2, restartPolicy: Never, template: *template}
    Evaluator: {restartPolicy: Never, template: *template}
"""

BATCH_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: single}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: 600
  template:
    metadata: {labels: {app: single, job-name: single}}
    spec:
      restartPolicy: OnFailure
      containers:
      - name: train
        image: registry.example.com/single:1
        command: [python, train.py]
"""
