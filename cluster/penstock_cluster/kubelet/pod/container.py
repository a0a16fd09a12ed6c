"""The life of one container: configured, started, probed, ended, started again.

``run`` returns when the container will not run again; ``stop`` makes it end within a grace period.
The record is changed here only, and reported after each change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock_cluster.kubelet.container.context import PodContext
from penstock_cluster.kubelet.container.disturbances import StartRule, StartTrouble
from penstock_cluster.kubelet.container.environment import ConfigError
from penstock_cluster.kubelet.container.runtime import ContainerStartError, Exit, Running
from penstock_cluster.kubelet.pod.launch import Launch, cpu_claim, cpu_limit, memory_limit, prepare
from penstock_cluster.kubelet.pod.prober import Prober
from penstock_cluster.kubelet.state.backoff import Backoff, should_restart
from penstock_cluster.kubelet.state.status import (
    CONTAINER_ID_SCHEME,
    Active,
    ContainerRecord,
    Terminated,
    Waiting,
)

Json = Mapping[str, Any]

_TROUBLE_POLL_SECONDS = 0.05
_KILL_TIMEOUT_SECONDS = 30.0
_MESSAGE_BYTES = 4096
_MESSAGE_FROM_LOG_BYTES = 2048
_MESSAGE_FROM_LOG_LINES = 80
_NEVER_STARTED_AT = "1970-01-01T00:00:00Z"


class ContainerRunner:
    """Runs one container of a pod."""

    def __init__(self, context: PodContext, record: ContainerRecord) -> None:
        self.context = context
        self.record = record
        self.running: Running | None = None
        self._stopping = asyncio.Event()
        self._backoff = Backoff(context.services.options.backoff)
        self._starts = 0
        self._launch: Launch | None = None
        self._prober: Prober | None = None
        self.became_started = asyncio.Event()
        """Set when a sidecar has started, and when the container will not run again."""

    @property
    def spec(self) -> Json:
        return self.record.spec

    @property
    def log(self) -> Path | None:
        """The log file of the newest run."""
        return self._launch.process.log if self._launch is not None else None

    @property
    def _restart_policy(self) -> str:
        if self.record.is_sidecar:
            return "Always"
        policy = self.context.pod["spec"].get("restartPolicy") or "Always"
        return "OnFailure" if self.record.is_init and policy == "Always" else str(policy)

    async def run(self) -> None:
        """Run until the container has ended for good."""
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                end = await self._run_once()
                if end is None or self._stopping.is_set():
                    return
                if not should_restart(self._restart_policy, end.exit_code):
                    return
                delay = self._backoff.delay(time.monotonic() - began)
                await self._await_restart(delay)
                if not self._stopping.is_set():
                    self.record.restarts += 1
        finally:
            self.became_started.set()

    async def stop(self, grace_seconds: float) -> None:
        """End the container: hook, SIGTERM, and SIGKILL when the grace period is over."""
        self._stopping.set()
        running = self.running
        if running is None:
            return
        deadline = time.monotonic() + grace_seconds
        hook = ((self.spec.get("lifecycle") or {}).get("preStop")) or {}
        if hook and grace_seconds > 0 and self._prober is not None:
            await self._prober.run_hook("preStop", hook, grace_seconds)
        runtime = self.context.services.runtime
        if grace_seconds > 0:
            runtime.terminate(running.id)
            remaining = max(0.0, deadline - time.monotonic())
            await asyncio.wait([running.exited], timeout=remaining)
        if not running.exited.done():
            runtime.kill(running.id)
            await asyncio.wait([running.exited], timeout=_KILL_TIMEOUT_SECONDS)

    def apply_resources(self, spec: Json) -> None:
        """Take over resources that were changed in place."""
        self.record.spec = spec
        if self.running is not None:
            services = self.context.services
            cores = services.cores.assign(self.running.id, cpu_claim(spec))
            milli_cpu = cpu_limit(services.options, spec)
            services.runtime.set_limits(self.running.id, cores, memory_limit(spec), milli_cpu)

    def slow(self, percent: int | None) -> None:
        """Let the container that runs now do so at this speed; later ones ask their node."""
        if self.running is not None:
            self.context.services.runtime.slow(self.running.id, percent)

    async def _run_once(self) -> Terminated | None:
        """One start and its end; None when the container is being stopped before it started."""
        launch = await self._configured()
        if launch is None:
            return None
        self._launch = launch
        self.record.container_id = CONTAINER_ID_SCHEME + launch.process.id
        self._starts += 1
        try:
            running = await self._start(launch)
        except ContainerStartError as error:
            self.context.services.cores.release(launch.process.id)
            await self._fail_to_start(str(error))
            assert isinstance(self.record.state, Terminated)
            return self.record.state
        prober = self._prober = Prober(
            self.context, self.record, launch, running, self.became_started
        )
        self.running = running
        if self.context.machine_percent() != launch.process.percent:
            self.slow(self.context.machine_percent())
        probes: asyncio.Task[None] | None = None
        try:
            started_at = self.context.services.engine.timestamp()
            self.record.state = Active(started_at)
            self.record.is_started = "startupProbe" not in self.spec
            self.record.was_started |= self.record.is_started
            await self.context.report()
            await self.context.event("Started", "Container started")
            if self._stopping.is_set():
                # The stop came while the process was being made and did not see it.
                self.context.services.runtime.kill(running.id)
            probes = asyncio.create_task(prober.watch(), name=f"probes-{self.record.name}")
            end = await running.exited
        except asyncio.CancelledError:
            self.context.services.runtime.kill(running.id)
            raise
        finally:
            self.running = None
            self.context.services.cores.release(running.id)
            if probes is not None:
                probes.cancel()
                await asyncio.gather(probes, return_exceptions=True)
        return await self._ended(launch, started_at, end)

    async def _start(self, launch: Launch) -> Running:
        if not launch.process.argv:
            raise ContainerStartError(
                "failed to generate spec: no command specified (images are not read here: "
                "set spec.containers[].command)"
            )
        return await self.context.services.runtime.start(launch.process)

    async def _ended(self, launch: Launch, started_at: str, end: Exit) -> Terminated:
        if end.lost:
            reason = "ContainerStatusUnknown"
        elif end.out_of_memory:
            reason = "OOMKilled"
        else:
            reason = "Completed" if end.code == 0 else "Error"
        terminated = Terminated(
            exit_code=end.code,
            reason=reason,
            started_at=started_at,
            finished_at=self.context.services.engine.timestamp(),
            container_id=self.record.container_id,
            message=_termination_message(self.spec, launch, failed=end.code != 0),
            signal=end.signal,
        )
        await self._take_end(terminated)
        return terminated

    async def _fail_to_start(self, message: str) -> None:
        now = self.context.services.engine.timestamp()
        terminated = Terminated(
            exit_code=128,
            reason="StartError",
            started_at=_NEVER_STARTED_AT,
            finished_at=now,
            container_id=self.record.container_id,
            message=message,
        )
        await self._take_end(terminated)
        await self.context.event("Failed", f"Error: {message}", warning=True)

    async def _take_end(self, terminated: Terminated) -> None:
        if isinstance(self.record.state, Terminated):
            self.record.last = self.record.state
        self.record.state = terminated
        self.record.is_ready = self.record.is_started = False
        await self.context.report()

    async def _await_restart(self, delay_seconds: float) -> None:
        assert isinstance(self.record.state, Terminated)
        self.record.last = self.record.state
        if delay_seconds <= 0:
            return
        metadata = self.context.pod["metadata"]
        name = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        restarting = f"restarting failed container={self.record.name} pod={name}"
        message = f"back-off {delay_seconds:g}s {restarting}"
        self.record.state = Waiting("CrashLoopBackOff", message)
        await self.context.report()
        await self.context.event("BackOff", f"Back-off {restarting}", warning=True)
        await self._pause(delay_seconds)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _configured(self) -> Launch | None:
        """What to start, once nothing is missing; None when stopped meanwhile."""
        due = time.monotonic()
        retry_seconds = self.context.services.options.retry_seconds
        while not self._stopping.is_set():
            if await self._is_troubled(due):
                await self._pause(_TROUBLE_POLL_SECONDS)
                continue
            try:
                launch = await prepare(self.context, self.spec, self._starts)
            except ConfigError as error:
                await self._wait_for("CreateContainerConfigError", str(error))
                await self._pause(retry_seconds)
                continue
            return self._with_crash(launch)
        return None

    def _rule(self, trouble: StartTrouble) -> StartRule | None:
        disturbances = self.context.services.disturbances
        return disturbances.find(trouble, self.context.pod, time.monotonic())

    async def _is_troubled(self, due: float) -> bool:
        """Whether a fault on demand holds the container back."""
        delay = self._rule(StartTrouble.DELAY)
        if delay is not None:
            if time.monotonic() < due + (delay.seconds or 0.0):
                return True
            self.context.services.disturbances.use(delay)
        image = self.spec.get("image") or ""
        if pull := self._rule(StartTrouble.IMAGE_PULL):
            why = pull.message or (
                f'failed to pull and unpack image "{image}": failed to resolve reference '
                f'"{image}": {image}: not found'
            )
            if isinstance(self.record.state, Waiting) and "Pull" in self.record.state.reason:
                message = f'Back-off pulling image "{image}": ErrImagePull: {why}'
                await self._wait_for("ImagePullBackOff", message)
            else:
                await self._wait_for("ErrImagePull", why)
            return True
        if config := self._rule(StartTrouble.CONFIG):
            message = config.message or 'configmap "injected-fault" not found'
            await self._wait_for("CreateContainerConfigError", message)
            return True
        return False

    async def _wait_for(self, reason: str, message: str) -> None:
        if self.record.state == Waiting(reason, message):
            return
        if isinstance(self.record.state, Terminated):
            self.record.last = self.record.state
        self.record.state = Waiting(reason, message)
        await self.context.report()
        event = "BackOff" if reason == "ImagePullBackOff" else "Failed"
        await self.context.event(event, f"Error: {message}", warning=True)

    def _with_crash(self, launch: Launch) -> Launch:
        crash = self._rule(StartTrouble.CRASH)
        if crash is None:
            return launch
        self.context.services.disturbances.use(crash)
        script = 'echo "$1" >&2; exit "$2"'
        message = crash.message or "fault on demand: crash at start"
        argv = ["/bin/sh", "-c", script, "crash", message, str(crash.exit_code)]
        spec = launch.process
        crashing = type(spec)(
            spec.id, argv, spec.env, spec.cwd, spec.log, spec.log_bytes, spec.cores
        )
        return Launch(crashing, launch.rewriter, launch.termination_log, launch.environment)


def _termination_message(container: Json, launch: Launch, *, failed: bool) -> str:
    with contextlib.suppress(OSError):
        with launch.termination_log.open("rb") as file:
            message = file.read(_MESSAGE_BYTES).decode(errors="replace")
        if message:
            return message
    policy = container.get("terminationMessagePolicy")
    if not failed or policy != "FallbackToLogsOnError":
        return ""
    with contextlib.suppress(OSError):
        with launch.process.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4 * _MESSAGE_FROM_LOG_BYTES))
            lines = file.read().decode(errors="replace").removesuffix("\n").split("\n")
        texts = [line.split(" ", 3)[-1] for line in lines[-_MESSAGE_FROM_LOG_LINES:]]
        return "\n".join(texts)[-_MESSAGE_FROM_LOG_BYTES:]
    return ""
