"""Environment variables that the controller sets on a job's pods, for what runs in them.

Values are strings; the comment beside each name gives its form.
"""

from __future__ import annotations

from typing import Final

JOB_NAME: Final = "PENSTOCK_JOB_NAME"
JOB_NAMESPACE: Final = "PENSTOCK_JOB_NAMESPACE"
JOB_UID: Final = "PENSTOCK_JOB_UID"
JOB_TOKEN: Final = "PENSTOCK_JOB_TOKEN"  # the name of a variable, from the job's Secret
ROLE: Final = "PENSTOCK_ROLE"  # as in spec.replicaSpecs, or "trainer"
RANK: Final = "PENSTOCK_RANK"  # decimal, unique within the role
INCARNATION: Final = "PENSTOCK_INCARNATION"  # decimal, grows by one with each replacement
POD_NAME: Final = "PENSTOCK_POD_NAME"  # downward API
POD_IP: Final = "PENSTOCK_POD_IP"  # downward API
NODE_NAME: Final = "PENSTOCK_NODE_NAME"  # downward API
TRAINER_ADDRESS: Final = "PENSTOCK_TRAINER_ADDRESS"  # HOST:PORT of the job's trainer
DATA_ADDRESS: Final = "PENSTOCK_DATA_ADDRESS"  # HOST:PORT of the dispatcher, if not the trainer
ACCELERATOR: Final = "PENSTOCK_ACCELERATOR"  # of accelerated data workers: nvidia.com/gpu, ...
PARTITION: Final = "PENSTOCK_PARTITION"  # never, declared or auto; absent: declared
PARTITION_SHARE: Final = "PENSTOCK_PARTITION_SHARE"  # for measurements: share moved, 0 to 1
SHARE_ADDRESS: Final = "PENSTOCK_SHARE_ADDRESS"  # HOST:PORT of the trainers of a share group
SHARE_TOKEN: Final = "PENSTOCK_SHARE_TOKEN"  # the name of a variable, from the job's Secret
BRAIN_URL: Final = "PENSTOCK_BRAIN_URL"  # trainer only; absent: no Brain
KUBERNETES_TOKEN_FILE: Final = "PENSTOCK_KUBERNETES_TOKEN_FILE"  # trainer only
BRAIN_CA: Final = "PENSTOCK_BRAIN_CA"  # trainer only: PEM, to trust for BRAIN_URL; absent: system's
BRAIN_CA_FILE: Final = "PENSTOCK_BRAIN_CA_FILE"  # set by users of the command line: PEM, the same
BRAIN_TOKEN_FILE: Final = "PENSTOCK_BRAIN_TOKEN_FILE"  # trainer only; see BRAIN_AUDIENCE
STATE_DIR: Final = "PENSTOCK_STATE_DIR"  # trainer only: stateVolume or an emptyDir
CHECKPOINT_DIR: Final = "PENSTOCK_CHECKPOINT_DIR"  # where a training script keeps its checkpoints
CHECKPOINT_URL: Final = "PENSTOCK_CHECKPOINT_URL"  # set by users: copies of a session's there
PINNED_WRITES: Final = "PENSTOCK_PINNED_WRITES"  # set by users: 1: workers write there
REPLICA_GROUP: Final = "PENSTOCK_REPLICA_GROUP"  # set by `penstock run`: processes of a member
REPLICA_PODS: Final = "PENSTOCK_REPLICA_PODS"  # of workers: nodeUnit; absent: 1
NODE_CHECK: Final = "PENSTOCK_NODE_CHECK"  # of workers: 1: the machine is measured first
NODE_CHECK_SHARE: Final = "PENSTOCK_NODE_CHECK_SHARE"  # of workers: of the time; absent: none
SNAPSHOT_MEMORY: Final = "PENSTOCK_SNAPSHOT_MEMORY"  # of workers: bytes; absent: what is free
STEP_LOG: Final = "PENSTOCK_STEP_LOG"  # set by users: folder of the step logs
DATA_STAGE: Final = "PENSTOCK_DATA_STAGE"  # of a data worker: 1 runs batched stages; absent: 0
DATA_PROCESSES: Final = "PENSTOCK_DATA_PROCESSES"  # of a data worker's pod: one for each core
DATA_SHARE: Final = "PENSTOCK_DATA_SHARE"  # for measurements: share of batches, 0 to 1
DATA_CUT: Final = "PENSTOCK_DATA_CUT"  # set by users: stage in front of which data workers end
SAVE_BATCHES: Final = "PENSTOCK_SAVE_BATCHES"  # folder for the first epoch of each DataLoader
LOAD_BATCHES: Final = "PENSTOCK_LOAD_BATCHES"  # folder with saved batches, in place of DataLoaders'
WEIGHTS_DIR: Final = "PENSTOCK_WEIGHTS_DIR"  # set by users: a node's folder for weights
WEIGHTS_BYTES: Final = "PENSTOCK_WEIGHTS_BYTES"  # set by users: its most, as 16Gi
CACHE_SOCKET: Final = "PENSTOCK_CACHE_SOCKET"  # of the node's cache: a path, or @NAME
CACHE_FORM: Final = "PENSTOCK_CACHE_FORM"  # Raw, or Decoded: what functions made of them
CACHE_PATHS: Final = "PENSTOCK_CACHE_PATHS"  # folders that are read through it, separated as PATH
LATE_COMPILER: Final = "PENSTOCK_LATE_COMPILER"  # set by users: 0: PyTorch loads it early
LINK_CODING: Final = "PENSTOCK_LINK_CODING"  # set by users: 0: batches are sent as they are
ENCRYPT_FRAMES: Final = "PENSTOCK_ENCRYPT_FRAMES"  # set by users: 1 hides what data connections say

BRAIN_AUDIENCE: Final = "penstock-brain"
"""Audience of the projected token with which a job's trainer calls the Brain."""
