"""The life of one pod on its node, from admission to the last status.

A worker is level-triggered: :meth:`PodWorker.update` hands it the newest object, and what it does
next follows from that and from what its containers are doing. It ends when the pod has: finished,
rejected, evicted, or deleted, and then leaves no process, address, core or scratch folder behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_cluster.kubelet.container.context import PodContext, Services
from penstock_cluster.kubelet.container.devices import container_devices
from penstock_cluster.kubelet.container.sources import PodSources
from penstock_cluster.kubelet.container.volumes import VolumeError, VolumeManager
from penstock_cluster.kubelet.network.blocklist import Blocklist
from penstock_cluster.kubelet.node.node_object import Node
from penstock_cluster.kubelet.pod.container import ContainerRunner
from penstock_cluster.kubelet.pod.launch import write_network_settings
from penstock_cluster.kubelet.pod.reporter import PodReporter
from penstock_cluster.kubelet.state.folder import remove_scratch
from penstock_cluster.kubelet.state.status import (
    ContainerRecord,
    PodRecord,
    Waiting,
)

Json = Mapping[str, Any]
Verdict = tuple[str, str, str]

logger = logging.getLogger(__name__)
_FORCED_GRACE_SECONDS = 2.0
_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Stop:
    """End the pod: how fast, and with what verdict when it was not simply deleted."""

    grace_seconds: float
    verdict: Verdict | None = None
    condition: Mapping[str, str] | None = None
    """A further pod condition (DisruptionTarget) to report with it."""


class PodWorker:
    """Runs one pod."""

    def __init__(self, services: Services, node: Node, pod: Json) -> None:
        self.services = services
        self.node = node
        self.uid: str = pod["metadata"]["uid"]
        self.context = self._context(pod)
        self.reporter = PodReporter(self.context, node, self.uid)
        self.blocklist = Blocklist(self.context.folder)
        self.runners: dict[str, ContainerRunner] = {}
        self.is_finished = False
        self._stop: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._volumes = VolumeManager(
            pod,
            self.context.folder,
            services.options.folder / "claims",
            self.context.sources,
            node.allocatable,
        )

    def _context(self, pod: Json) -> PodContext:
        metadata, spec = pod["metadata"], pod["spec"]
        on_host = bool(spec.get("hostNetwork"))
        record = PodRecord(
            pod_ip=self.node.address if on_host else self.services.addresses.assign(self.uid),
            host_ip=self.node.address,
            start_time=self.services.engine.timestamp(),
            init_containers=[
                ContainerRecord(each, is_init=True, state=Waiting("PodInitializing"))
                for each in spec.get("initContainers") or ()
            ],
            containers=[
                ContainerRecord(each, state=_first_state(spec)) for each in spec["containers"]
            ],
        )
        folder = f"{metadata['namespace']}_{metadata['name']}_{self.uid}"
        return PodContext(
            services=self.services,
            pod=pod,
            folder=self.services.options.folder / folder,
            record=record,
            sources=PodSources(self.services.engine, self.services.api, metadata["namespace"]),
            allocatable=self.node.allocatable,
            report=lambda: self.reporter.report(),  # noqa: PLW0108  it is made of this context
            machine_percent=lambda: self.node.percent,
        )

    @property
    def pod(self) -> Json:
        return self.context.pod

    @property
    def record(self) -> PodRecord:
        return self.context.record

    async def update(self, pod: Json) -> None:
        """Take over the newest object."""
        self.context.pod = pod
        self._volumes.update_pod(pod)
        for spec in pod["spec"]["containers"]:
            runner = self.runners.get(spec["name"])
            if runner is not None and spec.get("resources") != runner.spec.get("resources"):
                runner.apply_resources(spec)
                self.node.recount(pod)
                await self.reporter.report()
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            self.stop(Stop(grace))

    def forget(self) -> None:
        """The object is gone from the API: end at once, and write nothing more."""
        self.reporter.is_gone = True
        self.stop(Stop(_FORCED_GRACE_SECONDS))

    def abandon(self) -> None:
        """The machine is off: processes end at once, and nobody writes anything."""
        self.reporter.is_gone = True
        self.stop(Stop(0))
        self._kill()

    async def catch_up(self) -> None:
        """The node is heard again: say what happened while it was not."""
        await self.reporter.report()
        if self.is_finished and self.pod["metadata"].get("deletionTimestamp"):
            await self.reporter.finalize()

    def stop(self, stop: Stop) -> None:
        """Ask the pod to end; a later request may shorten the grace period, not lengthen it."""
        loop = asyncio.get_running_loop()
        if not self._stop.done():
            self._stop.set_result(stop)
        elif stop.grace_seconds < self._stop.result().grace_seconds:
            loop.call_later(stop.grace_seconds, self._kill)

    def _kill(self) -> None:
        for runner in self.runners.values():
            if runner.running is not None:
                self.services.runtime.kill(runner.running.id)

    def writes_to(self, container: str, log: Path) -> bool:
        """Whether a container is running whose output goes to this file."""
        runner = self.runners.get(container)
        return runner is not None and runner.running is not None and runner.log == log

    async def run(self) -> None:
        """Run the pod to its end."""
        try:
            refused = self.node.admit(self.pod)
            if refused is not None:
                self.record.verdict = refused
                await self.reporter.report()
                return
            held = self.services.devices.assign(self.uid, self.pod)
            self.context.devices = container_devices(self.pod["spec"], held)
            await self._run_admitted()
        except Exception as error:
            # A fault of the kubelet's own: whoever waits for the pod must learn of it.
            logger.exception("pod %s failed in the kubelet", self.pod["metadata"]["name"])
            self._kill()
            self.record.is_terminating = True
            self.record.verdict = ("Failed", "KubeletError", repr(error))
            await self.reporter.report()
        finally:
            self.node.discharge(self.uid)
            self.services.devices.release(self.uid)
            self.services.addresses.release(self.uid)
            self.blocklist.close()
            self.is_finished = True

    async def _run_admitted(self) -> None:
        write_folder(self.context)
        await self.reporter.report()
        main = asyncio.create_task(self._live(), name=f"pod-{self.pod['metadata']['name']}")
        helpers = [asyncio.create_task(self._refresh_volumes())]
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            helpers.append(asyncio.create_task(self._end_at_deadline(deadline)))
        try:
            either: tuple[asyncio.Future[Any], ...] = (main, self._stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                await self._end(main, self._stop.result())
            await main
        except asyncio.CancelledError:
            main.cancel()
            await asyncio.gather(main, return_exceptions=True)
            raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await asyncio.to_thread(remove_scratch, self.context.folder)
        await self.reporter.report()
        if self.pod["metadata"].get("deletionTimestamp"):
            await self.reporter.finalize()

    async def _end(self, main: asyncio.Task[None], stop: Stop) -> None:
        record = self.record
        record.is_terminating = True
        if stop.verdict is not None:
            record.verdict = stop.verdict
            await self.reporter.report(stop.condition)
        elif not self.reporter.is_gone:
            for runner in self.runners.values():
                if runner.running is not None:
                    message = f"Stopping container {runner.record.name}"
                    await self.context.event("Killing", message)
        await asyncio.gather(*(runner.stop(stop.grace_seconds) for runner in self.runners.values()))
        await asyncio.wait([main])

    async def _live(self) -> None:
        """Volumes, init containers in turn, then all containers at once.

        Ends by itself when the pod is stopped: nothing here needs to be cancelled for that, so no
        container is ever left half started.
        """
        if not await self._set_up_volumes():
            return
        self.record.is_set_up = True
        sidecars: list[asyncio.Task[None]] = []
        try:
            for record in self.record.init_containers:
                if self._stop.done():
                    return
                runner = self._runner(record)
                task = asyncio.create_task(runner.run())
                if record.is_sidecar:
                    sidecars.append(task)
                    await runner.became_started.wait()
                else:
                    await _finished(task)
                if not record.is_done:
                    return
            if self._stop.done():
                return
            for record in self.record.containers:
                record.state = Waiting("ContainerCreating")
            runners = [self._runner(record) for record in self.record.containers]
            async with asyncio.TaskGroup() as group:
                for runner in runners:
                    group.create_task(runner.run())
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            for record in reversed(self.record.init_containers):
                if record.is_sidecar:
                    await self.runners[record.name].stop(grace)
            await asyncio.gather(*sidecars)
        finally:
            for task in sidecars:
                task.cancel()
            await asyncio.gather(*sidecars, return_exceptions=True)

    def _runner(self, record: ContainerRecord) -> ContainerRunner:
        runner = self.runners[record.name] = ContainerRunner(self.context, record)
        return runner

    async def _set_up_volumes(self) -> bool:
        """Make the volumes, waiting for what is missing; False when stopped meanwhile."""
        while not self._stop.done():
            try:
                self.context.volumes = await self._volumes.set_up()
            except VolumeError as error:
                await self.context.event("FailedMount", str(error), warning=True)
                await asyncio.wait([self._stop], timeout=self.services.options.retry_seconds)
            else:
                return True
        return False

    async def _refresh_volumes(self) -> None:
        while self._volumes.has_written_volumes:
            await asyncio.sleep(self.services.options.refresh_seconds)
            # What is there stays as it was while its source is missing, as with the kubelet.
            with contextlib.suppress(VolumeError):
                await self._volumes.refresh()

    async def _end_at_deadline(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        message = "Pod was active on the node longer than the specified deadline"
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
        self.stop(Stop(grace, ("Failed", "DeadlineExceeded", message)))

    def remove_folder(self) -> None:
        """Remove what is left of the pod on disk: its logs."""
        shutil.rmtree(self.context.folder, ignore_errors=True)


def _first_state(spec: Json) -> Waiting:
    return Waiting("PodInitializing" if spec.get("initContainers") else "ContainerCreating")


def write_folder(context: PodContext) -> None:
    """Make the pod's folder with its network settings."""
    context.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_network_settings(context)


async def _finished(task: asyncio.Task[None]) -> None:
    """Wait for a task and end it when the waiter is cancelled."""
    try:
        await task
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
