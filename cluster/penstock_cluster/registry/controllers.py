"""The controllers that a cluster cannot do without, started and stopped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_cluster.registry.crds import CrdController
from penstock_cluster.registry.disruption import DisruptionController
from penstock_cluster.registry.garbage import GarbageCollector
from penstock_cluster.registry.namespaces import NamespaceController
from penstock_cluster.registry.quotas import QuotaController

if TYPE_CHECKING:
    from penstock_cluster.registry.engine import Engine


class Controllers:
    """All built-in controllers of one engine; they run on its event loop, without tasks."""

    def __init__(self, engine: Engine) -> None:
        self.namespaces = NamespaceController(engine)
        self._all = (
            CrdController(engine),
            self.namespaces,
            GarbageCollector(engine),
            DisruptionController(engine),
            QuotaController(engine),
        )

    def start(self) -> None:
        for controller in self._all:
            controller.start()

    async def stop(self) -> None:
        for controller in self._all:
            controller.stop()
