"""What a role of a job should be: what a Scale and a plan on the wire have in common.

A plan of the Brain names targets per role, and the trainer copies them into a Scale as they are;
both are made of these models, so that neither can say what the other cannot.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from penstock.base.fields import (
    ByRank,
    Count,
    Name,
    NullsAreAbsent,
    PositiveQuantity,
    PositiveQuantityText,
    Replicas,
)
from penstock.base.structural import Model, UniqueItems


class Resources(Model):
    """Resources of each pod of a role: requests and limits of its main container."""

    min_properties: ClassVar[int] = 1

    cpu: PositiveQuantity | None = Field(default=None, description="CPU of each pod.")
    memory: PositiveQuantity | None = Field(default=None, description="Memory of each pod.")


class RankTarget(Model):
    """What sets one rank apart from the others of its role."""

    min_properties: ClassVar[int] = 1

    cpu: PositiveQuantityText | None = Field(
        default=None, description="CPU of this rank's pod: a string, such as '4' or 500m."
    )
    memory: PositiveQuantityText | None = Field(
        default=None, description="Memory of this rank's pod: a string, such as 1.5Gi."
    )
    min_incarnation: Count | None = Field(
        default=None, description="Least incarnation to keep: a pod of a lower one is replaced."
    )
    avoid_nodes: (
        Annotated[
            list[Annotated[Name, Field(description="Name of a node.")]],
            Field(max_length=16),
            UniqueItems(),
        ]
        | None
    ) = Field(default=None, description="Nodes that the rank must leave and not come back to.")


class RoleTarget(Model):
    """Targets of one role; what is absent stays as it is."""

    min_properties: ClassVar[int] = 1

    replicas: Replicas | None = Field(default=None, description="Number of replicas.")
    spare_replicas: Replicas | None = Field(
        default=None,
        description="Workers beyond the quota, the first to be preempted; only for the role"
        " worker.",
    )
    resources: Resources | None = Field(
        default=None,
        description="Resources of each replica's main container: the one named"
        " main, else the first.",
    )
    ranks: (
        Annotated[
            ByRank[Annotated[RankTarget, Field(description="One rank.")]],
            Field(min_length=1),
            NullsAreAbsent,
        ]
        | None
    ) = Field(
        default=None, description="Targets of single ranks, by rank, which override the role's."
    )
