"""tf.data programs on data workers: `distribute` gives a ``tf.data.Dataset`` of a job's shards.

Needs TensorFlow (the extra ``tensorflow``), and imports it when a dataset is made. Nothing else of
Penstock imports this package.
"""

from __future__ import annotations

from penstock.data.tensorflow.distributed import DistributedDataset, distribute

__all__ = ["DistributedDataset", "distribute"]
