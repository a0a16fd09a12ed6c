"""What every part of the API works with: the kinds, the objects, and what may be done to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock_cluster.registry.model.call import Call, User
from penstock_cluster.registry.model.shape import CoreTypes
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.store import Store
from penstock_cluster.registry.operations.verbs import Operations

MASTERS: Final = ("system:masters", "system:authenticated")


def utc_now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)


class Storage:
    """The objects of one cluster, by kind, and its clock."""

    def __init__(
        self,
        clock: Callable[[], datetime] = utc_now,
        *,
        history_seconds: float = 300.0,
        history_changes: int = 50_000,
    ) -> None:
        self._clock = clock
        self.types = CoreTypes()
        self.meta_shape = self.types.shape("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        self.store = Store(
            lambda: clock().timestamp(),
            history_seconds=history_seconds,
            history_changes=history_changes,
        )
        self.registry = Registry()
        self.operations = Operations(self.store)

    def now(self) -> datetime:
        """The cluster's time."""
        return self._clock()

    def timestamp(self) -> str:
        """The cluster's time as objects have it."""
        return self._clock().isoformat()[:19] + "Z"

    def system_call(self, manager: str) -> Call:
        """A request of a part of the cluster itself."""
        return Call(User(f"system:{manager}", MASTERS), manager, self.timestamp())
