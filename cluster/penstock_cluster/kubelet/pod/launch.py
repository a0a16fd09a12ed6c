"""From a container's spec to the process to start: variables, paths, arguments, cores, memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_cluster.kubelet.container.context import KubeletOptions, PodContext
from penstock_cluster.kubelet.container.devices import device_variables
from penstock_cluster.kubelet.container.environment import (
    container_environment,
    expand,
    thread_settings,
)
from penstock_cluster.kubelet.container.logs import remove_old_logs
from penstock_cluster.kubelet.container.mounts import PathRewriter, volume_variable
from penstock_cluster.kubelet.container.runtime import ProcessSpec
from penstock_cluster.kubelet.network.hosts import host_name, search_domains
from penstock_cluster.requests import CPU, MEMORY, parse_amounts

Json = Mapping[str, Any]

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
HOOK_FOLDER = Path(__file__).parents[1] / "hook"


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start, and what its hooks and probes need to run in the same place."""

    process: ProcessSpec
    rewriter: PathRewriter
    termination_log: Path
    environment: Mapping[str, str]

    def rewrite(self, argv: list[str]) -> list[str]:
        """The arguments of a hook or probe, with mounted paths made true."""
        return [self.rewriter.rewrite(text) for text in argv]


def cpu_claim(container: Json) -> int:
    """The milli-CPU for which a container gets cores: its limit, else its request, else 0."""
    resources = container.get("resources") or {}
    limits, requests = (
        parse_amounts(resources.get("limits")),
        parse_amounts(resources.get("requests")),
    )
    return limits.get(CPU) or requests.get(CPU) or 0


def memory_limit(container: Json) -> int | None:
    """The memory limit in bytes; None where there is none."""
    limits = (container.get("resources") or {}).get("limits")
    return parse_amounts(limits).get(MEMORY) or None


def cpu_limit(options: KubeletOptions, container: Json) -> int | None:
    """The milli-CPU that a container may use; None where no limit is set, or none enforced."""
    limits = (container.get("resources") or {}).get("limits")
    return (parse_amounts(limits).get(CPU) or None) if options.enforces_cpu_limits else None


def container_id(pod_uid: str, name: str, restart: int) -> str:
    """64 hex digits, as a runtime's: the same start has the same, every other start another."""
    return hashlib.sha256(f"{pod_uid}/{name}/{restart}".encode()).hexdigest()


async def prepare(context: PodContext, container: Json, restart: int) -> Launch:
    """Everything for one start. Raises ConfigError when a reference leads nowhere."""
    pod, services, options = context.pod, context.services, context.services.options
    uid, name = pod["metadata"]["uid"], container["name"]
    sources = await context.sources.config(pod, container)
    termination_log = _path(context.folder / "termination" / name)
    termination_log.write_text("")
    given = _given(context, container) | {"PENSTOCK_TERMINATION_LOG": str(termination_log)}
    variables = container_environment(pod, container, given, sources, context.allocatable)
    mounts = context.volumes.mounts(container, variables)
    mounts[container.get("terminationMessagePath") or "/dev/termination-log"] = termination_log
    rewriter = PathRewriter(mounts)
    argv = [
        rewriter.rewrite(expand(text, variables))
        for text in [*(container.get("command") or ()), *(container.get("args") or ())]
    ]
    identity = container_id(uid, name, restart)
    cores = services.cores.assign(identity, cpu_claim(container))
    threads = thread_settings(len(cores) if _has_cpu_limit(container) else None)
    # What the container did not say itself are paths of this machine, also where they begin alike.
    said = {
        key: value if given.get(key) == value else rewriter.rewrite(value)
        for key, value in variables.items()
    }
    environment = {**threads, **said, "PYTHONPATH": _with_hook(said.get("PYTHONPATH", ""))}
    folder = container.get("workingDir")
    remove_old_logs(context.folder / "logs" / name, keep=1)
    account = mounts.get(SERVICE_ACCOUNT_PATH)
    if account is not None:
        environment.setdefault("PENSTOCK_SERVICE_ACCOUNT_DIR", str(account))
    process = ProcessSpec(
        id=identity,
        argv=argv,
        env=environment,
        cwd=rewriter.rewrite(folder) if folder else str(options.working_directory),
        log=_path(context.folder / "logs" / name / f"{restart}.log"),
        log_bytes=options.log_bytes,
        cores=cores,
        memory_bytes=memory_limit(container),
        milli_cpu=cpu_limit(options, container),
        percent=context.machine_percent(),
        is_pid_one=options.strict_signals and not pod["spec"].get("shareProcessNamespace"),
    )
    return Launch(process, rewriter, termination_log, environment)


def _path(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _has_cpu_limit(container: Json) -> bool:
    return CPU in ((container.get("resources") or {}).get("limits") or {})


def _with_hook(python_path: str) -> str:
    return f"{HOOK_FOLDER}:{python_path}" if python_path else str(HOOK_FOLDER)


def _given(context: PodContext, container: Json) -> dict[str, str]:
    """The variables that a container finds before its own are added."""
    services = context.services
    host, port = services.api_server
    scratch = context.folder / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    given = services.options.image_environment()
    given |= {
        "HOSTNAME": host_name(context.pod),
        "TMPDIR": str(scratch),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "PENSTOCK_POD_NETWORK": str(context.folder / "network"),
        **device_variables(context.devices.get(container["name"], ())),
    }
    mounted = {mount["name"] for mount in container.get("volumeMounts") or ()}
    for name, folder in context.volumes.folders.items():
        if name in mounted:
            given[volume_variable(name)] = str(folder)
    return given


def write_network_settings(context: PodContext) -> None:
    """The file from which the processes of a pod learn their network, see ``hook``."""
    services, pod = context.services, context.pod
    ports = context.folder / "ports"
    ports.mkdir(parents=True, exist_ok=True)
    blackhole_host, blackhole_port = services.blackhole.address
    settings = {
        "address": context.record.pod_ip,
        "hostname": host_name(pod),
        "search": " ".join(search_domains(pod["metadata"]["namespace"])),
        "hosts": services.hosts_file,
        "blocked": context.folder / "blocked",
        "ports": ports,
        "blackhole": f"{blackhole_host} {blackhole_port}",
        "relay": services.relay.folder,
    }
    text = "".join(f"{key} {value}\n" for key, value in settings.items())
    (context.folder / "network").write_text(text)
