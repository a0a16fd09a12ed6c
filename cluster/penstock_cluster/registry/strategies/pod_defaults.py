"""Defaults of pods and pod templates, as the API server fills them in."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.model.errors import Json

_FILE_MODE = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def default_spec(spec: Json) -> None:
    """Fill in a pod spec, in place."""
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            _default_container(container)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    if spec.get("hostNetwork"):
        for container in spec.get("containers") or ():
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort", 0))


def _default_container(container: Json) -> None:
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        requests = {**limits, **(resources.get("requests") or {})}
        resources["requests"] = requests
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            _default_probe(probe)
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        action = (lifecycle.get(hook) or {}).get("httpGet")
        if action is not None:
            _default_http(action)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    if "httpGet" in probe:
        _default_http(probe["httpGet"])
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)


def _default_http(action: Json) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", _FILE_MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")
    for source in (volume.get("projected") or {}).get("sources") or ():
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            if "fieldRef" in item:
                item["fieldRef"].setdefault("apiVersion", "v1")
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def add_tolerations(spec: Json) -> None:
    """Tolerate a lost node for five minutes, unless the pod says otherwise."""
    tolerations = list(spec.get("tolerations") or ())
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_covers(item, key) for item in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    spec["tolerations"] = tolerations


def _covers(toleration: Json, key: str) -> bool:
    if toleration.get("effect") not in (None, "", "NoExecute"):
        return False
    return toleration.get("key") in (None, "", key)


def quality_class(spec: Json) -> str:
    """BestEffort, Burstable or Guaranteed, from the requests and limits of all containers."""
    requested: set[str] = set()
    guaranteed = True
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name)
            if _positive(request) or _positive(limit):
                requested.add(name)
            if not _positive(limit) or limit != (request if request is not None else limit):
                guaranteed = False
    if not requested:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amount: Any) -> bool:
    return amount is not None and amount != "0"
