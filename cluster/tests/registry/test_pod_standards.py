"""The Pod Security Standards, control by control, in the words of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_cluster.registry.admission.pod_standards import (
    BASELINE,
    RESTRICTED,
    Standard,
    violations,
)

Json = dict[str, Any]

SAFE: Json = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def said(standard: Standard, spec: Json, annotations: dict[str, str] | None = None) -> str:
    return ", ".join(map(str, violations(standard, annotations or {}, spec)))


def containers(*contexts: Json, **more: Any) -> Json:
    names = ("a", "b", "c")
    listed = [
        {"name": name, "securityContext": context}
        for name, context in zip(names, contexts, strict=False)
    ]
    return {"containers": listed, **more}


def on_pod(**context: Any) -> Json:
    return containers(SAFE, securityContext=context)


def with_volume(**source: Any) -> Json:
    return containers(SAFE, volumes=[{"name": "v", **source}])


def with_port(port: int) -> Json:
    return {"containers": [{"name": "a", "securityContext": SAFE, "ports": [{"hostPort": port}]}]}


def with_probe(**probe: Any) -> Json:
    return {"containers": [{"name": "a", "securityContext": SAFE, "livenessProbe": probe}]}


def plus(**more: Any) -> Json:
    return {**SAFE, **more}


BASELINE_CASES: list[tuple[str, Json, str]] = [
    ("host network", containers(SAFE, hostNetwork=True), "host namespaces (hostNetwork=true)"),
    (
        "all host namespaces",
        containers(SAFE, hostNetwork=True, hostPID=True, hostIPC=True),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    ),
    (
        "privileged",
        containers(plus(privileged=True)),
        'privileged (container "a" must not set securityContext.privileged=true)',
    ),
    (
        "privileged, several",
        containers(plus(privileged=True), SAFE, plus(privileged=True)),
        'privileged (containers "a", "c" must not set securityContext.privileged=true)',
    ),
    (
        "capabilities",
        containers(plus(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN", "CHOWN", "NET_RAW"]})),
        (
            'non-default capabilities (container "a" must not include "NET_RAW", "SYS_ADMIN" in '
            "securityContext.capabilities.add)"
        ),
    ),
    ("hostPath", with_volume(hostPath={"path": "/"}), 'hostPath volumes (volume "v")'),
    ("host port", with_port(80), 'hostPort (container "a" uses hostPort 80)'),
    (
        "host of a probe",
        with_probe(httpGet={"host": "example.org"}),
        'probe or lifecycle host (container "a" uses probe or lifecycle host "example.org")',
    ),
    (
        "AppArmor",
        on_pod(appArmorProfile={"type": "Unconfined"}),
        'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")',
    ),
    (
        "AppArmor of a container",
        containers(plus(appArmorProfile={"type": "Unconfined"})),
        (
            'forbidden AppArmor profile (container "a" must not set AppArmor profile type to '
            '"Unconfined")'
        ),
    ),
    (
        "SELinux",
        on_pod(seLinuxOptions={"type": "spc_t", "user": "u", "role": "r"}),
        (
            'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user '
            "may not be set; role may not be set)"
        ),
    ),
    (
        "procMount",
        containers(plus(procMount="Unmasked")),
        'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
    ),
    (
        "seccomp",
        containers(plus(seccompProfile={"type": "Unconfined"}), securityContext={}),
        (
            'seccompProfile (container "a" must not set securityContext.seccompProfile.type to '
            '"Unconfined")'
        ),
    ),
    (
        "seccomp of both",
        containers(
            plus(seccompProfile={"type": "Unconfined"}),
            securityContext={"seccompProfile": {"type": "Unconfined"}},
        ),
        (
            'seccompProfile (pod and container "a" must not set '
            'securityContext.seccompProfile.type to "Unconfined")'
        ),
    ),
    (
        "sysctls",
        on_pod(
            sysctls=[
                {"name": "net.ipv4.tcp_rmem", "value": "1"},
                {"name": "kernel.msgmax", "value": "1"},
            ]
        ),
        "forbidden sysctls (kernel.msgmax)",
    ),
    (
        "host process of Windows",
        on_pod(windowsOptions={"hostProcess": True}),
        "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
    ),
]

DROP_NOTHING = {key: value for key, value in SAFE.items() if key != "capabilities"}
NO_SECCOMP = {key: value for key, value in SAFE.items() if key != "seccompProfile"}
MAYBE_ROOT = {key: value for key, value in SAFE.items() if key != "runAsNonRoot"}
RESTRICTED_CASES: list[tuple[str, Json, str]] = [
    (
        "privilege escalation",
        containers(plus(allowPrivilegeEscalation=None)),
        (
            'allowPrivilegeEscalation != false (container "a" must set '
            "securityContext.allowPrivilegeEscalation=false)"
        ),
    ),
    (
        "capabilities kept",
        containers(DROP_NOTHING, SAFE, DROP_NOTHING),
        (
            'unrestricted capabilities (containers "a", "c" must set '
            'securityContext.capabilities.drop=["ALL"])'
        ),
    ),
    (
        "capabilities added",
        containers(plus(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CHOWN"]})),
        (
            'unrestricted capabilities (container "a" must not include "CHOWN" in '
            "securityContext.capabilities.add)"
        ),
    ),
    (
        "volume types",
        with_volume(nfs={"server": "s", "path": "/"}),
        'restricted volume types (volume "v" uses restricted volume type "nfs")',
    ),
    (
        "hostPath once only",
        with_volume(hostPath={"path": "/"}),
        'restricted volume types (volume "v" uses restricted volume type "hostPath")',
    ),
    (
        "maybe root",
        containers(MAYBE_ROOT),
        'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)',
    ),
    (
        "surely root",
        containers(plus(runAsNonRoot=False), securityContext={"runAsNonRoot": True}),
        'runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)',
    ),
    ("user 0", on_pod(runAsUser=0), "runAsUser=0 (pod must not set runAsUser=0)"),
    (
        "user 0 of a container",
        containers(plus(runAsUser=0)),
        'runAsUser=0 (container "a" must not set runAsUser=0)',
    ),
    (
        "no seccomp profile",
        containers(NO_SECCOMP),
        (
            'seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to '
            '"RuntimeDefault" or "Localhost")'
        ),
    ),
]

FINE: list[tuple[str, Json]] = [
    ("all said by the container", containers(SAFE)),
    (
        "what may be said by the pod is",
        containers(
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            securityContext={
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
            },
        ),
    ),
    (
        "a port below 1024",
        containers(plus(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})),
    ),
    ("allowed volumes", with_volume(projected={"sources": []})),
    ("a user namespace", containers(plus(runAsNonRoot=None, runAsUser=0), hostUsers=False)),
    ("Windows", containers({"runAsNonRoot": True}, os={"name": "windows"})),
    ("no host port", with_port(0)),
    ("a probe of the pod itself", with_probe(httpGet={"port": 80})),
]


@pytest.mark.parametrize(
    ("spec", "message"),
    [case[1:] for case in BASELINE_CASES],
    ids=[case[0] for case in BASELINE_CASES],
)
def test_controls_of_baseline(spec: Json, message: str) -> None:
    assert said(Standard(BASELINE), spec) == message
    assert said(Standard("privileged"), spec) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [case[1:] for case in RESTRICTED_CASES],
    ids=[case[0] for case in RESTRICTED_CASES],
)
def test_controls_of_restricted(spec: Json, message: str) -> None:
    assert said(Standard(RESTRICTED), spec) == message
    in_both = "hostPath" in message
    assert bool(said(Standard(BASELINE), spec)) is in_both


@pytest.mark.parametrize("spec", [case[1] for case in FINE], ids=[case[0] for case in FINE])
def test_what_restricted_allows(spec: Json) -> None:
    assert said(Standard(RESTRICTED), spec) == ""


@pytest.mark.parametrize("field", ["initContainers", "ephemeralContainers"])
def test_every_kind_of_container_is_looked_at(field: str) -> None:
    spec = containers(SAFE)
    spec[field] = [{"name": "other", "securityContext": plus(privileged=True)}]
    assert 'privileged (container "other"' in said(Standard(BASELINE), spec)


def test_a_plain_pod_gets_the_whole_sentence() -> None:
    assert said(Standard(RESTRICTED), {"containers": [{"name": "main"}]}) == (
        'allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "
        '"main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or '
        'container "main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or '
        'container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")'
    )


def test_annotations_of_app_armor() -> None:
    notes = {
        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/b": "runtime/default",
    }
    assert said(Standard(BASELINE), containers(SAFE, SAFE), notes) == (
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/a="unconfined"")'
    )


@pytest.mark.parametrize(
    ("minor", "spec", "before"),
    [
        (34, with_probe(tcpSocket={"host": "example.org", "port": 1}), False),
        (23, on_pod(runAsUser=0), False),
        (22, containers(DROP_NOTHING), False),
        (8, containers(plus(allowPrivilegeEscalation=True)), False),
        (27, on_pod(sysctls=[{"name": "net.ipv4.ip_local_reserved_ports", "value": "1"}]), True),
        (31, on_pod(seLinuxOptions={"type": "container_engine_t"}), True),
        (35, containers(MAYBE_ROOT, hostUsers=False), True),
        (25, containers({"runAsNonRoot": True}, os={"name": "windows"}), True),
    ],
)
def test_an_older_version_says_otherwise(minor: int, spec: Json, before: bool) -> None:
    """``before``: whether the version before this one forbids it; this one does the opposite."""
    assert bool(said(Standard(RESTRICTED, minor - 1), spec)) is before
    assert bool(said(Standard(RESTRICTED, minor), spec)) is not before
    assert bool(said(Standard(RESTRICTED), spec)) is not before


def test_seccomp_was_an_annotation_once() -> None:
    notes = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    assert said(Standard(BASELINE, 18), containers(SAFE), notes) == (
        "seccompProfile (forbidden annotation "
        'seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    )
    assert said(Standard(BASELINE), containers(SAFE), notes) == ""
