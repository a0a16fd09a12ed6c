"""``spec.gang`` of an ElasticJob: its first pods start together or not at all."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.fields import DNS_LABEL, Int32
from penstock.base.structural import Model

_LABEL: Final = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


class Gang(Model):
    """The least number of workers and parameter servers start together, or none of them does."""

    queue: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = Field(
        default=None,
        description="Queue of Volcano, or LocalQueue of Kueue, that the pods wait in; without it,"
        " the scheduler's default.",
    )
    topology_key: Annotated[str, Field(min_length=1, max_length=317, pattern=_LABEL)] | None = (
        Field(
            default=None,
            description="Label of nodes, such as topology.kubernetes.io/zone, whose value the pods"
            " of the gang should have in common: a preference for the scheduler, no condition.",
        )
    )
    timeout_seconds: Annotated[Int32, Field(ge=1, le=86_400)] = Field(
        default=600,
        description="Seconds that scheduler-plugins holds places for a part of the gang before it"
        " lets them go and tries again; the others have settings of their own.",
    )
