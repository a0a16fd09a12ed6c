"""Create, read, change and delete: one path for every kind and every caller.

HTTP and the in-process :class:`~penstock_cluster.registry.api.Api` both come here, after
authentication and authorisation. A change goes through decoding, what the path may write,
defaults, checks, policies, ownership of fields, and then to the store in one piece; a change that
changes nothing is not written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock_cluster.registry import apply as server_side_apply
from penstock_cluster.registry import errors, managed, names, objectmeta, patch, strategic, typed
from penstock_cluster.registry.call import Call
from penstock_cluster.registry.deletion import Deleted, DeleteOptions, Deletion
from penstock_cluster.registry.documents import MISSING, compact, dumps
from penstock_cluster.registry.errors import ApiError, Faults, FieldFault, Json
from penstock_cluster.registry.kinds import Registry
from penstock_cluster.registry.managed import Entries
from penstock_cluster.registry.resource import Resource
from penstock_cluster.registry.sharing import identical
from penstock_cluster.registry.store import Key, Store, Version

_NAME_ATTEMPTS = 8
_GRPC_LIMIT_BYTES = 2 * 2**20
_REQUEST_LIMIT_BYTES = 3 * 2**19


class Admission(Protocol):
    """Looks at a request after all checks, before it is stored; raises :class:`ApiError`."""

    def __call__(
        self, resource: Resource, verb: str, subresource: str, new: Json | None,
        old: Json | None, call: Call,
    ) -> None: ...  # fmt: skip


class Operations:
    """All operations on stored objects. Synchronous: one call is one atomic step."""

    def __init__(self, store: Store, registry: Registry, now: Callable[[], str]) -> None:
        self.store = store
        self.registry = registry
        self.now = now
        self.admission: list[Admission] = []
        #: Kinds whose deletion is a process of its own, by storage name.
        self.deletion_hooks: dict[str, Callable[[Json, Call], Json]] = {}
        self._deletion = Deletion(self)

    # Reading

    def get(self, resource: Resource, namespace: str, name: str) -> Version:
        version = self.store.table(resource.storage).items.get((namespace, name))
        if version is None:
            raise errors.not_found(resource.name, name)
        return version

    def form(self, resource: Resource, version: Version) -> Json:
        """A stored object in the form of ``resource``, without managed fields."""
        return version.object if resource.view is None else resource.view(version)

    # Creating

    def create(
        self, resource: Resource, namespace: str, document: Json, call: Call, name: str = ""
    ) -> Version:
        """Create an object; ``name`` is that of the path, when it has one."""
        if resource.terminating:
            given = (document.get("metadata") or {}).get("name", "") if document else ""
            raise errors.forbidden(
                resource.name, str(given),
                "create not allowed while custom resource definition is terminating",
            )  # fmt: skip
        new, listed = self._decode(resource, document, call)
        metadata = new["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.plain_internal(
                "resourceVersion should not be set on objects to be created"
            )
        self._place(resource, namespace, name, metadata)
        return self._create(resource, namespace, new, call, _given(listed))

    def _place(self, resource: Resource, namespace: str, name: str, metadata: Json) -> None:
        """Settle name and namespace; 400 when the body and the path differ."""
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.get("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        else:
            metadata["namespace"] = namespace
        if name:
            given = metadata.get("name") or name
            if given != name:
                raise errors.bad_request(
                    f"the name of the object ({given}) does not match the name on the URL ({name})"
                )
            metadata["name"] = name

    def _create(
        self, resource: Resource, namespace: str, new: Json, call: Call, entries: Entries | None
    ) -> Version:
        strategy = resource.strategy
        metadata = objectmeta.for_create(new["metadata"])
        new["metadata"] = metadata
        prefix = metadata.get("generateName")
        generated = bool(prefix) and not metadata.get("name")
        table = self.store.table(resource.storage)
        if generated and prefix:
            for _ in range(_NAME_ATTEMPTS):
                metadata["name"] = names.generated(prefix)
                if (namespace, metadata["name"]) not in table.items:
                    break
        if resource.namespaced:
            self._check_namespace(resource, namespace, metadata.get("name", ""))
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = call.now
        if strategy.counts_generation:
            metadata["generation"] = 1
        strategy.default(new)
        if entries is None:
            # Before admission: nobody owns what it adds.
            entries = managed.after_update(
                (), resource.shape, {"metadata": {}}, _without(new, strategy.reset_fields("")),
                manager=call.manager, api_version=resource.api_version, subresource="",
                now=call.now,
            )  # fmt: skip
        strategy.admit_create(new, namespace, call, self.store)
        strategy.prepare_create(new, call, self.store)
        faults = Faults()
        strategy.validate_create(new, faults, call, self.store)
        name = metadata.get("name", "")
        if faults:
            raise errors.invalid(resource.fault_name, name, faults.items)
        for admit in self.admission:
            admit(resource, "CREATE", "", new, None, call)
        existing = table.items.get((namespace, name))
        if existing is not None:
            if generated:
                raise errors.generated_name_taken(resource.name, name)
            deleting = "deletionTimestamp" in existing.object["metadata"]
            raise errors.already_exists(resource.name, name, being_deleted=deleting)
        return self._commit(resource, (namespace, name), new, entries, call)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self.store.table("namespaces").items.get(("", namespace))
        if found is None:
            raise errors.not_found(errors.ResourceName("", "namespaces", "Namespace"), namespace)
        if "deletionTimestamp" in found.object["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            raise errors.forbidden(resource.name, name, why, [cause])

    # Changing

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        document: Json,
        call: Call,
        subresource: str = "",
    ) -> tuple[Version, bool]:
        """Replace an object (PUT); the flag says whether it was created."""
        new, listed = self._decode(resource, document, call)
        metadata = new["metadata"]
        self._place(resource, namespace, name, metadata)
        current = self.store.table(resource.storage).items.get((namespace, name))
        if current is None:
            if subresource or not resource.strategy.creates_on_update:
                raise errors.not_found(resource.name, name)
            return self._create(resource, namespace, new, call, None), True
        self._check_version(resource, current, metadata, required=not subresource)
        return self._change(resource, current, new, _given(listed), call, subresource), False

    def _check_version(
        self, resource: Resource, current: Version, metadata: Json, *, required: bool
    ) -> None:
        name = current.key[1]
        given = metadata.get("resourceVersion")
        if given:
            if given != str(current.number) and given != "0":
                raise errors.conflict(resource.name, name)
        elif required and resource.strategy.requires_version:
            fault = FieldFault(
                "metadata.resourceVersion", "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )  # fmt: skip
            raise errors.invalid(resource.name, name, [fault], plural=True)
        uid = metadata.get("uid")
        if uid and uid != current.uid:
            key = storage_key(resource, current.key)
            why = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {current.uid}"
            )
            raise errors.conflict(resource.name, name, why)

    def _change(
        self,
        resource: Resource,
        current: Version,
        new: Json,
        entries: Entries | None,
        call: Call,
        subresource: str,
        applied: Entries | None = None,
    ) -> Version:
        """Store ``new`` in place of ``current``, if it is allowed and differs.

        ``entries``: managed fields that the client sent; ``applied``: those an apply worked out.
        """
        strategy = resource.strategy
        old = self.stored_form(resource, current)
        strategy.prepare_update(new, old, subresource, call)
        new["metadata"] = metadata = objectmeta.for_update(new["metadata"], old["metadata"])
        if strategy.counts_generation and strategy.desired_changed(new, old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        faults = Faults()
        strategy.validate_update(new, old, subresource, faults, self.store)
        if faults:
            raise errors.invalid(resource.fault_name, current.key[1], faults.items)
        for admit in self.admission:
            admit(resource, "UPDATE", subresource, new, old, call)
        if applied is not None:
            owners = applied
        elif entries == ():
            owners = ()
        else:
            owners = managed.after_update(
                current.managed if entries is None else entries, resource.shape, old, new,
                manager=call.manager, api_version=resource.api_version, subresource=subresource,
                now=call.now,
            )  # fmt: skip
        return self.settle(resource, current, new, owners, call)

    def change(
        self, resource: Resource, current: Version, new: Json, call: Call, subresource: str
    ) -> Version:
        """Replace ``current`` by ``new`` on behalf of a path that worked ``new`` out itself."""
        return self._change(resource, current, new, None, call, subresource)

    def settle(
        self, resource: Resource, current: Version, new: Json, entries: Entries, call: Call
    ) -> Version:
        """Store a changed object, or remove it when the last thing that held it is gone."""
        if entries == current.managed and identical(new, self.stored_form(resource, current)):
            return current
        metadata = new["metadata"]
        if metadata.get("finalizers") == []:
            del metadata["finalizers"]
        if self._is_finished(resource, metadata, new):
            if not call.dry_run:
                self.store.remove(self.store.table(resource.storage), current.key)
            return Version(current.key, 0, new, entries)
        return self._commit(resource, current.key, new, entries, call)

    def stored_form(self, resource: Resource, current: Version) -> Json:
        """A stored object in the form that its strategy compares and writes."""
        return current.object if resource.stored_elsewhere else self.form(resource, current)

    def _is_finished(self, resource: Resource, metadata: Json, document: Json) -> bool:
        """Whether the last thing that held a deleted object is gone."""
        if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
            return False
        if resource.storage == "namespaces":
            return not (document.get("spec") or {}).get("finalizers")
        return not metadata.get("deletionGracePeriodSeconds")

    def _commit(
        self, resource: Resource, key: Key, document: Json, entries: Entries, call: Call
    ) -> Version:
        if call.dry_run:
            return Version(key, 0, document, entries)
        if call.size > _REQUEST_LIMIT_BYTES:
            _check_size(Version(key, 0, document, entries))
        version = self.store.put(self.store.table(resource.storage), key, document, entries)
        resource.strategy.after_write(document)
        return version

    # Patching

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
        current = self.store.table(resource.storage).items.get((namespace, name))
        if kind == "apply":
            return self._apply(resource, namespace, name, current, body, call, subresource, force)
        if current is None:
            raise errors.not_found(resource.name, name)
        base = self.form(resource, current)
        if current.managed and _mentions_owners(body):
            base = {
                **base,
                "metadata": {**base["metadata"], "managedFields": managed.plain(current.managed)},
            }
        patched = self.patched(resource.shape, base, kind, body)
        new, listed = self._decode(resource, patched, call, patching=current)
        self._place(resource, namespace, name, new["metadata"])
        self._check_version(resource, current, new["metadata"], required=False)
        owners = _given(listed) if listed is not MISSING else None
        return self._change(resource, current, new, owners, call, subresource), False

    @staticmethod
    def patched(shape: Any, base: Json, kind: str, body: Any) -> Json:
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
        return patch.merge(base, body)  # type: ignore[no-any-return]

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
        config = self._applied_config(resource, namespace, name, body)
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
            live, entries = self.form(resource, current), current.managed
        merged, applied = server_side_apply.apply(
            resource.shape, live, entries, config, manager=call.manager,
            api_version=resource.api_version, subresource=subresource, force=force,
            now=call.now, reset=resource.strategy.reset_fields(subresource),
        )  # fmt: skip
        new, _ = self._decode(resource, merged, call, patching=current)
        self._place(resource, namespace, name, new["metadata"])
        if current is None:
            return self._create(resource, namespace, new, call, applied), True
        self._check_version(resource, current, new["metadata"], required=False)
        return self._change(resource, current, new, None, call, subresource, applied), False

    def _applied_config(self, resource: Resource, namespace: str, name: str, body: Any) -> Json:
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
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        config = {**body, "metadata": {**metadata, "name": name}}
        label = f"/{name}; {resource.api_version}, Kind={resource.kind}"
        content = {key: item for key, item in config.items() if key not in ("apiVersion", "kind")}
        if resource.custom:
            content.pop("metadata")
        server_side_apply.check_typed(resource.shape, content, label=label)
        return config

    def _decode(
        self, resource: Resource, document: Json, call: Call, *, patching: Version | None = None
    ) -> tuple[Json, Any]:
        """The document in stored form, and its ``managedFields`` (``MISSING``: it has none)."""
        listed: Any = MISSING
        metadata = document.get("metadata")
        if type(metadata) is dict and "managedFields" in metadata:
            listed = metadata["managedFields"]
            document = {
                **document,
                "metadata": {key: item for key, item in metadata.items() if key != "managedFields"},
            }
        try:
            new, unknown = resource.strategy.decode(resource, document)
        except typed.DecodeError as error:
            if patching is not None:
                raise _bad_patch(document, patching.managed, str(error)) from None
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                f"{resource.kind}: {error}"
            ) from None
        except ApiError as error:
            call.warnings.extend(f'unknown field "{path}"' for path in error.unknown)
            raise
        if unknown:
            listing = [f'unknown field "{path}"' for path in unknown]
            if call.field_validation == "Strict":
                text = "strict decoding error: " + ", ".join(listing)
                if patching is not None:
                    raise _bad_patch(document, patching.managed, text)
                raise errors.bad_request(
                    f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                    f"{resource.kind}: {text}"
                )
            if call.field_validation == "Warn":
                call.warnings.extend(listing)
        return new, listed

    # Deleting

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, call: Call
    ) -> Deleted:
        return self._deletion.delete(resource, namespace, name, options, call)

    def delete_collection(
        self, resource: Resource, versions: Iterable[Version], options: DeleteOptions, call: Call
    ) -> list[Version]:
        """Delete each of ``versions``; they are the answer, as they were before."""
        return self._deletion.delete_collection(resource, versions, options, call)


def _given(listed: Any) -> Entries | None:
    """What a client's ``managedFields`` mean: ``None`` unchanged, ``()`` cleared."""
    if listed is MISSING or not listed or type(listed) is not list:
        return None
    if len(listed) == 1 and not listed[0]:
        return ()
    if not all(type(item) is dict for item in listed):
        return None
    return managed.from_external(listed)


def _without(document: Json, fields: tuple[str, ...]) -> Json:
    return {key: item for key, item in document.items() if key not in fields}


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


def _bad_patch(document: Json, entries: Entries, why: str) -> ApiError:
    """A patch whose result cannot be decoded: a 422 that shows the whole result."""
    if entries and type(document.get("metadata")) is dict:
        listed = managed.plain(entries)
        document = {**document, "metadata": {**document["metadata"], "managedFields": listed}}
    shown = compact(compact(document))
    fault = FieldFault("patch", "FieldValueInvalid", f"Invalid value: {shown}: {why}")
    return errors.invalid(errors.ResourceName("", "", ""), "", [fault])


def _check_size(version: Version) -> None:
    """What etcd and its client refuse to take."""
    size = len(dumps(version.external()))
    if size > _GRPC_LIMIT_BYTES:
        raise errors.plain_internal(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({size} vs. {_GRPC_LIMIT_BYTES})"
        )
    if size > _REQUEST_LIMIT_BYTES:
        raise errors.plain_internal("etcdserver: request is too large")


def storage_key(resource: Resource, key: Key) -> str:
    """The key that error messages of the store show."""
    group = f"{resource.group}/" if resource.group else ""
    place = f"{key[0]}/" if key[0] else ""
    return f"/registry/{group}{resource.plural}/{place}{key[1]}"
