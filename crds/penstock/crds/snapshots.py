"""``spec.snapshots`` of an ElasticJob: memory for copies of the training's state."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from penstock.base.fields import PositiveQuantity
from penstock.base.structural import Model, Rule

SNAPSHOTS_OF_WORKERS: Final = Rule(
    cel="!has(self.snapshots) || self.strategy != 'ParameterServer'",
    message="snapshots are the workers', which hold no model with strategy ParameterServer",
    field_path=".snapshots",
)


class Snapshots(Model):
    """Copies of the state in the memory of each worker's pod, which outlive its processes."""

    state_size: PositiveQuantity = Field(
        description="Bytes of model and optimizer together, as in a checkpoint. The memory of each"
        " worker grows by two copies of it, or by as many as resourceLimits and the namespace's"
        " quota leave room for with maxReplicas workers."
    )
