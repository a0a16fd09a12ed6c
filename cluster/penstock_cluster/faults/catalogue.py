"""Every fault by name: what it does, to what, for how long.

All are coroutines with plain keyword arguments, so that the endpoint can call them by name. Pods
are chosen by ``namespace``, ``name`` and ``labels`` (all of those given must match); a fault on
running pods that finds none raises :class:`FaultError`, since a test that hits nothing proves
nothing. Faults of the API server concern HTTP clients, not the cluster's own parts.
"""

from __future__ import annotations

import asyncio
import signal as signals
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_cluster.faults.clock import SkewableClock
from penstock_cluster.faults.interception import ApiFaults, ApiRule, ApiTrouble, RequestChoice
from penstock_cluster.kubelet.container.disturbances import PodChoice, StartRule, StartTrouble
from penstock_cluster.kubelet.pod.container import ContainerRunner
from penstock_cluster.kubelet.pod.worker import PodWorker, Stop
from penstock_cluster.registry import ApiError, RequestFacts
from penstock_cluster.scheduler.binder import preempt

if TYPE_CHECKING:
    from penstock_cluster.kubelet.kubelet import Kubelet
    from penstock_cluster.registry import Engine

_WRITES = ("update", "patch")


class FaultError(Exception):
    """The fault cannot be carried out; the message says why."""


def _check_percent(percent: int | None) -> None:
    if percent is not None and not 1 <= percent <= 99:
        raise FaultError(f"percent: {percent}: must be 1 to 99, or null to undo")


class Faults:
    """Carries out faults on one cluster. Sets itself as the engine's interceptor."""

    def __init__(self, engine: Engine, kubelet: Kubelet, clock: SkewableClock) -> None:
        self._engine = engine
        self._kubelet = kubelet
        self._clock = clock
        self._api = engine.api("system:penstock:faults", manager="faults")
        self.api_faults = ApiFaults()
        engine.interceptor = self.api_faults

    # Containers

    async def kill_container(
        self, *, name: str, namespace: str = "default", container: str = ""
    ) -> int:
        """SIGKILL to every process of one container: exit code 137, reason Error."""
        return await self.signal_container(
            name=name, namespace=namespace, container=container, signal=int(signals.SIGKILL)
        )

    async def signal_container(
        self, *, name: str, namespace: str = "default", container: str = "", signal: int = 15
    ) -> int:
        """Send any signal to every process of a container."""
        runner = self._runner(namespace, name, container)
        assert runner.running is not None
        self._kubelet.runtime.signal(runner.running.id, signal)
        return runner.running.pid

    async def oom_kill_container(
        self, *, name: str, namespace: str = "default", container: str = ""
    ) -> int:
        """End a container as the kernel does when its memory is spent: 137, OOMKilled."""
        runner = self._runner(namespace, name, container)
        assert runner.running is not None
        self._kubelet.runtime.kill(runner.running.id, out_of_memory=True)
        return runner.running.pid

    async def freeze_container(
        self, *, name: str, namespace: str = "default", container: str = ""
    ) -> int:
        """SIGSTOP: alive for the kubelet, dead for everybody else."""
        return await self.signal_container(
            name=name, namespace=namespace, container=container, signal=int(signals.SIGSTOP)
        )

    async def thaw_container(
        self, *, name: str, namespace: str = "default", container: str = ""
    ) -> int:
        """SIGCONT: undo ``freeze_container``."""
        return await self.signal_container(
            name=name, namespace=namespace, container=container, signal=int(signals.SIGCONT)
        )

    async def slow_container(
        self, *, name: str, percent: int | None, namespace: str = "default", container: str = ""
    ) -> int:
        """A container runs at ``percent`` (1 to 99) of this machine's speed; null undoes it."""
        _check_percent(percent)
        runner = self._runner(namespace, name, container)
        assert runner.running is not None
        runner.slow(percent)
        return runner.running.pid

    async def fill_disk(
        self,
        *,
        name: str,
        namespace: str = "default",
        container: str = "",
        limit_bytes: int | None = 0,
    ) -> int:
        """Files of a running container cannot grow beyond ``limit_bytes``; null undoes it.

        Writes fail with EFBIG: without a file system of its own for each pod that is as near to
        ENOSPC as an ordinary user can come. The log is not touched.
        """
        runner = self._runner(namespace, name, container)
        assert runner.running is not None
        self._kubelet.runtime.set_largest_file(runner.running.id, limit_bytes)
        return runner.running.pid

    # Starts

    async def delay_start(
        self,
        *,
        seconds: float,
        namespace: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        times: int | None = None,
    ) -> None:
        """Containers start this much later than they could (a slow image pull)."""
        self._add_start_rule(
            StartTrouble.DELAY, PodChoice(namespace, name, labels or {}), times, seconds=seconds
        )

    async def fail_image_pull(
        self,
        *,
        namespace: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        message: str = "",
        seconds: float | None = None,
    ) -> None:
        """Containers wait with ErrImagePull and ImagePullBackOff, until cleared or ``seconds``."""
        self._add_start_rule(
            StartTrouble.IMAGE_PULL,
            PodChoice(namespace, name, labels or {}),
            None,
            lasts=seconds,
            message=message,
        )

    async def break_config(
        self,
        *,
        namespace: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        message: str = "",
        seconds: float | None = None,
    ) -> None:
        """Containers wait with CreateContainerConfigError, until cleared or ``seconds``."""
        self._add_start_rule(
            StartTrouble.CONFIG,
            PodChoice(namespace, name, labels or {}),
            None,
            lasts=seconds,
            message=message,
        )

    async def crash_at_start(
        self,
        *,
        namespace: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        times: int | None = 1,
        exit_code: int = 1,
        message: str = "",
    ) -> None:
        """The next ``times`` starts end at once with ``exit_code`` and a line in the log."""
        self._add_start_rule(
            StartTrouble.CRASH,
            PodChoice(namespace, name, labels or {}),
            times,
            exit_code=exit_code,
            message=message,
        )

    async def never_ready(
        self,
        *,
        namespace: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Containers run but are not ready, whatever their probes say."""
        self._add_start_rule(
            StartTrouble.NEVER_READY, PodChoice(namespace, name, labels or {}), None, lasts=seconds
        )

    def _add_start_rule(
        self,
        trouble: StartTrouble,
        choice: PodChoice,
        times: int | None,
        *,
        seconds: float | None = None,
        lasts: float | None = None,
        exit_code: int = 1,
        message: str = "",
    ) -> None:
        expires_at = None if lasts is None else time.monotonic() + lasts
        self._kubelet.disturbances.add(
            StartRule(trouble, choice, seconds, times, exit_code, message, expires_at)
        )

    # Pods

    async def evict_pod(
        self,
        *,
        name: str,
        namespace: str = "default",
        message: str = "The node was low on resource: memory.",
    ) -> None:
        """The kubelet evicts the pod under node pressure: Failed, reason Evicted."""
        worker = self._worker(namespace, name)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": message,
        }
        worker.stop(Stop(0, ("Failed", "Evicted", message), condition))

    async def preempt_pod(self, *, name: str, namespace: str = "default") -> None:
        """Remove the pod as kube-scheduler removes a victim: condition DisruptionTarget."""
        pod = await self._pod(namespace, name)
        await preempt(self._engine, namespace, name, pod["metadata"]["uid"])

    async def delete_pod(
        self, *, name: str, namespace: str = "default", grace_seconds: int | None = None
    ) -> None:
        """Somebody else deletes the pod."""
        pod = await self._pod(namespace, name)
        await self._api.delete(
            "pods",
            name,
            namespace,
            grace_period_seconds=grace_seconds,
            uid=pod["metadata"]["uid"],
        )

    async def partition_pod(
        self,
        *,
        name: str,
        namespace: str = "default",
        others: tuple[str, ...] | list[str] = (),
        api_server: bool = False,
        seconds: float | None = None,
    ) -> None:
        """New connections between the pod and others (all, or those named) go unanswered.

        ``api_server`` cuts the pod off from the API server too. Connections that stand are left
        alone: freeze the container for those. Lasts ``seconds``, or until ``heal_pod``. Python
        programs only.
        """
        worker = self._worker(namespace, name)
        peers = [self._worker(namespace, other) for other in others]
        blocked = [peer.record.pod_ip for peer in peers] or ["pods"]
        if api_server:
            blocked.append(worker.services.api_server[0])
        worker.blocklist.block(blocked)
        for other in peers or self._neighbours(worker):
            other.blocklist.block([worker.record.pod_ip])
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._heal, worker)

    async def relay_pods(self) -> None:
        """From now on new connections between pods can be delayed, see ``delay_pod``.

        They go by a relay, at some cost: for the whole life of this cluster.
        """
        await self._kubelet.services.relay.open()

    async def delay_pod(
        self,
        *,
        name: str,
        namespace: str = "default",
        delay_seconds: float,
        jitter_seconds: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        """What passes between the pod and others comes so much later, each way, in order.

        ``jitter_seconds``: as much more or less, anew for each piece. Of connections that were made
        since ``relay_pods``. Lasts ``seconds``, or until ``heal_pod``. Python programs only.
        """
        if delay_seconds < 0 or jitter_seconds < 0:
            raise FaultError("delay_seconds and jitter_seconds: must be at least 0")
        worker = self._worker(namespace, name)
        relay = self._kubelet.services.relay
        await relay.open()
        relay.delay(worker.record.pod_ip, delay_seconds, jitter_seconds)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, relay.restore, worker.record.pod_ip)

    async def heal_pod(self, *, name: str, namespace: str = "default") -> None:
        """End the partition of a pod, and its delays."""
        self._heal(self._worker(namespace, name))

    def _heal(self, worker: PodWorker) -> None:
        self._kubelet.services.relay.restore(worker.record.pod_ip)
        worker.blocklist.unblock()
        for other in self._neighbours(worker):
            other.blocklist.unblock([worker.record.pod_ip])

    async def lose_processes(self, *, name: str, namespace: str = "default") -> None:
        """The container runtime forgets the pod: 137, ContainerStatusUnknown."""
        worker = self._worker(namespace, name)
        for runner in worker.runners.values():
            if runner.running is not None:
                self._kubelet.runtime.lose(runner.running.id)

    # Nodes

    async def lose_node(self, *, name: str, processes_survive: bool = False) -> None:
        """The node goes silent: its processes end with it, or survive behind a partition."""
        self._node(name)
        await self._kubelet.lose_node(name, processes_survive=processes_survive)

    async def return_node(self, *, name: str) -> None:
        """The node is heard again; pods whose processes ended meanwhile are marked Failed."""
        self._node(name)
        await self._kubelet.return_node(name)

    async def remove_node(self, *, name: str) -> None:
        """The node and its Node object are gone for good."""
        self._node(name)
        await self._kubelet.remove_node(name)

    async def slow_node(self, *, name: str, percent: int | None) -> None:
        """All pods of a node run at ``percent`` (1 to 99) of this machine's speed; null undoes it.

        At 25 whatever computes takes four times as long, however far away its CPU limit is.
        """
        _check_percent(percent)
        self._node(name)
        self._kubelet.slow_node(name, percent)

    async def cordon_node(self, *, name: str, cordoned: bool = True) -> None:
        """No new pods on the node; false undoes it."""
        self._node(name)
        await self._api.patch("nodes", name, {"spec": {"unschedulable": cordoned or None}})

    # API server

    async def stall_api(
        self,
        *,
        seconds: float,
        verbs: tuple[str, ...] | list[str] = (),
        resource: str = "",
        user_agent: str = "",
    ) -> None:
        """Requests are taken and not answered for ``seconds``, then all at once."""
        choice = RequestChoice(tuple(verbs), resource, user_agent=user_agent)
        self._add_api_rule(ApiTrouble.STALL, choice, seconds=seconds)

    async def slow_api(
        self,
        *,
        delay_seconds: float,
        seconds: float | None = None,
        verbs: tuple[str, ...] | list[str] = (),
        resource: str = "",
        user_agent: str = "",
    ) -> None:
        """Every answer takes ``delay_seconds`` more."""
        choice = RequestChoice(tuple(verbs), resource, user_agent=user_agent)
        rule = self._add_api_rule(ApiTrouble.DELAY, choice, seconds=seconds)
        rule.seconds = delay_seconds

    async def fail_api(
        self,
        *,
        code: int = 500,
        rate: float = 1.0,
        times: int | None = None,
        seconds: float | None = None,
        verbs: tuple[str, ...] | list[str] = (),
        resource: str = "",
        namespace: str = "",
        name: str = "",
        user_agent: str = "",
    ) -> None:
        """Answer a share (``rate``) of requests with an error: 429, 500, 503, 504, 401."""
        if not 400 <= code <= 599:
            raise FaultError(f"code: {code}: must be 400 to 599")
        if not 0 < rate <= 1:
            raise FaultError(f"rate: {rate}: must be more than 0 and at most 1")
        choice = RequestChoice(tuple(verbs), resource, namespace, name, user_agent=user_agent)
        rule = self._add_api_rule(ApiTrouble.ERROR, choice, seconds=seconds, times=times)
        rule.rate, rule.code = rate, code

    async def conflict_writes(
        self,
        *,
        times: int = 1,
        resource: str = "",
        namespace: str = "",
        name: str = "",
        user_agent: str = "",
    ) -> None:
        """The next ``times`` updates and patches fail with 409 Conflict."""
        choice = RequestChoice(_WRITES, resource, namespace, name, user_agent=user_agent)
        self._add_api_rule(ApiTrouble.CONFLICT, choice, times=times)

    async def drop_watch_events(
        self,
        *,
        times: int | None = None,
        seconds: float | None = None,
        resource: str = "",
        user_agent: str = "",
    ) -> None:
        """Events of open watches are not sent: clients miss changes and are not told."""
        choice = RequestChoice(("watch",), resource, user_agent=user_agent)
        self._add_api_rule(ApiTrouble.DROP_EVENT, choice, times=times, seconds=seconds)

    async def close_watches(self, *, resource: str = "", user_agent: str = "") -> int:
        """End open watches, as an API server does at will; how many were open."""
        choice = RequestChoice((), resource, user_agent=user_agent)

        def matches(facts: RequestFacts) -> bool:
            return choice.matches(facts)

        return self._engine.close_watches(matches)

    async def expire_watches(
        self, *, times: int = 1, resource: str = "", user_agent: str = ""
    ) -> int:
        """Close watches and answer the next ``times`` with 410: clients must list again."""
        choice = RequestChoice(("watch",), resource, user_agent=user_agent)
        self._add_api_rule(ApiTrouble.EXPIRE, choice, times=times)
        return await self.close_watches(resource=resource, user_agent=user_agent)

    async def skew_clock(self, *, seconds: float) -> None:
        """Timestamps that the server sets are this far off; 0 undoes it."""
        self._clock.skew = timedelta(seconds=seconds)

    def _add_api_rule(
        self,
        trouble: ApiTrouble,
        choice: RequestChoice,
        *,
        seconds: float | None = None,
        times: int | None = None,
    ) -> ApiRule:
        expires_at = None if seconds is None else time.monotonic() + seconds
        return self.api_faults.add(ApiRule(trouble, choice, expires_at, times))

    async def clear(self) -> None:
        """End every fault that lasts: rules on starts and requests, skew, partitions, delays,
        slowness."""
        self.api_faults.clear()
        self._kubelet.disturbances.clear()
        self._clock.skew = timedelta()
        for name in self._kubelet.nodes:
            self._kubelet.slow_node(name, None)
        self._kubelet.services.relay.restore()
        for worker in self._kubelet.workers.values():
            worker.blocklist.unblock()

    # Looking up

    async def _pod(self, namespace: str, name: str) -> dict[str, dict[str, str]]:
        try:
            return await self._api.get("pods", name, namespace)
        except ApiError as error:
            raise FaultError(error.message) from None

    def _worker(self, namespace: str, name: str) -> PodWorker:
        worker = self._kubelet.worker_of(namespace, name)
        if worker is None:
            raise FaultError(f"pod {namespace}/{name} does not run on a node of this cluster")
        return worker

    def _neighbours(self, worker: PodWorker) -> list[PodWorker]:
        return [other for other in self._kubelet.workers.values() if other is not worker]

    def _runner(self, namespace: str, name: str, container: str) -> ContainerRunner:
        worker = self._worker(namespace, name)
        chosen = container or worker.pod["spec"]["containers"][0]["name"]
        runner = worker.runners.get(chosen)
        if runner is None or runner.running is None:
            raise FaultError(f"container {chosen!r} of pod {namespace}/{name} is not running")
        return runner

    def _node(self, name: str) -> None:
        if name not in self._kubelet.nodes:
            known = ", ".join(sorted(self._kubelet.nodes))
            raise FaultError(f"no node {name!r} in this cluster; there are: {known}")
