"""From what a client sends to the form that is stored, and to the place where it is."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model import errors, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import MISSING, compact
from penstock_cluster.registry.model.errors import ApiError, FieldFault, Json
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version


def decode(
    resource: Resource, document: Json, call: Call, *, patching: Version | None = None
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


def place(resource: Resource, namespace: str, name: str, metadata: Json) -> None:
    """Settle name and namespace; 400 when the body and the path differ."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif metadata.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
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


def given_owners(listed: Any) -> Entries | None:
    """What a client's ``managedFields`` mean: ``None`` unchanged, ``()`` cleared."""
    if listed is MISSING or not listed or type(listed) is not list:
        return None
    if len(listed) == 1 and not listed[0]:
        return ()
    if not all(type(item) is dict for item in listed):
        return None
    return managed.from_external(listed)


def _bad_patch(document: Json, entries: Entries, why: str) -> ApiError:
    """A patch whose result cannot be decoded: a 422 that shows the whole result."""
    if entries and type(document.get("metadata")) is dict:
        listed = managed.plain(entries)
        document = {**document, "metadata": {**document["metadata"], "managedFields": listed}}
    shown = compact(compact(document))
    fault = FieldFault("patch", "FieldValueInvalid", f"Invalid value: {shown}: {why}")
    return errors.invalid(errors.ResourceName("", "", ""), "", [fault])
