"""What somebody wants to put on a node: the unit that every placement policy scores.

A request is hashable and holds nothing about one pod, so that equal requests share one score cache
(`penstock.scheduler.placement.engine`). Units: milli-cores, bytes, accelerators, and thousandths of
an accelerator for those who share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.scheduler.errors import InvalidRequestError

WHOLE_DEVICE_MILLI: Final = 1000
"""Thousandths of an accelerator in a whole one."""


class TaintEffect(StrEnum):
    """Effects of a node taint; the soft one, PreferNoSchedule, filters nothing."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = TaintEffect.NO_SCHEDULE


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod: operator ``Exists`` or ``Equal``; empty key and effect match all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a node's labels, or on a field (``metadata.name``).

    Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt, as Kubernetes has them.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """A required node-affinity term: all of its expressions hold. An empty term matches nothing."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may run at all, before any score is asked for."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    """Required terms, one of which must hold; None where the pod has none."""
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE: Final = Constraints()


@dataclass(frozen=True, slots=True)
class Request:
    """CPU, memory and accelerators for one pod, and where it may run.

    ``accelerators`` devices of ``accelerator_milli`` thousandths each; less than a whole device
    only for a single one. ``accelerator_kinds`` names the kinds that will do; empty means any.

    Raises:
        InvalidRequestError: a negative number, or a share of more than one device.
    """

    milli_cpu: int = 0
    memory_bytes: int = 0
    accelerators: int = 0
    accelerator_milli: int = WHOLE_DEVICE_MILLI
    accelerator_kinds: tuple[str, ...] = ()
    constraints: Constraints = field(default=ANYWHERE)

    def __post_init__(self) -> None:
        for name in ("milli_cpu", "memory_bytes", "accelerators"):
            if getattr(self, name) < 0:
                raise InvalidRequestError(name, getattr(self, name), "must be at least 0")
        if not 1 <= self.accelerator_milli <= WHOLE_DEVICE_MILLI:
            rule = f"must be from 1 to {WHOLE_DEVICE_MILLI}"
            raise InvalidRequestError("accelerator_milli", self.accelerator_milli, rule)
        if self.is_share and self.accelerators > 1:
            rule = "a share of a device is for one device; ask for whole devices or for one"
            raise InvalidRequestError("accelerators", self.accelerators, rule)

    @property
    def is_share(self) -> bool:
        """Whether the request is for a part of one accelerator."""
        return self.accelerators > 0 and self.accelerator_milli < WHOLE_DEVICE_MILLI

    @property
    def total_accelerator_milli(self) -> int:
        """Accelerators times the part of each, in thousandths."""
        return self.accelerators * self.accelerator_milli
