"""``pods/NAME/log``: which container, which part, and where it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime

from penstock_cluster.apiserver.content import parameters
from penstock_cluster.registry import Engine, LogQuery
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Faults, Json

_CENTURY = 100 * 365 * 86_400


def log_query(query: Mapping[str, str]) -> LogQuery:
    """What a query asks for; :class:`ApiError` 400 or 422 where it cannot be."""
    found = LogQuery(
        container=query.get("container", ""),
        follow=parameters.flag(query, "follow"),
        previous=parameters.flag(query, "previous"),
        tail_lines=parameters.number(query, "tailLines"),
        since_seconds=parameters.number(query, "sinceSeconds"),
        since_time=query.get("sinceTime", ""),
        timestamps=parameters.flag(query, "timestamps"),
        limit_bytes=parameters.number(query, "limitBytes"),
    )
    faults = Faults()
    if found.tail_lines is not None and found.tail_lines < 0:
        faults.invalid("tailLines", str(found.tail_lines), "must be greater than or equal to 0")
    if found.limit_bytes is not None and found.limit_bytes < 1:
        faults.invalid("limitBytes", str(found.limit_bytes), "must be greater than 0")
    if found.since_seconds is not None and found.since_seconds < 1:
        faults.invalid("sinceSeconds", str(found.since_seconds), "must be greater than 0")
    if faults:
        raise errors.invalid_options("PodLogOptions", faults.items)
    if found.since_time:
        try:
            datetime.fromisoformat(found.since_time)
        except ValueError:
            raise errors.bad_request(f'parsing time "{found.since_time}"') from None
    # Further back than a century is the beginning, also for who counts in seconds since year 1.
    since_seconds = None if found.since_seconds is None else min(found.since_seconds, _CENTURY)
    return replace(found, since_seconds=since_seconds)


async def open_log(engine: Engine, pod: Json, query: LogQuery) -> AsyncIterator[bytes] | None:
    """The log in pieces; ``None`` for a pod that no node has yet; :class:`ApiError` 400."""
    spec = pod.get("spec") or {}
    name = pod["metadata"]["name"]
    containers = [item["name"] for item in spec.get("containers") or ()]
    others = [item["name"] for item in spec.get("initContainers") or ()]
    wanted = query.container or (
        (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    )
    if not wanted:
        if len(containers) > 1:
            listing = " ".join(containers)
            shown = f" or one of the init containers: [{' '.join(others)}]" if others else ""
            raise errors.bad_request(
                f"a container name must be specified for pod {name}, choose one of: "
                f"[{listing}]{shown}"
            )
        wanted = containers[0]
    if wanted not in containers and wanted not in others:
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    if not spec.get("nodeName"):
        return None
    if engine.logs is None:
        raise errors.bad_request(
            f'container "{wanted}" in pod "{name}" is waiting to start: no kubelet runs it'
        )
    query = LogQuery(
        wanted,
        query.follow,
        query.previous,
        query.tail_lines,
        query.since_seconds,
        query.since_time,
        query.timestamps,
        query.limit_bytes,
    )
    return await _started(engine.logs.read(pod, query))


async def _started(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same stream, its first piece fetched: a refusal comes before the headers."""
    iterator = source.__aiter__()
    try:
        first = await anext(iterator)
    except StopAsyncIteration:
        first = b""

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in iterator:
            yield piece

    return pieces()
