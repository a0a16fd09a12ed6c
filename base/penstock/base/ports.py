"""TCP ports on which Penstock's parts listen unless told otherwise."""

from __future__ import annotations

from typing import Final

TENSORFLOW: Final = 2222  # of the programs of a job with framework TensorFlow: they listen there
TRAINER: Final = 8476
BRAIN: Final = 8477
CONTROLLER_METRICS: Final = 8478
SCHEDULER_METRICS: Final = 8479
EMBEDDED_API_SERVER: Final = 8480
DATA_WORKER: Final = 8481  # takes connections, and says nothing, while it is ready
PARAMETER_SERVER: Final = 8482  # the same, while it serves its share of the parameters
CACHE_PEERS: Final = 8483  # of a node's file cache, for those of other nodes
CACHE_METRICS: Final = 8484
