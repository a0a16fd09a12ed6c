"""Query parameters and option objects, checked as the real server checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.documents import compact
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.operations.deletion import DeleteOptions, Preconditions

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_INT64 = 2**63
_TRUE = ("1", "true", "True", "t", "T", "TRUE")


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in _TRUE


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None or text == "":
        return None
    try:
        value = int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not -_INT64 <= value < _INT64:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


@dataclass(frozen=True, slots=True)
class WriteOptions:
    dry_run: bool
    manager: str
    field_validation: str
    force: bool


def write_options(
    query: Mapping[str, str], user_agent: str, kind: str, *, apply: bool = False
) -> WriteOptions:
    """Options of a create, update or patch; ``kind`` is e.g. CreateOptions."""
    faults = Faults()
    dry_run = _dry_run([query["dryRun"]] if query.get("dryRun") else [], faults)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        faults.unsupported("fieldValidation", compact(validation), _VALIDATIONS)
    manager = query.get("fieldManager", "")
    if len(manager) > 128:
        faults.add("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes")
    force = flag(query, "force")
    if kind == "PatchOptions":
        if apply and not manager:
            faults.required("fieldManager", "is required for apply patch")
        if not apply and "force" in query:
            faults.forbidden("force", "may not be specified for non-apply patch")
    if faults:
        raise errors.invalid_options(kind, faults.items)
    if not manager:
        manager = user_agent.partition("/")[0][:128]
    return WriteOptions(dry_run, manager, validation or "Warn", force)


def _dry_run(values: list[Any], faults: Faults) -> bool:
    for value in values:
        if value != "All":
            faults.unsupported("dryRun", compact(values), ("All",))
            break
    return bool(values)


def delete_options(query: Mapping[str, str], body: Json | None) -> tuple[DeleteOptions, bool]:
    """Options of a deletion, from the body or the query; the flag is that of a dry run."""
    given: Json = dict(body or {})
    kind = given.get("kind")
    if kind not in (None, "", "DeleteOptions"):
        version = given.get("apiVersion") or "v1"
        raise errors.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"'
        )
    if not given:
        if "gracePeriodSeconds" in query:
            given["gracePeriodSeconds"] = number(query, "gracePeriodSeconds")
        if query.get("propagationPolicy"):
            given["propagationPolicy"] = query["propagationPolicy"]
        if "orphanDependents" in query:
            given["orphanDependents"] = flag(query, "orphanDependents")
    if query.get("dryRun") and "dryRun" not in given:
        given["dryRun"] = [query["dryRun"]]
    faults = Faults()
    propagation = given.get("propagationPolicy") or ""
    orphan = given.get("orphanDependents")
    if propagation and orphan is not None:
        faults.invalid(
            "propagationPolicy",
            compact(propagation),
            "orphanDependents and deletionPropagation cannot be both set",
        )
    elif propagation and propagation not in _PROPAGATIONS:
        faults.unsupported("propagationPolicy", compact(propagation), (*_PROPAGATIONS, "nil"))
    dry_run = _dry_run(given.get("dryRun") or [], faults)
    if faults:
        raise errors.invalid_options("DeleteOptions", faults.items)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    wanted = given.get("preconditions") or {}
    if type(wanted) is not dict:
        raise errors.bad_request(
            "json: cannot unmarshal into Go struct field DeleteOptions.preconditions of type "
            "v1.Preconditions"
        )
    grace = given.get("gracePeriodSeconds")
    if grace is not None and type(grace) is not int:
        raise errors.bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds "
            "of type int64"
        )
    options = DeleteOptions(
        grace, propagation, Preconditions(wanted.get("uid"), wanted.get("resourceVersion"))
    )
    return options, dry_run


@dataclass(frozen=True, slots=True)
class ListOptions:
    label_selector: str
    field_selector: str
    limit: int
    continue_token: str
    resource_version: str
    match: str
    #: ``None``: not given.
    send_initial_events: bool | None
    bookmarks: bool
    timeout_seconds: int | None


def list_options(query: Mapping[str, str], *, watching: bool) -> ListOptions:
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, number(query, "limit") or 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        send_initial_events=(
            flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
        ),
        bookmarks=flag(query, "allowWatchBookmarks"),
        timeout_seconds=number(query, "timeoutSeconds"),
    )
    faults = Faults()
    _check_match(options, faults, watching=watching)
    if faults:
        raise errors.invalid_options("ListOptions", faults.items)
    return options


def _check_match(options: ListOptions, faults: Faults, *, watching: bool) -> None:
    path = "resourceVersionMatch"
    if options.send_initial_events is not None:
        if not watching:
            faults.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        elif options.match != "NotOlderThan":
            faults.forbidden(
                path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        return
    if not options.match:
        return
    if watching:
        faults.forbidden(
            path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
        return
    if not options.resource_version:
        faults.forbidden(
            path, "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if options.continue_token:
        faults.forbidden(path, "resourceVersionMatch is forbidden when continue is provided")
    if options.match not in ("Exact", "NotOlderThan"):
        faults.unsupported(path, compact(options.match), ("Exact", "NotOlderThan", ""))
    if options.match == "Exact" and options.resource_version == "0":
        faults.forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
