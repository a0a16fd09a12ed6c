"""The controllers that a cluster cannot do without, started and stopped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.local.engine.crds import CrdController
from penstock.local.engine.disruption import DisruptionController
from penstock.local.engine.garbage import GarbageCollector
from penstock.local.engine.namespaces import NamespaceController
from penstock.local.engine.quotas import QuotaController

if TYPE_CHECKING:
    from penstock.local.engine.engine import Engine


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
