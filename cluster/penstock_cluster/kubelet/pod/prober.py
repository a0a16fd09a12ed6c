"""Hooks and probes of one run of a container: what the kubelet asks it, and what follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock_cluster.kubelet.container.context import PodContext
from penstock_cluster.kubelet.container.disturbances import StartTrouble
from penstock_cluster.kubelet.container.runtime import Running
from penstock_cluster.kubelet.pod.launch import Launch
from penstock_cluster.kubelet.state.probes import Probe, ask
from penstock_cluster.kubelet.state.status import ContainerRecord

Json = Mapping[str, Any]

HOOK_TIMEOUT_SECONDS: Final = 30.0
_READY_POLL_SECONDS: Final = 0.2


class Prober:
    """Asks one run of a container; writes what it learns into the container's record."""

    def __init__(
        self,
        context: PodContext,
        record: ContainerRecord,
        launch: Launch,
        running: Running,
        became_started: asyncio.Event,
    ) -> None:
        self._context = context
        self._record = record
        self._launch = launch
        self._running = running
        self._became_started = became_started

    @property
    def _spec(self) -> Json:
        return self._record.spec

    async def _execute(self, command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        launch = self._launch
        outcome = await self._context.services.runtime.execute(
            launch.rewrite(list(command)),
            launch.environment,
            launch.process.cwd,
            timeout_seconds,
        )
        if outcome.timed_out:
            raise TimeoutError
        return outcome.code, outcome.output

    async def run_hook(self, name: str, hook: Json, timeout_seconds: float) -> bool:
        """Carry out ``postStart`` or ``preStop``; whether it succeeded."""
        if sleep := hook.get("sleep"):
            await asyncio.sleep(min(sleep.get("seconds") or 0, timeout_seconds))
            return True
        address = self._context.record.pod_ip
        success, why = await ask(hook, self._spec, address, self._execute, timeout_seconds)
        if not success:
            event = "FailedPostStartHook" if name == "postStart" else "FailedPreStopHook"
            await self._context.event(event, f"{event[6:]} failed: {why}", warning=True)
        return success

    async def watch(self) -> None:
        """Hook and probes, until the container ends."""
        hook = (self._spec.get("lifecycle") or {}).get("postStart")
        if hook and not await self.run_hook("postStart", hook, HOOK_TIMEOUT_SECONDS):
            await self._end_by_probe(None)
            return
        if startup := self._spec.get("startupProbe"):
            await self._run_startup_probe(Probe.of(startup))
        self._became_started.set()
        async with asyncio.TaskGroup() as probes:
            if liveness := self._spec.get("livenessProbe"):
                probes.create_task(self._run_liveness_probe(Probe.of(liveness)))
            probes.create_task(self._keep_ready())

    async def _keep_ready(self) -> None:
        """Readiness by its probe; without one, as soon as the container runs."""
        spec = self._spec.get("readinessProbe")
        probe = Probe.of(spec) if spec else None
        counter = probe.counter(initially=False) if probe else None
        if probe is not None:
            await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            if probe is not None and counter is not None:
                success = await self._ask(probe, "Readiness")
                counter.take(success)
            ready = counter.verdict if counter else True
            if self._is_kept_from_ready():
                ready = False
            if ready != self._record.is_ready:
                self._record.is_ready = ready
                await self._context.report()
            await asyncio.sleep(probe.period_seconds if probe else _READY_POLL_SECONDS)

    def _is_kept_from_ready(self) -> bool:
        """Whether a fault on demand says so."""
        disturbances = self._context.services.disturbances
        rule = disturbances.find(StartTrouble.NEVER_READY, self._context.pod, time.monotonic())
        return rule is not None

    async def _run_startup_probe(self, probe: Probe) -> None:
        counter = probe.counter(initially=False)
        await asyncio.sleep(probe.initial_delay_seconds)
        failures = 0
        while not counter.verdict:
            success = await self._ask(probe, "Startup")
            counter.take(success)
            failures = 0 if success else failures + 1
            if failures >= probe.failure_threshold:
                await self._end_by_probe(probe, "startup")
            elif not counter.verdict:
                await asyncio.sleep(probe.period_seconds)
        self._record.is_started = self._record.was_started = True
        await self._context.report()

    async def _run_liveness_probe(self, probe: Probe) -> None:
        counter = probe.counter(initially=True)
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            counter.take(await self._ask(probe, "Liveness"))
            if not counter.verdict:
                await self._end_by_probe(probe, "liveness")
            await asyncio.sleep(probe.period_seconds)

    async def _ask(self, probe: Probe, name: str) -> bool:
        address = self._context.record.pod_ip
        success, why = await ask(
            probe.handler, self._spec, address, self._execute, probe.timeout_seconds
        )
        if not success:
            await self._context.event("Unhealthy", f"{name} probe failed: {why}", warning=True)
        return success

    async def _end_by_probe(self, probe: Probe | None, name: str = "") -> None:
        """Stop the process; what follows is up to the restart policy. Never returns."""
        running = self._running
        why = f"failed {name} probe" if name else "failed its postStart hook"
        await self._context.event(
            "Killing", f"Container {self._record.name} {why}, will be restarted"
        )
        grace = probe.grace_seconds if probe else None
        if grace is None:
            grace = self._context.pod["spec"].get("terminationGracePeriodSeconds", 30)
        runtime = self._context.services.runtime
        runtime.terminate(running.id)
        await asyncio.wait([running.exited], timeout=grace)
        if not running.exited.done():
            runtime.kill(running.id)
        await asyncio.Event().wait()  # until the end of the container cancels its probes
