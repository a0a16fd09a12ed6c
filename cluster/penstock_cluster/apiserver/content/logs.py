"""``pods/NAME/log``: which container, which part, and where it comes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from penstock_cluster.apiserver.content import parameters
from penstock_cluster.registry import Engine, LogQuery
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json


def log_query(query: Mapping[str, str]) -> LogQuery:
    return LogQuery(
        container=query.get("container", ""),
        follow=parameters.flag(query, "follow"),
        previous=parameters.flag(query, "previous"),
        tail_lines=parameters.number(query, "tailLines"),
        since_seconds=parameters.number(query, "sinceSeconds"),
        since_time=query.get("sinceTime", ""),
        timestamps=parameters.flag(query, "timestamps"),
        limit_bytes=parameters.number(query, "limitBytes"),
    )


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
