"""Pods: admission, checks, and the rules of what may change after creation."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.admission import limit_ranges
from penstock_cluster.registry.model import errors, names, objectmeta, quantity
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import compact, read
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.objects.resource import Strategy
from penstock_cluster.registry.objects.store import Store
from penstock_cluster.registry.strategies.pod_defaults import (
    add_tolerations,
    default_spec,
    quality_class,
)

_POD = errors.ResourceName("", "pods", "Pod")
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)\n"
)
_REQUIRED_TERMS = (
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
)
_TERMS_PATH = "spec." + ".".join(_REQUIRED_TERMS) + ".nodeSelectorTerms"
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage")
_PRIORITY_CLASSES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class PodStrategy(Strategy):
    counts_generation = True
    has_status = True

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        default_spec(spec)
        spec.setdefault("enableServiceLinks", True)

    # Admission

    def admit_create(self, document: Json, namespace: str, call: Call, store: Store) -> None:
        spec = document["spec"]
        name = document["metadata"].get("name", "")
        limit_ranges.fill_in(document, namespace, store)
        self._admit_priority(spec, name, store)
        self._admit_account(spec, namespace, name, store)
        add_tolerations(spec)

    def _admit_priority(self, spec: Json, name: str, store: Store) -> None:
        wanted = spec.get("priorityClassName")
        value, policy = 0, "PreemptLowerPriority"
        if not wanted:
            for version in store.table("priorityclasses.scheduling.k8s.io").items.values():
                if version.object.get("globalDefault"):
                    wanted = spec["priorityClassName"] = version.key[1]
        if wanted in _PRIORITY_CLASSES:
            value = _PRIORITY_CLASSES[wanted]
        elif wanted:
            found = store.find("priorityclasses.scheduling.k8s.io", "", wanted)
            if found is None:
                raise errors.forbidden(_POD, name, f"no PriorityClass with name {wanted} was found")
            value = found.get("value", 0)
            policy = found.get("preemptionPolicy", policy)
        given = spec.get("priority")
        if given is not None and given != value:
            raise errors.forbidden(
                _POD,
                name,
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", policy)

    def _admit_account(self, spec: Json, namespace: str, name: str, store: Store) -> None:
        account = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        found = store.find("serviceaccounts", namespace, account)
        if found is None:
            raise errors.forbidden(
                _POD,
                name,
                f"error looking up service account {namespace}/{account}: serviceaccount "
                f'"{account}" not found',
            )
        mounts = spec.get("automountServiceAccountToken")
        if mounts is None:
            mounts = found.get("automountServiceAccountToken", True)
        if not mounts:
            return
        volume = names.generated("kube-api-access-")
        mounted = False
        for field in ("initContainers", "containers"):
            for container in spec.get(field) or ():
                listed = container.setdefault("volumeMounts", [])
                if any(mount.get("mountPath") == TOKEN_MOUNT for mount in listed):
                    continue
                listed.append({"name": volume, "readOnly": True, "mountPath": TOKEN_MOUNT})
                mounted = True
        if mounted:
            spec["volumes"] = [*(spec.get("volumes") or ()), _token_volume(volume)]

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        spec = document["spec"]
        status: Json = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": call.now,
                    "reason": "SchedulingGated",
                    "message": GATED_MESSAGE,
                }
            ]
        status["qosClass"] = quality_class(spec)
        document["status"] = status

    # Checks

    def check(self, document: Json, faults: Faults) -> None:
        spec = document["spec"]
        check_spec(spec, "spec", faults)

    def validate_update(
        self, new: Json, old: Json, subresource: str, faults: Faults, store: Store
    ) -> None:
        objectmeta.check_update(new["metadata"], old["metadata"], faults, custom=False)
        if subresource == "status":
            return
        if subresource == "resize":
            if quality_class(new["spec"]) != quality_class(old["spec"]):
                was = quality_class(old["spec"])
                faults.invalid(
                    "spec", f'"{was}"', "Pod QOS Class may not change as a result of resizing"
                )
            return
        check_change(new["spec"], old["spec"], faults)

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        if subresource == "resize":
            self._prepare_resize(new, old)
            return
        super().prepare_update(new, old, subresource, call)

    @staticmethod
    def _prepare_resize(new: Json, old: Json) -> None:
        """Only the resources of containers are taken."""
        wanted = {
            item.get("name"): item.get("resources") for item in new["spec"].get("containers") or ()
        }
        spec = dict(old["spec"])
        spec["containers"] = [
            {**item, "resources": wanted[item["name"]] or {}} if item["name"] in wanted else item
            for item in old["spec"]["containers"]
        ]
        metadata = new["metadata"]
        new.clear()
        new.update(old)
        new["spec"] = spec
        new["metadata"] = {**old["metadata"], "resourceVersion": metadata.get("resourceVersion")}

    def grace_seconds(self, document: Json, requested: int | None) -> int | None:
        spec = document.get("spec") or {}
        seconds = requested
        if seconds is None:
            seconds = spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName"):
            return 0
        if read(document, ("status", "phase")) in ("Succeeded", "Failed"):
            return 0
        return 1 if seconds < 0 else int(seconds)

    def reset_fields(self, subresource: str) -> tuple[str, ...]:
        if subresource == "status":
            return ("spec",)
        return ("status",)


def _token_volume(name: str) -> Json:
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.namespace",
                                },
                            }
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        },
    }


def check_spec(spec: Json, path: str, faults: Faults) -> None:
    """Check a pod spec; ``path`` is where it stands."""
    volumes = _check_volumes(spec.get("volumes") or [], f"{path}.volumes", faults)
    containers = spec.get("containers") or []
    if not containers:
        faults.required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            _check_container(container, f"{path}.{field}[{index}]", volumes, seen, faults)
    restart = spec.get("restartPolicy")
    if restart not in ("Always", "OnFailure", "Never"):
        faults.unsupported(
            f"{path}.restartPolicy", compact(restart), ("Always", "OnFailure", "Never")
        )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        faults.invalid(
            f"{path}.activeDeadlineSeconds",
            str(deadline),
            "must be between 1 and 2147483647, inclusive",
        )
    for key, value in (spec.get("nodeSelector") or {}).items():
        for why in names.qualified_name_faults(key):
            faults.invalid(f"{path}.nodeSelector", f'"{key}"', why)
        for why in names.label_value_faults(value):
            faults.invalid(f"{path}.nodeSelector", f'"{value}"', why)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            for why in names.label_faults(spec[field]):
                faults.invalid(f"{path}.{field}", f'"{spec[field]}"', why)
    _check_gates(spec, path, faults)
    _check_affinity(spec, path, faults)
    _check_tolerations(spec.get("tolerations") or [], f"{path}.tolerations", faults)


def _check_volumes(volumes: list[Json], path: str, faults: Faults) -> set[str]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        if not name:
            faults.required(f"{path}[{index}].name")
            continue
        for why in names.label_faults(name):
            faults.invalid(f"{path}[{index}].name", f'"{name}"', why)
        if name in seen:
            faults.duplicate(f"{path}[{index}].name", f'"{name}"')
        seen.add(name)
    return seen


def _check_container(
    container: Json, path: str, volumes: set[str], seen: set[str], faults: Faults
) -> None:
    name = container.get("name", "")
    if not name:
        faults.required(f"{path}.name")
    else:
        for why in names.label_faults(name):
            faults.invalid(f"{path}.name", f'"{name}"', why)
        if name in seen:
            faults.duplicate(f"{path}.name", f'"{name}"')
        seen.add(name)
    image = container.get("image", "")
    if not image:
        faults.required(f"{path}.image")
    elif image != image.strip():
        faults.invalid(
            f"{path}.image", compact(image), "must not have leading or trailing whitespace"
        )
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            faults.required(f"{path}.env[{index}].name")
        if variable.get("value") and variable.get("valueFrom"):
            faults.invalid(
                f"{path}.env[{index}].valueFrom",
                '""',
                "may not be specified when `value` is not empty",
            )
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not 1 <= number <= 65535:
            faults.invalid(
                f"{path}.ports[{index}].containerPort",
                str(number),
                "must be between 1 and 65535, inclusive",
            )
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        step = f"{path}.volumeMounts[{index}]"
        if mount.get("name", "") not in volumes:
            message = f'Not found: "{mount.get("name", "")}"'
            faults.add(f"{step}.name", "FieldValueNotFound", message)
        if not mount.get("mountPath"):
            faults.required(f"{step}.mountPath")
        elif mount["mountPath"] in mounts:
            faults.invalid(f"{step}.mountPath", compact(mount["mountPath"]), "must be unique")
        mounts.add(mount.get("mountPath", ""))
    _check_resources(container.get("resources") or {}, f"{path}.resources", faults)


def _check_resources(resources: Json, path: str, faults: Faults) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if quantity.value_of(amount) < 0:
                why = "must be greater than or equal to 0"
                faults.invalid(f"{path}.{field}[{name}]", f'"{amount}"', why)
            elif (
                "/" not in name
                and name not in _STANDARD_RESOURCES
                and not name.startswith("hugepages-")
            ):
                faults.invalid(
                    f"{path}.{field}[{name}]",
                    f'"{name}"',
                    "must be a standard resource for containers",
                )
    for name, amount in requests.items():
        limit = limits.get(name)
        extended = "/" in name
        if limit is None:
            if extended:
                faults.required(
                    f"{path}.limits", "Limit must be set for non overcommitable resources"
                )
            continue
        if extended and quantity.value_of(amount) != quantity.value_of(limit):
            why = f"must be equal to {name} limit of {limit}"
            faults.invalid(f"{path}.requests", f'"{amount}"', why)
        elif quantity.value_of(amount) > quantity.value_of(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            faults.invalid(f"{path}.requests", f'"{amount}"', why)


def _check_gates(spec: Json, path: str, faults: Faults) -> None:
    seen: set[str] = set()
    gates = spec.get("schedulingGates") or []
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        for why in names.qualified_name_faults(name):
            faults.invalid(f"{path}.schedulingGates[{index}]", f'"{name}"', why)
        if name in seen:
            faults.duplicate(f"{path}.schedulingGates[{index}]", f'"{name}"')
        seen.add(name)
    if gates and spec.get("nodeName"):
        faults.forbidden(
            f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def _check_affinity(spec: Json, path: str, faults: Faults) -> None:
    terms = read(spec, (*_REQUIRED_TERMS, "nodeSelectorTerms"))
    base = f"{path}.{'.'.join(_REQUIRED_TERMS)}"
    if read(spec, _REQUIRED_TERMS) is not None and not terms:
        faults.required(f"{base}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms or ()):
        step = f"{base}.nodeSelectorTerms[{index}]"
        for at, expression in enumerate(term.get("matchExpressions") or ()):
            _check_expression(expression, f"{step}.matchExpressions[{at}]", faults)
        for at, expression in enumerate(term.get("matchFields") or ()):
            _check_match_field(expression, f"{step}.matchFields[{at}]", faults)


def _check_expression(expression: Json, path: str, faults: Faults) -> None:
    operator, values = expression.get("operator"), expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            faults.required(
                f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            faults.forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            faults.required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        faults.invalid(f"{path}.operator", compact(operator), "not a valid selector operator")
    for why in names.qualified_name_faults(expression.get("key", "")):
        faults.invalid(f"{path}.key", compact(expression.get("key", "")), why)


def _check_match_field(expression: Json, path: str, faults: Faults) -> None:
    operator, values = expression.get("operator"), expression.get("values") or []
    if operator not in ("In", "NotIn"):
        faults.invalid(f"{path}.operator", compact(operator), "not a valid selector operator")
    elif len(values) != 1:
        faults.required(
            f"{path}.values",
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )
    if expression.get("key") != "metadata.name":
        shown = compact(expression.get("key"))
        faults.invalid(f"{path}.key", shown, "not a valid field selector key")


def _check_tolerations(tolerations: list[Json], path: str, faults: Faults) -> None:
    for index, item in enumerate(tolerations):
        operator = item.get("operator", "")
        if not item.get("key") and operator != "Exists":
            faults.invalid(
                f"{path}[{index}].operator",
                compact(operator),
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"',
            )
        if operator == "Exists" and item.get("value"):
            faults.invalid(
                f"{path}[{index}].operator",
                compact(item),
                "value must be empty when `operator` is 'Exists'",
            )
        if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
            faults.invalid(
                f"{path}[{index}].effect",
                compact(item.get("effect", "")),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )


def check_change(new: Json, old: Json, faults: Faults) -> None:
    """What may change in the spec of a pod that exists."""
    if new == old:
        return
    comparable = dict(new)
    _check_deadline(new, old, faults)
    comparable["activeDeadlineSeconds"] = old.get("activeDeadlineSeconds")
    if _check_added_tolerations(new, old, faults):
        comparable["tolerations"] = old.get("tolerations")
    for field in ("containers", "initContainers"):
        comparable[field] = _with_old_images(new.get(field), old.get(field))
    if (
        old.get("terminationGracePeriodSeconds", 0) < 0
        and new.get("terminationGracePeriodSeconds") == 1
    ):
        comparable["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    _check_removed_gates(new, old, faults)
    comparable["schedulingGates"] = old.get("schedulingGates")
    if old.get("schedulingGates"):
        _check_narrowed(new, old, faults)
        comparable["nodeSelector"] = old.get("nodeSelector")
        _restore_affinity(comparable, new, old)
    for field, value in list(comparable.items()):
        if value is None:
            del comparable[field]
    if comparable != old and not any(fault.field == "spec" for fault in faults.items):
        faults.forbidden("spec", IMMUTABLE)


def _check_deadline(new: Json, old: Json, faults: Faults) -> None:
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if after is not None:
        if not 0 < after <= 2**31 - 1:
            why = "must be between 0 and 2147483647, inclusive"
            faults.invalid(path, str(after), why)
        elif before is not None and after > before:
            faults.invalid(path, str(after), "must be less than or equal to previous value")
    elif before is not None:
        faults.invalid(path, "null", "must not update from a positive integer to nil value")


def _check_added_tolerations(new: Json, old: Json, faults: Faults) -> bool:
    """Existing tolerations stay, but for their seconds; the result: they do."""

    def identity(item: Json) -> Json:
        return {key: value for key, value in item.items() if key != "tolerationSeconds"}

    present = [identity(item) for item in new.get("tolerations") or ()]
    for item in old.get("tolerations") or ():
        if identity(item) not in present:
            faults.forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
            break
    return True


def _with_old_images(new: Any, old: Any) -> Any:
    if new is None or old is None or len(new) != len(old):
        return new
    return [
        {**item, "image": before["image"]} if "image" in before and item.get("image") else item
        for item, before in zip(new, old, strict=True)
    ]


def _check_removed_gates(new: Json, old: Json, faults: Faults) -> None:
    known = {gate["name"] for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            faults.forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )


def _check_narrowed(new: Json, old: Json, faults: Faults) -> None:
    """While gated, a pod's place may get narrower, never wider."""
    selector = new.get("nodeSelector") or {}
    before = old.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        faults.invalid(
            "spec.nodeSelector",
            compact(selector),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        )
    was = read(old, (*_REQUIRED_TERMS, "nodeSelectorTerms"))
    if not was:
        return
    terms = read(new, (*_REQUIRED_TERMS, "nodeSelectorTerms")) or []
    if len(terms) != len(was):
        faults.invalid(
            _TERMS_PATH,
            "[" + ",".join(_go_term(term) for term in terms) + "]",
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        )
        return
    for index, (term, earlier) in enumerate(zip(terms, was, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            have, had = term.get(field) or [], earlier.get(field) or []
            if have[: len(had)] != had:
                faults.invalid(
                    f"{_TERMS_PATH}[{index}]",
                    _go_term(term),
                    "only additions are allowed (no mutations or deletions)",
                )
                break


def _go_term(term: Json) -> str:
    """A node selector term as Go prints the internal type."""

    def expressions(listed: Any) -> str:
        if not listed:
            return "null"
        texts = [
            f'{{"Key":{compact(item.get("key"))},"Operator":{compact(item.get("operator"))},'
            f'"Values":{compact(item.get("values"))}}}'
            for item in listed
        ]
        return "[" + ",".join(texts) + "]"

    return (
        f'{{"MatchExpressions":{expressions(term.get("matchExpressions"))},'
        f'"MatchFields":{expressions(term.get("matchFields"))}}}'
    )


def _restore_affinity(comparable: Json, new: Json, old: Json) -> None:
    """Take the required node terms (checked apart) out of the comparison."""
    affinity = dict(new.get("affinity") or {})
    before = old.get("affinity") or {}
    node = dict(affinity.get("nodeAffinity") or {})
    required = read(before, _REQUIRED_TERMS[1:])
    if required is None:
        node.pop(_REQUIRED_TERMS[2], None)
    else:
        node[_REQUIRED_TERMS[2]] = required
    if node or "nodeAffinity" in before:
        affinity["nodeAffinity"] = node
    else:
        affinity.pop("nodeAffinity", None)
    if affinity or "affinity" in old:
        comparable["affinity"] = affinity
    else:
        comparable["affinity"] = None
