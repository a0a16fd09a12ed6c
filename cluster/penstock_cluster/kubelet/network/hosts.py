"""The names by which pods find one another, kept in a file that running processes read.

Names are those of the cluster's DNS: ``SERVICE.NAMESPACE.svc.cluster.local`` for every pod that a
Service selects, ``HOSTNAME.SUBDOMAIN.NAMESPACE.svc.cluster.local`` for a pod whose subdomain is a
headless Service that selects it; only ready pods, unless the Service publishes the others too. (A
Service with a cluster address resolves to its pods as well: nothing here forwards packets.) The
shorter forms come from the search list, which :mod:`hook.sitecustomize` applies.

The file is replaced as a whole, so a reader sees the names of one moment.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]

CLUSTER_DOMAIN = "cluster.local"


def host_name(pod: Json) -> str:
    """The pod's host name: ``spec.hostname`` or its name, cut to 63 characters."""
    name = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return str(name)[:63].rstrip("-.")


def search_domains(namespace: str) -> list[str]:
    """The search list of a pod, in order."""
    service = f"svc.{CLUSTER_DOMAIN}"
    return [f"{namespace}.{service}", service, CLUSTER_DOMAIN]


def records(services: Iterable[Json], pods: Iterable[Json]) -> dict[str, list[str]]:
    """Addresses by full name, both sorted; pods that have ended or no address have no name."""
    by_namespace: dict[str, list[Json]] = {}
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("podIP") and status.get("phase") not in {"Succeeded", "Failed"}:
            by_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
    found: dict[str, set[str]] = {}
    for service in services:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        spec = service.get("spec") or {}
        selector = spec.get("selector")
        if not selector:
            continue
        domain = f"{name}.{namespace}.svc.{CLUSTER_DOMAIN}"
        for pod in by_namespace.get(namespace, ()):
            if not _selects(selector, pod):
                continue
            if not (spec.get("publishNotReadyAddresses") or is_ready(pod)):
                continue
            address = pod["status"]["podIP"]
            found.setdefault(domain, set()).add(address)
            if pod["spec"].get("subdomain") == name and pod["spec"].get("hostname"):
                found.setdefault(f"{pod['spec']['hostname']}.{domain}", set()).add(address)
    return {name: sorted(found[name]) for name in sorted(found)}


def is_ready(pod: Json) -> bool:
    """Whether the pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _selects(selector: Mapping[str, str], pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


class HostsFile:
    """The file with one ``ADDRESS NAME`` a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text: str | None = None

    def write(self, names: Mapping[str, Iterable[str]]) -> bool:
        """Replace the file when the names changed; whether it did."""
        text = "".join(f"{ip} {name}\n" for name, addresses in names.items() for ip in addresses)
        if text == self._text:
            return False
        write_atomically(self.path, text)
        self._text = text
        return True


def write_atomically(path: Path, text: str) -> None:
    """Write so that a reader sees either the old text or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


class Blackhole:
    """An address at which connections are neither accepted nor refused, as behind a partition.

    A listening socket whose queue is full: the kernel drops every further SYN.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind((address, 0))
        self._listener.listen(0)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._fillers = []
        for _ in range(2):
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(self.address)
            self._fillers.append(filler)

    def close(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._listener.close()
