"""Patching objects: JSON, merge and strategic patches, and server-side apply."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.merging import apply as server_side_apply
from penstock_cluster.registry.merging import managed, patch, strategic
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model import errors, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import MISSING
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.decoding import decode, given_owners, place
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.operations.creation import Creation
from penstock_cluster.registry.operations.writing import Writer


class Patching:
    """Patches objects with a :class:`Writer`; an apply may create them."""

    def __init__(self, writer: Writer, creation: Creation) -> None:
        self._writer = writer
        self._creation = creation

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: str,
        body: Any,
        call: Call,
        subresource: str = "",
        *,
        force: bool = False,
    ) -> tuple[Version, bool]:
        """Patch an object; the flag says whether an apply created it."""
        current = self._writer.find(resource, namespace, name)
        if kind == "apply":
            return self._apply(resource, namespace, name, current, body, call, subresource, force)
        if current is None:
            raise errors.not_found(resource.name, name)
        base = self._writer.form(resource, current)
        if current.managed and _mentions_owners(body):
            base = {
                **base,
                "metadata": {**base["metadata"], "managedFields": managed.plain(current.managed)},
            }
        result = patched(resource.shape, base, kind, body)
        new, listed = decode(resource, result, call, patching=current)
        place(resource, namespace, name, new["metadata"])
        self._writer.check_version(resource, current, new["metadata"], required=False)
        owners = given_owners(listed) if listed is not MISSING else None
        return self._writer.change(resource, current, new, call, subresource, entries=owners), False

    def _apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        current: Version | None,
        body: Any,
        call: Call,
        subresource: str,
        force: bool,
    ) -> tuple[Version, bool]:
        config = _applied_config(resource, namespace, name, body)
        if current is None:
            if subresource:
                raise errors.not_found(resource.name, name)
            if config["metadata"].get("uid"):
                raise errors.conflict(resource.name, name)
            live: Json = {"apiVersion": config["apiVersion"], "kind": config["kind"]}
            live["metadata"] = {}
            entries: Entries = ()
        else:
            version = config["metadata"].get("resourceVersion")
            if version and version != str(current.number):
                raise errors.conflict(resource.name, name)
            live, entries = self._writer.form(resource, current), current.managed
        merged, applied = server_side_apply.apply(
            resource.shape,
            live,
            entries,
            config,
            manager=call.manager,
            api_version=resource.api_version,
            subresource=subresource,
            force=force,
            now=call.now,
            reset=resource.strategy.reset_fields(subresource),
        )
        new, _ = decode(resource, merged, call, patching=current)
        place(resource, namespace, name, new["metadata"])
        if current is None:
            return self._creation.create_decoded(resource, namespace, new, call, applied), True
        self._writer.check_version(resource, current, new["metadata"], required=False)
        return self._writer.change(
            resource, current, new, call, subresource, applied=applied
        ), False


def patched(shape: Any, base: Json, kind: str, body: Any) -> Json:
    """A document with a patch of a kind applied to it; :class:`ApiError` for a bad patch."""
    if kind == "json":
        if type(body) is not list:
            raise errors.bad_request(
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]handlers.jsonPatchOp"
            )
        return patch.json_patch(base, body)
    if type(body) is not dict:
        form = "array" if type(body) is list else typed.json_name(body)
        raise errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {form} into Go value of type "
            "map[string]interface {}"
        )
    if kind == "strategic":
        return strategic.strategic_merge(shape, base, body)
    # A merge of two objects is an object.
    return patch.merge(base, body)  # type: ignore[no-any-return]


def _applied_config(resource: Resource, namespace: str, name: str, body: Any) -> Json:
    if type(body) is not dict:
        raise errors.bad_request("error decoding YAML: the applied configuration is no map")
    api_version, kind = body.get("apiVersion") or "", body.get("kind") or ""
    if api_version != resource.api_version or kind != resource.kind:
        if not api_version and not kind:
            raise errors.bad_request("invalid object type: /, Kind=")
        raise errors.bad_request(f"invalid object type: {api_version}, Kind={kind}")
    metadata = body.get("metadata") or {}
    if type(metadata) is not dict:
        raise errors.bad_request("metadata is no map")
    if metadata.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if metadata.get("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if resource.namespaced and metadata.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    config = {**body, "metadata": {**metadata, "name": name}}
    label = f"/{name}; {resource.api_version}, Kind={resource.kind}"
    content = {key: item for key, item in config.items() if key not in ("apiVersion", "kind")}
    if resource.custom:
        content.pop("metadata")
    server_side_apply.check_typed(resource.shape, content, label=label)
    return config


def _mentions_owners(body: Any) -> bool:
    """Whether a patch may touch ``metadata.managedFields``."""
    if type(body) is dict:
        metadata = body.get("metadata")
        return type(metadata) is dict and "managedFields" in metadata
    if type(body) is list:
        return any(
            type(item) is dict and "managedFields" in f"{item.get('path')}{item.get('from')}"
            for item in body
        )
    return False
