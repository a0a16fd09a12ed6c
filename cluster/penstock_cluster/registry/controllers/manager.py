"""The controllers that a cluster cannot do without, started and stopped together."""

from __future__ import annotations

from penstock_cluster.registry.controllers.crds import CrdController
from penstock_cluster.registry.controllers.disruption import DisruptionController
from penstock_cluster.registry.controllers.garbage import GarbageCollector
from penstock_cluster.registry.controllers.namespaces import NamespaceController
from penstock_cluster.registry.controllers.quotas import QuotaController
from penstock_cluster.registry.operations.storage import Storage


class Controllers:
    """All built-in controllers of one cluster; they run on its event loop, without tasks."""

    def __init__(self, storage: Storage, ca_pem: str) -> None:
        self.namespaces = NamespaceController(storage, ca_pem)
        self._all = (
            CrdController(storage),
            self.namespaces,
            GarbageCollector(storage),
            DisruptionController(storage),
            QuotaController(storage),
        )

    def start(self) -> None:
        for controller in self._all:
            controller.start()

    async def stop(self) -> None:
        for controller in self._all:
            controller.stop()
