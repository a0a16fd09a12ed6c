"""Validating admission policies: CEL over the request, the objects and the caller's rights."""

from __future__ import annotations

import logging
from typing import Any

from penstock_cluster.registry.admission import cel, cel_authorizer
from penstock_cluster.registry.admission.rbac import Authorizer
from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.selectors import LabelSelector
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Store

_GROUP = "admissionregistration.k8s.io"
_EXEMPT = (_GROUP,)
logger = logging.getLogger(__name__)


class Policies:
    """Applies every policy that is bound and matches; :class:`ApiError` 403 or 422 when denied."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._policies = store.table(f"validatingadmissionpolicies.{_GROUP}")
        self._bindings = store.table(f"validatingadmissionpolicybindings.{_GROUP}")
        self._namespaces = store.table("namespaces")

    def __call__(self, request: AdmissionRequest) -> None:
        if not self._bindings.items or request.resource.group in _EXEMPT:
            return
        for version in self._bindings.items.values():
            binding = version.object["spec"]
            policy = self._policies.items.get(("", binding.get("policyName", "")))
            if policy is None or not self._matches(binding.get("matchResources"), request):
                continue
            spec = policy.object["spec"]
            if not self._matches(spec.get("matchConstraints"), request):
                continue
            actions = binding.get("validationActions") or ["Deny"]
            for reason, message in self._evaluate(spec, request):
                text = (
                    f"ValidatingAdmissionPolicy '{policy.key[1]}' with binding "
                    f"'{version.key[1]}' denied request: {message}"
                )
                if "Deny" in actions:
                    # The first denial is the answer, as with the real server.
                    raise _denied(request.resource, request.name, reason, text)
                if "Warn" in actions:
                    request.call.warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{policy.key[1]}' with "
                        f"binding '{version.key[1]}': {message}"
                    )

    def _matches(self, wanted: Json | None, request: AdmissionRequest) -> bool:
        if not wanted:
            return True
        rules = wanted.get("resourceRules")
        if rules is not None and not any(_rule_matches(rule, request) for rule in rules):
            return False
        if any(_rule_matches(rule, request) for rule in wanted.get("excludeResourceRules") or ()):
            return False
        labels = request.metadata.get("labels")
        if not LabelSelector.of(wanted.get("objectSelector")).matches(labels):
            return False
        selector = wanted.get("namespaceSelector")
        if selector and request.namespace:
            found = self._namespaces.items.get(("", request.namespace))
            present = found.object["metadata"].get("labels") if found else None
            return LabelSelector.of(selector).matches(present)
        return True

    def _evaluate(self, spec: Json, request: AdmissionRequest) -> list[tuple[str, str]]:
        """Reason and message of every validation that fails."""
        variables = _variables(request)
        found = self._namespaces.items.get(("", request.namespace)) if request.namespace else None
        variables["namespaceObject"] = found.object if found else None
        variables["authorizer"] = cel_authorizer.variable(request)
        functions = cel_authorizer.functions(request, self._authorizer)
        fails = spec.get("failurePolicy", "Fail") == "Fail"
        try:
            for condition in spec.get("matchConditions") or ():
                if cel.compiled(condition["expression"]).run(variables, functions) is not True:
                    return []
        except cel.CelError as error:
            return [("Invalid", f"match condition failed: {error}")] if fails else []
        composed: Json = {}
        variables["variables"] = composed
        broken: dict[str, str] = {}
        for variable in spec.get("variables") or ():
            try:
                program = cel.compiled(variable["expression"])
                composed[variable["name"]] = program.run(variables, functions)
            except cel.CelError as error:
                broken[variable["name"]] = str(error)
        denials = []
        for validation in spec.get("validations") or ():
            denial = _validate(validation, variables, functions, broken, fails=fails)
            if denial is not None:
                denials.append(denial)
        return denials


def _validate(
    validation: Json,
    variables: Json,
    functions: cel.Functions,
    broken: dict[str, str],
    *,
    fails: bool,
) -> tuple[str, str] | None:
    expression = validation["expression"]
    reason = validation.get("reason") or "Invalid"
    try:
        if cel.compiled(expression).run(variables, functions) is True:
            return None
    except cel.CelError as error:
        if not fails:
            return None
        cause = next(
            (text for name, text in broken.items() if f"variables.{name}" in expression), ""
        )
        shown = f"composited variable failed to evaluate: {cause}" if cause else str(error)
        return reason, f"expression '{expression}' resulted in error: {shown}"
    message = validation.get("message") or f"failed expression: {expression.strip()}"
    if validation.get("messageExpression"):
        try:
            program = cel.compiled(validation["messageExpression"])
            message = str(program.run(variables, functions))
        except cel.CelError as error:
            logger.warning("messageExpression of a policy failed: %s", error)
    return reason, message


def _variables(request: AdmissionRequest) -> dict[str, Any]:
    """What the expressions of a policy may look at."""
    user = request.call.user
    resource = request.resource
    asked = {
        "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "resource": {
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
        },
        "subResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.verb,
        "userInfo": {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": user.extra,
        },
        "dryRun": request.call.dry_run,
    }
    return {"request": asked, "object": request.new, "oldObject": request.old, "params": None}


def _rule_matches(rule: Json, request: AdmissionRequest) -> bool:
    resource = request.resource
    plural = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") is not resource.namespaced:
        return False
    names = rule.get("resourceNames")
    if names and request.name not in names:
        return False
    return (
        _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and _listed(rule.get("operations"), request.verb)
        and any(_resource_listed(item, plural) for item in rule.get("resources") or ())
    )


def _listed(values: list[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _resource_listed(pattern: str, plural: str) -> bool:
    if pattern == "*/*" or pattern == plural:
        return True
    if pattern == "*":
        return "/" not in plural
    main, slash, sub = plural.partition("/")
    if pattern.endswith("/*"):
        return pattern[:-2] == main
    return bool(slash) and pattern.startswith("*/") and pattern[2:] == sub


_CODES = {"Forbidden": 403, "Unauthorized": 401, "Invalid": 422, "RequestEntityTooLarge": 413}


def _denied(resource: Resource, name: str, reason: str, text: str) -> errors.ApiError:
    shown = f'{resource.name.qualified} "{name}"' if name else resource.name.qualified
    details: Json = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    details["causes"] = [{"message": text}]
    message = f"{shown} is forbidden: {text}"
    return errors.ApiError(_CODES.get(reason, 422), reason, message, details)
