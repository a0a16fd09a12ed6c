"""Whatever JSON is sent, the engine stores it or refuses it: nothing else may come out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.tests.registry.samples import CLUSTER_SCOPED, MANY, WIDGETS
from penstock_cluster.registry import Api, ApiError, Engine, thaw

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(["", "a", "A b", "x" * 300, "-1", "1Gi", "2001-01-01T00:00:00Z", "é"]),
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["name", "key", "type", "a", "$patch", "", "op", "path", "spec"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += _paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += _paths(item, (*path, index))
    return found


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A valid object with one or two places replaced by arbitrary JSON."""
    resource = draw(st.sampled_from(sorted(MANY)))
    document = thaw(MANY[resource])
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(_paths(document)))
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = draw(_JSON)
    return resource, document


@contextlib.asynccontextmanager
async def _engine() -> AsyncIterator[Api]:
    async with Engine() as engine:
        api = engine.api()
        await api.create("customresourcedefinitions.apiextensions.k8s.io", WIDGETS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        yield api


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(broken(), _JSON, st.sampled_from(["merge", "strategic", "json", "apply"])),
        min_size=1,
        max_size=12,
    )
)
def test_every_document_is_stored_or_refused(cases: list[tuple[Any, Any, Any]]) -> None:
    async def scenario() -> None:
        async with _engine() as api:
            for (resource, document), body, kind in cases:
                await _send_everywhere(api, resource, document, body, kind)

    asyncio.run(scenario())


async def _send_everywhere(
    api: Api, resource: str, document: dict[str, Any], body: Any, kind: Any
) -> None:
    place = "" if resource in CLUSTER_SCOPED else "default"
    name = MANY[resource]["metadata"]["name"]
    patched = {"status": body}
    attempts = [
        lambda: api.create(resource, thaw(document), place),
        lambda: api.create(resource, thaw(MANY[resource]), place),
        lambda: api.patch(resource, name, document, place, kind="merge"),
        lambda: api.patch(resource, name, body, place, kind=kind),
        lambda: api.patch(resource, name, patched, place, subresource="status"),
        lambda: api.patch(resource, name, {"spec": body}, place, subresource="scale"),
        lambda: api.patch(resource, name, {"spec": body}, place, subresource="resize"),
        lambda: api.create(resource, patched, place, name=name, subresource="eviction"),
        lambda: api.create(resource, patched, place, name=name, subresource="binding"),
    ]
    for attempt in attempts:
        with contextlib.suppress(ApiError):
            await attempt()
    with contextlib.suppress(ApiError):
        found = thaw(await api.get(resource, name, place))
        found["spec"] = body
        await api.update(resource, found)
    listed = await api.list(resource, place or None)
    orjson.dumps(listed.items)
    with contextlib.suppress(ApiError):
        await api.delete(resource, name, place)
    await asyncio.sleep(0)
