"""Writes the Brain's plans into the cluster, each as a Scale."""

from __future__ import annotations

import logging

from penstock.job.identities import PodIdentity
from penstock.trainer.cluster.job_view import scale_of
from penstock.trainer.cluster.kube import KubeClient, KubeError
from penstock.trainer.control.coordinator import Coordinator
from penstock.wire import Plan

logger = logging.getLogger(__name__)


class PlanWriter:
    """The plans of one job."""

    def __init__(self, coordinator: Coordinator, kube: KubeClient, identity: PodIdentity) -> None:
        self._coordinator = coordinator
        self._kube = kube
        self._identity = identity
        self._waiting: int | None = None  # said in the log

    async def apply(self, plan: Plan) -> bool:
        """Write a plan as a Scale; False where that is to be tried again."""
        if self._coordinator.done():
            logger.info("plan %d comes after the end of the data and is not written", plan.id)
            return True
        self._coordinator.weigh_shares(plan.shard_weights)
        scale = scale_of(plan, self._identity)
        if scale is None:
            return True
        name = scale["metadata"]["name"]
        try:
            if await self._kube.create_scale(scale):
                logger.info("wrote plan %d as Scale %s (%s)", plan.id, name, plan.reason)
        except KubeError as error:
            if 400 <= error.code < 500 and error.code != 429:
                logger.error("plan %d was refused as Scale %s: %s", plan.id, name, error)
                return True
            if self._waiting != plan.id:
                logger.warning("plan %d is not written yet: %s; trying on", plan.id, error)
            self._waiting = plan.id
            return False
        return True
