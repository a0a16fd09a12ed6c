"""Finds the Brain of a cluster, so that nobody has to be told its address.

In this order: what the caller says or ``$PENSTOCK_BRAIN_URL`` says; in a pod, the Service of the
chart; beside a kubeconfig that ``penstock up`` wrote, the address that it wrote there too; else a
port of this machine, which ``kubectl port-forward`` leads to the Service. Not the API server's
proxy: it takes the caller's token off every request that it passes on, and the Brain then does not
know who calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.client.address import address
from penstock.client.cluster import ClusterClient
from penstock.client.errors import BrainAddressError, ClusterError, ForbiddenError
from penstock.client.kubeconfig import ClusterAccess, Json
from penstock.client.resources import SERVICES
from penstock.client.token import Token
from penstock.crds.group import SYSTEM_NAMESPACE
from penstock.crds.ports import BRAIN

URL_VARIABLE: Final = "PENSTOCK_BRAIN_URL"
TOKEN_VARIABLE: Final = "PENSTOCK_BRAIN_TOKEN"
SERVICE_LABELS: Final = "app.kubernetes.io/name=penstock,app.kubernetes.io/component=brain"
FORWARD_SECONDS: Final = 20.0
SAY_WHERE: Final = f"give its address with --brain or ${URL_VARIABLE}"


@dataclass
class BrainAddress:
    """Where the Brain is reached and with which token. Close it: a forwarded port ends then."""

    url: str
    token: Token
    how: str
    """How it was found, for people."""
    _forward: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def close(self) -> None:
        """Give up a forwarded port."""
        if self._forward is not None:
            _end(self._forward)
            self._forward = None


def find_brain(
    cluster: ClusterClient,
    url: str | None = None,
    token: Token = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> BrainAddress:
    """The Brain of the cluster that the client reaches. Raises BrainAddressError."""
    access = cluster.access
    token = token or environ.get(TOKEN_VARIABLE) or _cluster_token(access)
    if url:
        return BrainAddress(_address(url, "of the Brain"), token, "as given")
    if url := environ.get(URL_VARIABLE):
        how = f"${URL_VARIABLE}"
        return BrainAddress(_address(url, f"in {how}"), token, how)
    if url := _beside(access):
        return BrainAddress(url, token, "penstock up")
    service = _service(cluster)
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    ports = (service.get("spec") or {}).get("ports") or [{"port": BRAIN}]
    port = int(ports[0]["port"])
    if access.kubeconfig is None:
        return BrainAddress(f"http://{name}.{namespace}.svc:{port}", token, "Service")
    local, process = _forwarded(access, name, namespace, port)
    return BrainAddress(f"http://127.0.0.1:{local}", token, "kubectl port-forward", process)


def _address(given: str, which: str) -> str:
    try:
        return address(given)
    except ValueError as error:
        raise BrainAddressError(f"the address {which}: {error}") from error


def _cluster_token(access: ClusterAccess) -> Token:
    """The caller's own token; a client certificate proves nothing to the Brain."""

    def read() -> str:
        return access.token() or ""

    return read if access.token() else None


def _beside(access: ClusterAccess) -> str | None:
    """The address in the state file of ``penstock up``, if it wrote this very kubeconfig."""
    first = (access.kubeconfig or "").split(os.pathsep)[0]
    if not first:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        state = json.loads((Path(first).parent / "state.json").read_text())
        return str(state["components"]["brain"]["url"]) or None
    return None


def _service(cluster: ClusterClient) -> Json:
    try:
        try:
            found = cluster.list(SERVICES, labels=SERVICE_LABELS)
        except ForbiddenError:  # not everybody may look into every namespace
            found = cluster.list(SERVICES, SYSTEM_NAMESPACE, labels=SERVICE_LABELS)
    except ClusterError as error:
        raise BrainAddressError(f"the Brain was not found: {error}; {SAY_WHERE}") from error
    if not found:
        raise BrainAddressError(f"no Service of a Brain in this cluster; {SAY_WHERE}")
    return found[0]


def _forwarded(
    access: ClusterAccess, name: str, namespace: str, port: int
) -> tuple[int, subprocess.Popen[bytes]]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise BrainAddressError(
            f"the Brain is in namespace {namespace}, and kubectl, which would lead there, is not "
            f"installed: install it, or {SAY_WHERE}"
        )
    command = [kubectl, f"--namespace={namespace}"]
    if access.context:
        command.append(f"--context={access.context}")
    process = subprocess.Popen(
        [*command, "port-forward", f"service/{name}", f":{port}"],
        env={**os.environ, "KUBECONFIG": access.kubeconfig or ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        said = _first_line(process)
    except BaseException:  # Ctrl-C: what was started does not stay behind
        _end(process)
        raise
    if found := re.match(rb"Forwarding from 127\.0\.0\.1:(\d+)", said):
        return int(found[1]), process
    _, errors = _end(process)
    reason = errors.decode(errors="replace").strip() or "it said nothing"
    raise BrainAddressError(
        f"kubectl port-forward to service/{name} in {namespace} failed: {reason}; {SAY_WHERE}"
    )


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """The first line on standard output, or what came of it in time."""
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + FORWARD_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in said and selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                break
            said += piece
    return said


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    process.terminate()
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()
