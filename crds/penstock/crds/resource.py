"""What a custom resource is beside its schema: names, printer columns and subresources.

One `CustomResource` stands beside each model, and `penstock.crds.schema` makes the
CustomResourceDefinition from the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.base.structural import Model


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``.

    Attributes:
        wide: shown with ``-o wide`` only.
        type: OpenAPI type of the value; ``date`` is shown as an age.
    """

    name: str
    json_path: str
    description: str
    wide: bool = False
    type: str = "string"


@dataclass(frozen=True)
class ScaleSubresource:
    """Where ``kubectl scale`` and an autoscaler find the wanted and the present number."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str


@dataclass(frozen=True)
class CustomResource:
    """One custom resource; every one has the status subresource and is namespaced."""

    model: type[Model]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: ScaleSubresource | None = None

    @property
    def singular(self) -> str:
        """The kind in lower case, as ``kubectl`` accepts it."""
        return self.kind.lower()


AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since creation.", type="date")
"""The column that every resource ends with."""
