"""Lists: selection, pages, and which state of the store they show."""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_right
from dataclasses import dataclass

import orjson

from penstock_cluster.apiserver.content.parameters import ListOptions
from penstock_cluster.registry import Engine
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import ApiError
from penstock_cluster.registry.objects.field_selectors import matcher
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Key, Version, version_number

#: How long a list from the future is waited for.
_FUTURE_SECONDS = 3.0
_TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    versions: list[Version]
    resource_version: int
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    number: int  # -1: whatever there is now
    start: Key


def _write_token(number: int, last: Key) -> str:
    document = {"v": "meta.k8s.io/v1", "rv": number, "start": f"{last[0]}/{last[1]}\0"}
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def _read_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        ) from None
    try:
        document = orjson.loads(raw)
        namespace, _, name = document["start"].rstrip("\0").partition("/")
        return _Token(int(document["rv"]), (namespace, name))
    except orjson.JSONDecodeError:
        shown = raw.decode("latin-1")[:1]
        raise errors.bad_request(
            f"invalid continue token: continue key is not valid: invalid character '{shown}' "
            "looking for beginning of value"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: server should be able to read it"
        ) from None


async def read_page(
    engine: Engine, resource: Resource, namespace: str, options: ListOptions
) -> Page:
    """The page that ``options`` ask for; :class:`ApiError` 400, 410 or 504."""
    match = matcher(resource, options.label_selector, options.field_selector)
    store = engine.store
    wanted = version_number(options.resource_version, listing=True)
    token: _Token | None = None
    if options.continue_token:
        if options.resource_version and options.resource_version != "0":
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        token = _read_token(options.continue_token)
    if wanted > store.number:
        await asyncio.sleep(_FUTURE_SECONDS)
        if wanted > store.number:
            raise errors.version_too_large(wanted, store.number)
    limit = 0 if options.resource_version == "0" else options.limit
    exact = options.match == "Exact" or bool(wanted and limit and not options.match)
    number = store.number
    if token is not None and token.number > 0:
        number = token.number
    elif exact:
        number = wanted
    versions = _state(engine, resource, namespace, number, token)
    if token is not None:
        keys = [version.key for version in versions]
        versions = versions[bisect_right(keys, token.start) :]
    if not limit:
        found = [version for version in versions if match is None or match(version)]
        return Page(found, number)
    chosen: list[Version] = []
    for index, version in enumerate(versions):
        if match is not None and not match(version):
            continue
        if len(chosen) == limit:
            remaining = len(versions) - index if match is None else None
            return Page(chosen, number, _write_token(number, chosen[-1].key), remaining)
        chosen.append(version)
    return Page(chosen, number)


def _state(
    engine: Engine, resource: Resource, namespace: str, number: int, token: _Token | None
) -> list[Version]:
    """The objects at ``number``, in order."""
    table = engine.store.table(resource.storage)
    if number == engine.store.number or (table.changes and table.changes[-1].number <= number):
        return list(table.in_namespace(namespace))
    try:
        state = table.as_of(number)
    except ApiError:
        if token is None:
            raise
        raise errors.expired(_TOKEN_EXPIRED, continue_token=_write_token(-1, token.start)) from None
    return [state[key] for key in sorted(state) if not namespace or key[0] == namespace]
