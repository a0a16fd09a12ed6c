"""Installs what Penstock needs into a cluster: its CRDs, roles, policies and priority classes.

``penstock controller --print-manifests`` and ``penstock scheduler --print-manifests`` say what that
is. It is applied server-side under one
field manager, so that applying it again, or a newer release's, changes only what differs.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.base.yaml_text import Loader
from penstock.local.control_plane.components import penstock
from penstock.local.control_plane.supervisor import StartError

FIELD_MANAGER: Final = "penstock-install"
COMMAND_TIMEOUT_SECONDS: Final = 60
ESTABLISHED_TIMEOUT_SECONDS: Final = 30.0


async def install(kubeconfig: Path) -> str:
    """Apply all manifests and wait until the CRDs are served.

    Returns:
        The address of the API server.

    Raises:
        StartError: the cluster refuses one of them.
    """
    return await asyncio.to_thread(_install, kubeconfig)


def manifests() -> Iterator[dict[str, Any]]:
    """Everything to install, in the order in which it is applied."""
    namespaces: set[str] = set()
    printed = "---\n".join(_print_manifests(command) for command in ("controller", "scheduler"))
    for manifest in filter(None, yaml.load_all(printed, Loader=Loader)):
        namespace = manifest["metadata"].get("namespace")
        if namespace is not None and namespace not in namespaces:
            namespaces.add(namespace)
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        yield manifest


def _print_manifests(command: str) -> str:
    done = subprocess.run(
        penstock(command, "--print-manifests"),
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
    )
    if done.returncode:
        raise StartError(f"cannot print the manifests of the {command}: {done.stderr}")
    return done.stdout


def _install(kubeconfig: Path) -> str:
    from kubernetes import config
    from kubernetes.dynamic import DynamicClient
    from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError

    try:
        # The library is untyped here.
        connection: Any = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        # So is this part of it.
        client: Any = DynamicClient(connection)  # type: ignore[no-untyped-call]
        for manifest in manifests():
            resource = client.resources.get(
                api_version=manifest["apiVersion"], kind=manifest["kind"]
            )
            client.server_side_apply(
                resource,
                body=manifest,
                name=manifest["metadata"]["name"],
                namespace=manifest["metadata"].get("namespace"),
                field_manager=FIELD_MANAGER,
                force_conflicts=True,
            )
        definitions = client.resources.get(
            api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
        )
        _wait_until_established(definitions)
    except ResourceNotFoundError as error:
        raise StartError(f"the cluster is too old for Penstock: {error}") from error
    except DynamicApiError as error:
        message = f"{error.status} {error.reason}: {error.body!r}"
        raise StartError(f"cannot install into the cluster: {message}") from error
    return str(connection.configuration.host)


def _wait_until_established(definitions: Any) -> None:
    deadline = time.monotonic() + ESTABLISHED_TIMEOUT_SECONDS
    waiting = {"elasticjobs.penstock.dev", "scales.penstock.dev"}
    while waiting:
        for name in sorted(waiting):
            status = definitions.get(name=name).to_dict().get("status", {})
            if any(
                condition["type"] == "Established" and condition["status"] == "True"
                for condition in status.get("conditions", [])
            ):
                waiting.discard(name)
        if waiting and time.monotonic() > deadline:
            raise StartError(f"not served after {ESTABLISHED_TIMEOUT_SECONDS:.0f} s: {waiting}")
        time.sleep(0.05)
