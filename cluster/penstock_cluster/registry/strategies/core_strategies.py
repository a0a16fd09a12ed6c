"""Built-in kinds with rules of their own, and the table that says which kind has which."""

from __future__ import annotations

import base64

from penstock_cluster.registry.admission.limit_ranges import LimitRangeStrategy
from penstock_cluster.registry.admission.policy_strategy import AdmissionPolicyStrategy
from penstock_cluster.registry.model import names, objectmeta, quantity
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import compact, read
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.objects.resource import Resource, Strategy
from penstock_cluster.registry.objects.store import Store
from penstock_cluster.registry.strategies.pod_defaults import default_spec
from penstock_cluster.registry.strategies.pods import PodStrategy, check_spec

_DATA_LIMIT_BYTES = 2**20


class WithStatus(Strategy):
    """A kind with a status path and a generation."""

    counts_generation = True
    has_status = True


class NamespaceStrategy(Strategy):
    has_status = True

    def name_faults(self, name: str) -> list[str]:
        return names.label_faults(name)

    def default(self, document: Json) -> None:
        metadata = document["metadata"]
        if metadata.get("name"):
            own = {"kubernetes.io/metadata.name": metadata["name"]}
            metadata["labels"] = {**(metadata.get("labels") or {}), **own}

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        finalizers = list((document.get("spec") or {}).get("finalizers") or ())
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        document["spec"] = {"finalizers": finalizers}
        document["status"] = {"phase": "Active"}

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        super().prepare_update(new, old, subresource, call)
        if subresource == "finalize":
            return
        new["spec"] = old.get("spec", {})


class NodeStrategy(Strategy):
    has_status = True
    keeps_status_on_create = True

    def check(self, document: Json, faults: Faults) -> None:
        for index, taint in enumerate((document.get("spec") or {}).get("taints") or ()):
            path = f"metadata.taints[{index}]"
            for why in names.qualified_name_faults(taint.get("key", "")):
                faults.invalid(f"{path}.key", compact(taint.get("key", "")), why)
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                faults.unsupported(
                    f"{path}.effect",
                    compact(taint.get("effect", "")),
                    ("NoSchedule", "PreferNoSchedule", "NoExecute"),
                )
        for field in ("capacity", "allocatable"):
            for name, amount in (read(document, ("status", field)) or {}).items():
                if quantity.value_of(amount) < 0:
                    why = "must be greater than or equal to 0"
                    faults.invalid(f"status.{field}.{name}", f'"{amount}"', why)

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        before, after = read(old, ("spec", "providerID")), read(new, ("spec", "providerID"))
        if before and after != before:
            faults.forbidden(
                "spec.providerID",
                'node updates may not change providerID except from "" to valid',
            )
        before, after = read(old, ("spec", "podCIDR")), read(new, ("spec", "podCIDR"))
        if before and after != before:
            faults.forbidden(
                "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
            )


class ConfigMapStrategy(Strategy):
    def check(self, document: Json, faults: Faults) -> None:
        data, binary = document.get("data") or {}, document.get("binaryData") or {}
        size = 0
        for field, values in (("data", data), ("binaryData", binary)):
            for key, value in values.items():
                for why in names.config_key_faults(key):
                    faults.invalid(f"{field}[{key}]", f'"{key}"', why)
                if field == "data" and key in binary:
                    faults.invalid(
                        f"data[{key}]", f'"{key}"', "duplicate of key present in binaryData"
                    )
                size += len(value.encode()) if field == "data" else len(base64.b64decode(value))
        if size > _DATA_LIMIT_BYTES:
            faults.too_long("[]", _DATA_LIMIT_BYTES)

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        if not old.get("immutable"):
            return
        if not new.get("immutable"):
            faults.forbidden("immutable", "field is immutable when `immutable` is set")
        for field in ("data", "binaryData"):
            if new.get(field) != old.get(field):
                faults.forbidden(field, "field is immutable when `immutable` is set")


class SecretStrategy(Strategy):
    def default(self, document: Json) -> None:
        plain = document.pop("stringData", None)
        if plain:
            data = dict(document.get("data") or {})
            for key, value in plain.items():
                data[key] = base64.b64encode(value.encode()).decode()
            document["data"] = data
        document.setdefault("type", "Opaque")

    def check(self, document: Json, faults: Faults) -> None:
        size = 0
        for key, value in (document.get("data") or {}).items():
            for why in names.config_key_faults(key):
                faults.invalid(f"data[{key}]", f'"{key}"', why)
            size += len(base64.b64decode(value))
        if size > _DATA_LIMIT_BYTES:
            faults.too_long("data", _DATA_LIMIT_BYTES)

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        if new.get("type") != old.get("type"):
            faults.invalid("type", compact(new.get("type")), "field is immutable")
        if not old.get("immutable"):
            return
        if not new.get("immutable"):
            faults.forbidden("immutable", "field is immutable when `immutable` is set")
        if new.get("data") != old.get("data"):
            faults.forbidden("data", "field is immutable when `immutable` is set")


class ServiceStrategy(Strategy):
    has_status = True

    def name_faults(self, name: str) -> list[str]:
        return names.label_1035_faults(name)

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        spec = document.setdefault("spec", {})
        kind = spec.get("type") or "ClusterIP"
        if kind != "ExternalName" and not spec.get("clusterIP"):
            spec["clusterIP"] = free_address(store)
        document["status"] = {"loadBalancer": {}}
        self._complete(spec)

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port", 0)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")

    @staticmethod
    def _complete(spec: Json) -> None:
        """What the allocation of an address adds; no client owns it."""
        if spec["type"] == "ExternalName":
            return
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        spec, before = new.setdefault("spec", {}), old.get("spec") or {}
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if field not in spec and field in before:
                spec[field] = before[field]
        super().prepare_update(new, old, subresource, call)
        self._complete(new["spec"])

    def check(self, document: Json, faults: Faults) -> None:
        spec = document["spec"]
        kind = spec["type"]
        if kind not in ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"):
            faults.unsupported(
                "spec.type",
                compact(kind),
                ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
            )
        ports = spec.get("ports") or []
        if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
            faults.required("spec.ports")
        for index, port in enumerate(ports):
            if not 1 <= port.get("port", 0) <= 65535:
                faults.invalid(
                    f"spec.ports[{index}].port",
                    str(port.get("port", 0)),
                    "must be between 1 and 65535, inclusive",
                )
            if len(ports) > 1 and not port.get("name"):
                faults.required(f"spec.ports[{index}].name")

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        before = read(old, ("spec", "clusterIP"))
        if before and read(new, ("spec", "clusterIP")) != before:
            shown = compact([read(new, ("spec", "clusterIP"))])
            faults.invalid("spec.clusterIPs[0]", shown, "may not change once set")


def free_address(store: Store) -> str:
    """The lowest service address that no Service has (10.96.0.0/16)."""
    used = {
        read(version.object, ("spec", "clusterIP"))
        for version in store.table("services").items.values()
    }
    for number in range(2, 65_535):
        address = f"10.96.{number // 256}.{number % 256}"
        if address not in used:
            return address
    raise RuntimeError("no service address is free in 10.96.0.0/16")


class LeaseStrategy(Strategy):
    creates_on_update = True
    requires_version = True

    def check(self, document: Json, faults: Faults) -> None:
        spec = document.get("spec") or {}
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            faults.invalid("spec.leaseDurationSeconds", str(duration), "must be greater than 0")
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            why = "must be greater than or equal to 0"
            faults.invalid("spec.leaseTransitions", str(transitions), why)


class EventStrategy(Strategy):
    """Events of ``v1``; :class:`NewEventStrategy` reads and writes the same store."""

    creates_on_update = True

    def validate_create(self, document: Json, faults: Faults, call: Call, store: Store) -> None:
        # The metadata of events are not checked: names such as "job." with a suffix are common.
        check_event_place(document, faults)


def check_event_place(document: Json, faults: Faults) -> None:
    place = (document.get("involvedObject") or {}).get("namespace", "")
    namespace = document["metadata"].get("namespace", "")
    if place != namespace and not (not place and namespace == "default"):
        faults.invalid("involvedObject.namespace", f'"{place}"', "does not match event.namespace")


_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def new_event_form(document: Json) -> Json:
    """A stored ``v1`` event as ``events.k8s.io/v1``."""
    form: Json = {}
    for key, value in document.items():
        if key == "apiVersion":
            form[key] = "events.k8s.io/v1"
        elif key in ("reportingComponent", "reportingInstance") and not value:
            continue
        else:
            form[_EVENT_FIELDS.get(key, key)] = value
    return form


class NewEventStrategy(EventStrategy):
    """Events of ``events.k8s.io/v1``, kept in the store in the form of ``v1``."""

    def decode(self, resource: Resource, document: Json) -> tuple[Json, list[str]]:
        decoded, unknown = super().decode(resource, document)
        names_back = {new: old for old, new in _EVENT_FIELDS.items()}
        stored = {names_back.get(key, key): value for key, value in decoded.items()}
        stored["apiVersion"] = "v1"
        stored.setdefault("reportingComponent", "")
        stored.setdefault("reportingInstance", "")
        return stored, unknown

    def validate_create(self, document: Json, faults: Faults, call: Call, store: Store) -> None:
        objectmeta.check(document["metadata"], self.name_faults, faults, custom=False)
        super().validate_create(document, faults, call, store)
        if not document.get("eventTime"):
            faults.required("eventTime")
            return
        if not document.get("reportingComponent"):
            faults.required("reportingController")
        elif not document.get("action"):
            faults.required("action")


class PriorityClassStrategy(Strategy):
    counts_generation = True

    def default(self, document: Json) -> None:
        document.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        for field in ("value", "preemptionPolicy"):
            if new.get(field) != old.get(field):
                faults.invalid(field, compact(new.get(field)), "field is immutable")


class DisruptionBudgetStrategy(WithStatus):
    requires_version = False

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        document["status"] = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }

    def check(self, document: Json, faults: Faults) -> None:
        spec = document.get("spec") or {}
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            faults.invalid(
                "spec", compact(spec), "minAvailable and maxUnavailable cannot be both set"
            )


class RbacStrategy(Strategy):
    def name_faults(self, name: str) -> list[str]:
        return names.path_segment_faults(name)


class BindingStrategy(RbacStrategy):
    def default(self, document: Json) -> None:
        document.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in document.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def check(self, document: Json, faults: Faults) -> None:
        if not document["roleRef"].get("name"):
            faults.required("roleRef.name")
        for index, subject in enumerate(document.get("subjects") or ()):
            if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
                faults.required(f"subjects[{index}].namespace")

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        if new.get("roleRef") != old.get("roleRef"):
            reference = new.get("roleRef") or {}
            shown = (
                f'{{"APIGroup":{compact(reference.get("apiGroup", ""))},'
                f'"Kind":{compact(reference.get("kind", ""))},'
                f'"Name":{compact(reference.get("name", ""))}}}'
            )
            faults.invalid("roleRef", shown, "cannot change roleRef")


class WorkloadStrategy(WithStatus):
    """Kinds with a pod template. Nothing here makes their pods: no workload controller runs."""

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        template = spec.get("template")
        if template is None:
            return
        default_spec(template.setdefault("spec", {}))

    def check(self, document: Json, faults: Faults) -> None:
        template = read(document, ("spec", "template", "spec"))
        if template is not None:
            check_spec(template, "spec.template.spec", faults)


class DeploymentStrategy(WorkloadStrategy):
    def default(self, document: Json) -> None:
        super().default(document)
        spec = document["spec"]
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {"maxUnavailable": "25%", "maxSurge": "25%"})

    def check(self, document: Json, faults: Faults) -> None:
        super().check(document, faults)
        selector = read(document, ("spec", "selector"))
        if not selector:
            faults.required("spec.selector")


class ReplicasStrategy(WorkloadStrategy):
    def default(self, document: Json) -> None:
        super().default(document)
        document["spec"].setdefault("replicas", 1)


class JobStrategy(WorkloadStrategy):
    def default(self, document: Json) -> None:
        super().default(document)
        spec = document["spec"]
        spec.setdefault("parallelism", 1)
        spec.setdefault("completions", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
        if "selector" not in spec and document["metadata"].get("uid"):
            uid = document["metadata"]["uid"]
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


class VolumeClaimStrategy(Strategy):
    has_status = True

    def default(self, document: Json) -> None:
        document.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        document.setdefault("status", {}).setdefault("phase", "Pending")


class VolumeStrategy(Strategy):
    has_status = True

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        document.setdefault("status", {}).setdefault("phase", "Pending")


def core_strategies() -> dict[str, Strategy]:
    """Strategies by ``plural.group``; kinds that are not in it are plain."""
    rbac = "rbac.authorization.k8s.io"
    return {
        "configmaps": ConfigMapStrategy(),
        "events": EventStrategy(),
        "events.events.k8s.io": NewEventStrategy(),
        "limitranges": LimitRangeStrategy(),
        "namespaces": NamespaceStrategy(),
        "nodes": NodeStrategy(),
        "persistentvolumeclaims": VolumeClaimStrategy(),
        "persistentvolumes": VolumeStrategy(),
        "pods": PodStrategy(),
        "replicationcontrollers": WithStatus(),
        "resourcequotas": WithStatus(),
        "secrets": SecretStrategy(),
        "services": ServiceStrategy(),
        "daemonsets.apps": WorkloadStrategy(),
        "deployments.apps": DeploymentStrategy(),
        "replicasets.apps": ReplicasStrategy(),
        "statefulsets.apps": ReplicasStrategy(),
        "cronjobs.batch": WithStatus(),
        "jobs.batch": JobStrategy(),
        "horizontalpodautoscalers.autoscaling": WithStatus(),
        "leases.coordination.k8s.io": LeaseStrategy(),
        "ingresses.networking.k8s.io": WithStatus(),
        "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
        "priorityclasses.scheduling.k8s.io": PriorityClassStrategy(),
        f"clusterroles.{rbac}": RbacStrategy(),
        f"clusterrolebindings.{rbac}": BindingStrategy(),
        f"roles.{rbac}": RbacStrategy(),
        f"rolebindings.{rbac}": BindingStrategy(),
        "validatingadmissionpolicies.admissionregistration.k8s.io": AdmissionPolicyStrategy(),
        "validatingadmissionpolicybindings.admissionregistration.k8s.io": AdmissionPolicyStrategy(),
    }
