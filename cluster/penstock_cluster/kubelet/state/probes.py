"""Startup, readiness and liveness probes: the counting, which is pure, and the asking."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Execute = Callable[[Sequence[str], float], Awaitable[tuple[int, str]]]
"""Runs a command in the container; gives its exit code and output within the time-out."""

_LONGEST_ANSWER_BYTES = 10 * 1024


@dataclass(slots=True)
class ProbeCounter:
    """Turns single results into a verdict, by the probe's thresholds."""

    failure_threshold: int
    success_threshold: int
    verdict: bool
    _last: bool | None = None
    _streak: int = 0

    def take(self, success: bool) -> bool:
        """Count one result; whether the verdict changed."""
        self._streak = self._streak + 1 if success == self._last else 1
        self._last = success
        needed = self.success_threshold if success else self.failure_threshold
        if success == self.verdict or self._streak < needed:
            return False
        self.verdict = success
        return True


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container, with the API's defaults filled in."""

    handler: Json
    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    failure_threshold: int
    success_threshold: int
    grace_seconds: int | None

    @classmethod
    def of(cls, spec: Json) -> Probe:
        return cls(
            handler=spec,
            initial_delay_seconds=spec.get("initialDelaySeconds") or 0,
            period_seconds=spec.get("periodSeconds") or 10,
            timeout_seconds=spec.get("timeoutSeconds") or 1,
            failure_threshold=spec.get("failureThreshold") or 3,
            success_threshold=spec.get("successThreshold") or 1,
            grace_seconds=spec.get("terminationGracePeriodSeconds"),
        )

    def counter(self, initially: bool) -> ProbeCounter:
        return ProbeCounter(self.failure_threshold, self.success_threshold, initially)


async def ask(
    handler: Json, container: Json, address: str, execute: Execute, timeout_seconds: float
) -> tuple[bool, str]:
    """Carry out one probe or hook; whether it succeeded, and what there is to say about it."""
    try:
        async with asyncio.timeout(timeout_seconds + 1.0):
            if action := handler.get("exec"):
                code, output = await execute(action.get("command") or (), timeout_seconds)
                return code == 0, output.strip()
        async with asyncio.timeout(timeout_seconds):
            if action := handler.get("httpGet"):
                host = action.get("host") or address
                return await _get(action, host, _port(action["port"], container))
            if action := handler.get("tcpSocket"):
                host, port = action.get("host") or address, _port(action["port"], container)
                _, writer = await asyncio.open_connection(host, port)
                writer.close()
                return True, ""
    except TimeoutError:
        return False, f"command or request timed out after {timeout_seconds:g}s"
    except (OSError, ValueError) as error:
        return False, str(error)
    return False, f"handler {sorted(handler)} is not available on the embedded cluster"


def _port(port: int | str, container: Json) -> int:
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    for each in container.get("ports") or ():
        if each.get("name") == port:
            return int(each["containerPort"])
    raise ValueError(f"container {container['name']!r} has no port named {port!r}")


async def _get(action: Json, host: str, port: int) -> tuple[bool, str]:
    context = None
    if action.get("scheme") == "HTTPS":
        # As the kubelet: a probe does not verify certificates.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*"}
        headers |= {each["name"]: each["value"] for each in action.get("httpHeaders") or ()}
        lines = [f"GET {action.get('path') or '/'} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        answer = await reader.readline()
        parts = answer.decode("latin-1").split(" ", 2)
        if len(parts) < 2 or not parts[1].isdecimal():
            return False, "malformed HTTP response"
        await reader.read(_LONGEST_ANSWER_BYTES)
        code = int(parts[1])
        return 200 <= code < 400, f"HTTP probe failed with statuscode: {code}"
    finally:
        writer.close()
