"""The controllers that a cluster cannot do without, started and stopped together."""

from __future__ import annotations

from penstock_cluster.registry.crds import CrdController
from penstock_cluster.registry.disruption import DisruptionController
from penstock_cluster.registry.garbage import GarbageCollector
from penstock_cluster.registry.namespaces import NamespaceController
from penstock_cluster.registry.quotas import QuotaController
from penstock_cluster.registry.storage import Storage


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
