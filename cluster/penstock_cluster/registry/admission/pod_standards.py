"""The Pod Security Standards, baseline and restricted: what each control forbids in a pod.

Pure: a pod's annotations and spec in, violations out, in the words and the order of the real
server (controls of baseline by name, then those of restricted), since what refuses a pod is read by
people and matched by programs. The controls are those of Kubernetes 1.36
(https://kubernetes.io/docs/concepts/security/pod-security-standards/); an older version of the
standard leaves out or loosens what came later. They look at init, plain and ephemeral containers
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
"""From the most to the least permissive."""
LATEST = 36
"""The minor version of Kubernetes that ``latest`` stands for."""
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)")

_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""Those that container runtimes give by default."""
_SAFE_SYSCTLS = {
    0: "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_unprivileged_port_start "
    "net.ipv4.tcp_syncookies net.ipv4.ping_group_range",
    27: "net.ipv4.ip_local_reserved_ports",
    29: "net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl "
    "net.ipv4.tcp_keepalive_probes",
    32: "net.ipv4.tcp_rmem net.ipv4.tcp_wmem",
}
"""The sysctls that are safe, by the version that added them."""
_SELINUX_TYPES = {0: "container_t container_init_t container_kvm_t", 31: "container_engine_t"}
_PROFILES = ("RuntimeDefault", "Localhost")
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


@dataclass(frozen=True, slots=True)
class Standard:
    """A level in a version; ``None`` is the latest one."""

    level: str = PRIVILEGED
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor is None else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)


def parse_version(text: str) -> int | None:
    """The minor version of ``v1.N``, ``None`` of ``latest``; raises ValueError."""
    if text == "latest":
        return None
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError('must be "latest" or "v1.x"')
    return int(found.group(1))


@dataclass(frozen=True, slots=True)
class Violation:
    """What one control has against a pod."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


def violations(standard: Standard, annotations: Json, spec: Json) -> list[Violation]:
    """What a standard has against a pod (or a pod template); empty: it is allowed."""
    if standard.level == PRIVILEGED:
        return []
    minor = LATEST if standard.minor is None else min(standard.minor, LATEST)
    subject = _Subject(annotations, spec, minor)
    applied = [
        control
        for control in _CONTROLS
        if control.since <= minor and (standard.level == RESTRICTED or control.level == BASELINE)
    ]
    replaced = {control.replaces for control in applied}
    found = (control.check(subject) for control in applied if control.name not in replaced)
    return [violation for violation in found if violation is not None]


class _Subject:
    """A pod as the controls see it."""

    def __init__(self, annotations: Json, spec: Json, minor: int) -> None:
        self.annotations = annotations
        self.spec = spec
        self.minor = minor
        self.containers: list[Json] = [
            container
            for field in ("initContainers", "containers", "ephemeralContainers")
            for container in spec.get(field) or ()
        ]
        self.context: Json = spec.get("securityContext") or {}
        self.is_windows = (spec.get("os") or {}).get("name") == "windows" and minor >= 25
        #: Root in a user namespace of its own is nobody outside of it.
        self.is_user_namespaced = spec.get("hostUsers") is False and minor >= 35

    def failing(self, test: Callable[[Json], Any]) -> list[str]:
        """The names of the containers whose security context the test holds for."""
        return [
            container["name"]
            for container in self.containers
            if test(container.get("securityContext") or {})
        ]


# Words


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _containers(names: list[str]) -> str:
    return f"{_plural('container', len(names))} {_quoted(names)}"


def _setters(pod: object, names: list[str]) -> list[str]:
    """Who sets something: the pod, containers, or both."""
    return [*(["pod"] if pod else []), *([_containers(names)] if names else [])]


def _since(table: Mapping[int, str], minor: int) -> set[str]:
    return {item for since, text in table.items() if since <= minor for item in text.split()}


# Baseline


def _app_armor(pod: _Subject) -> Violation | None:
    def bad(context: Json) -> str | None:
        profile = context.get("appArmorProfile")
        kind = "" if profile is None else profile.get("type", "")
        return None if profile is None or kind in _PROFILES else kind

    values = {bad(context) for context in _contexts(pod)} - {None}
    names = pod.failing(lambda context: bad(context) is not None)
    setters = _setters(bad(pod.context) is not None, names)
    listed = sorted(str(value) for value in values)
    noted = sorted(
        f"{key}={_go_quoted(value)}"
        for key, value in pod.annotations.items()
        if key.startswith(_APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if noted:
        setters.append(_plural("annotation", len(noted)))
    if not setters:
        return None
    listed += noted
    return Violation(
        _plural("forbidden AppArmor profile", len(listed)),
        f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(listed)}",
    )


def _contexts(pod: _Subject) -> list[Json]:
    return [pod.context, *(one.get("securityContext") or {} for one in pod.containers)]


def _go_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _added(context: Json, allowed: Iterable[str]) -> set[str]:
    return set((context.get("capabilities") or {}).get("add") or ()) - set(allowed)


def _capabilities_baseline(pod: _Subject) -> Violation | None:
    names = pod.failing(lambda context: _added(context, _CAPABILITIES))
    if not names:
        return None
    return Violation("non-default capabilities", _no_capabilities(pod, names, _CAPABILITIES))


def _no_capabilities(pod: _Subject, names: list[str], allowed: Iterable[str]) -> str:
    every = sorted({name for context in _contexts(pod) for name in _added(context, allowed)})
    return (
        f"{_containers(names)} must not include {_quoted(every)} in securityContext.capabilities."
        "add"
    )


def _host_namespaces(pod: _Subject) -> Violation | None:
    fields = ("hostNetwork", "hostPID", "hostIPC")
    shared = [f"{field}=true" for field in fields if pod.spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_path_volumes(pod: _Subject) -> Violation | None:
    names = [volume["name"] for volume in pod.spec.get("volumes") or () if "hostPath" in volume]
    if not names:
        return None
    return Violation("hostPath volumes", f"{_plural('volume', len(names))} {_quoted(names)}")


def _host_ports(pod: _Subject) -> Violation | None:
    ports = {
        container["name"]: [
            str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")
        ]
        for container in pod.containers
    }
    names = [name for name, taken in ports.items() if taken]
    if not names:
        return None
    every = sorted({port for taken in ports.values() for port in taken})
    verb = "uses" if len(names) == 1 else "use"
    shown = f"{_plural('hostPort', len(every))} {', '.join(every)}"
    return Violation("hostPort", f"{_containers(names)} {verb} {shown}")


def _host_probes(pod: _Subject) -> Violation | None:
    def hosts(container: Json) -> set[str]:
        lifecycle = container.get("lifecycle") or {}
        handlers = [
            *(container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")),
            *(lifecycle.get(hook) for hook in ("postStart", "preStop")),
        ]
        actions = (
            (handler or {}).get(action) or {}
            for handler in handlers
            for action in ("httpGet", "tcpSocket")
        )
        return {action["host"] for action in actions if action.get("host")}

    names = sorted(one["name"] for one in pod.containers if hosts(one))
    if not names:
        return None
    every = sorted({host for one in pod.containers for host in hosts(one)})
    verb = "uses" if len(names) == 1 else "use"
    noun = _plural("probe or lifecycle host", len(every))
    return Violation(
        "probe or lifecycle host", f"{_containers(names)} {verb} {noun} {_quoted(every)}"
    )


def _privileged(pod: _Subject) -> Violation | None:
    names = pod.failing(lambda context: context.get("privileged"))
    if not names:
        return None
    return Violation(
        "privileged", f"{_containers(names)} must not set securityContext.privileged=true"
    )


def _proc_mount(pod: _Subject) -> Violation | None:
    def bad(context: Json) -> bool:
        return context.get("procMount") not in (None, "Default")

    names = pod.failing(bad)
    if not names:
        return None
    values = sorted({context["procMount"] for context in _contexts(pod) if bad(context)})
    return Violation(
        "procMount",
        f"{_containers(names)} must not set securityContext.procMount to {_quoted(values)}",
    )


def _proc_mount_baseline(pod: _Subject) -> Violation | None:
    return None if pod.is_user_namespaced else _proc_mount(pod)


def _selinux(pod: _Subject) -> Violation | None:
    allowed = {"", *_since(_SELINUX_TYPES, pod.minor)}

    def options(context: Json) -> Json:
        return context.get("seLinuxOptions") or {}

    def bad(context: Json) -> bool:
        set_ones = options(context)
        return bool(
            set_ones.get("type", "") not in allowed or set_ones.get("user") or set_ones.get("role")
        )

    setters = _setters(bad(pod.context), pod.failing(bad))
    if not setters:
        return None
    chosen = [options(context) for context in _contexts(pod)]
    types = sorted({one["type"] for one in chosen if one.get("type", "") not in allowed})
    faults = [f"{_plural('type', len(types))} {_quoted(types)}"] if types else []
    faults += [
        f"{field} may not be set" for field in ("user", "role") if any(o.get(field) for o in chosen)
    ]
    return Violation(
        "seLinuxOptions",
        f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: "
        f"{'; '.join(faults)}",
    )


def _seccomp_type(context: Json) -> str | None:
    profile = context.get("seccompProfile")
    return None if profile is None else str(profile.get("type", ""))


def _has_bad_seccomp(context: Json) -> bool:
    return _seccomp_type(context) not in (None, *_PROFILES)


def _seccomp_baseline(pod: _Subject) -> Violation | None:
    if pod.minor < 19:
        return _seccomp_annotations(pod)
    setters = _setters(_has_bad_seccomp(pod.context), pod.failing(_has_bad_seccomp))
    if not setters:
        return None
    values = sorted(
        {str(_seccomp_type(context)) for context in _contexts(pod) if _has_bad_seccomp(context)}
    )
    return Violation(
        "seccompProfile",
        f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to "
        f"{_quoted(values)}",
    )


def _seccomp_annotations(pod: _Subject) -> Violation | None:
    """Before there was a field for it."""
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{one['name']}" for one in pod.containers)]
    bad = sorted(
        f"{key}={_go_quoted(value)}"
        for key in keys
        if (value := pod.annotations.get(key)) is not None
        and value not in ("runtime/default", "docker/default")
        and not value.startswith("localhost/")
    )
    if not bad:
        return None
    return Violation(
        "seccompProfile", f"forbidden {_plural('annotation', len(bad))} {', '.join(bad)}"
    )


def _sysctls(pod: _Subject) -> Violation | None:
    allowed = _since(_SAFE_SYSCTLS, pod.minor)
    listed = pod.context.get("sysctls") or ()
    bad = [sysctl["name"] for sysctl in listed if sysctl["name"] not in allowed]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def _windows_host_process(pod: _Subject) -> Violation | None:
    def bad(context: Json) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(bad(pod.context), pod.failing(bad))
    if not setters:
        return None
    return Violation(
        "hostProcess",
        f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true",
    )


# Restricted


def _privilege_escalation(pod: _Subject) -> Violation | None:
    names = pod.failing(lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names or pod.is_windows:
        return None
    return Violation(
        "allowPrivilegeEscalation != false",
        f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def _capabilities_restricted(pod: _Subject) -> Violation | None:
    if pod.is_windows:
        return None
    allowed = ("NET_BIND_SERVICE",)
    keeping = pod.failing(
        lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ())
    )
    adding = pod.failing(lambda context: _added(context, allowed))
    faults = []
    if keeping:
        shown = _containers(keeping)
        faults.append(f'{shown} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        faults.append(_no_capabilities(pod, adding, allowed))
    return Violation("unrestricted capabilities", "; ".join(faults)) if faults else None


def _restricted_volumes(pod: _Subject) -> Violation | None:
    bad = {
        volume["name"]: next(iter(volume.keys() - {"name"}), "unknown")
        for volume in pod.spec.get("volumes") or ()
        if not volume.keys() & _VOLUMES
    }
    if not bad:
        return None
    kinds = sorted(set(bad.values()))
    noun, verb = _plural("volume", len(bad)), "uses" if len(bad) == 1 else "use"
    shown = f"{_plural('restricted volume type', len(kinds))} {_quoted(kinds)}"
    return Violation("restricted volume types", f"{noun} {_quoted(bad)} {verb} {shown}")


def _non_root(pod: _Subject) -> Violation | None:
    if pod.is_user_namespaced:
        return None
    reason = "runAsNonRoot != true"
    setters = _setters(
        pod.context.get("runAsNonRoot") is False,
        pod.failing(lambda context: context.get("runAsNonRoot") is False),
    )
    if setters:
        said = f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
        return Violation(reason, said)
    if pod.context.get("runAsNonRoot"):
        return None
    silent = pod.failing(lambda context: context.get("runAsNonRoot") is None)
    if not silent:
        return None
    return Violation(
        reason, f"pod or {_containers(silent)} must set securityContext.runAsNonRoot=true"
    )


def _user(pod: _Subject) -> Violation | None:
    if pod.is_user_namespaced:
        return None
    setters = _setters(
        pod.context.get("runAsUser") == 0, pod.failing(lambda one: one.get("runAsUser") == 0)
    )
    if not setters:
        return None
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0")


def _seccomp_restricted(pod: _Subject) -> Violation | None:
    if pod.is_windows:
        return None
    explicit = _seccomp_baseline(pod)
    if explicit is not None or _seccomp_type(pod.context) is not None:
        return explicit
    silent = pod.failing(lambda context: _seccomp_type(context) is None)
    if not silent:
        return None
    return Violation(
        "seccompProfile",
        f"pod or {_containers(silent)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"',
    )


@dataclass(frozen=True, slots=True)
class _Control:
    name: str
    level: str
    check: Callable[[_Subject], Violation | None]
    since: int = 0
    """The minor version that introduced it."""
    replaces: str = ""
    """The control of baseline that says less of the same."""


_CONTROLS = (
    _Control("appArmorProfile", BASELINE, _app_armor),
    _Control("capabilities_baseline", BASELINE, _capabilities_baseline),
    _Control("hostNamespaces", BASELINE, _host_namespaces),
    _Control("hostPathVolumes", BASELINE, _host_path_volumes),
    _Control("hostPorts", BASELINE, _host_ports),
    _Control("hostProbesAndHostLifecycle", BASELINE, _host_probes, 34),
    _Control("privileged", BASELINE, _privileged),
    _Control("procMount", BASELINE, _proc_mount_baseline),
    _Control("seLinuxOptions", BASELINE, _selinux),
    _Control("seccompProfile_baseline", BASELINE, _seccomp_baseline),
    _Control("sysctls", BASELINE, _sysctls),
    _Control("windowsHostProcess", BASELINE, _windows_host_process),
    _Control("allowPrivilegeEscalation", RESTRICTED, _privilege_escalation, 8),
    _Control(
        "capabilities_restricted",
        RESTRICTED,
        _capabilities_restricted,
        22,
        "capabilities_baseline",
    ),
    _Control("procMount_restricted", RESTRICTED, _proc_mount, 35, "procMount"),
    _Control("restrictedVolumes", RESTRICTED, _restricted_volumes, 0, "hostPathVolumes"),
    _Control("runAsNonRoot", RESTRICTED, _non_root),
    _Control("runAsUser", RESTRICTED, _user, 23),
    _Control(
        "seccompProfile_restricted",
        RESTRICTED,
        _seccomp_restricted,
        19,
        "seccompProfile_baseline",
    ),
)
"""In the order in which the server names them."""
