"""Finds the Brain of a cluster, so that nobody has to be told its address.

In this order: what the caller says or ``$PENSTOCK_BRAIN_URL`` says; beside a kubeconfig that
``penstock up`` wrote, the address that it wrote there too, or in its folder that of the Brain that
it runs for this cluster (``up --external``), with a token for it; else the Service of the chart, in
the one namespace where it is expected: in a pod by its name, elsewhere through a port of this
machine, which ``kubectl port-forward`` leads to it. Not the API server's proxy: it takes the
caller's token off every request that it passes on, and the Brain then does not know who calls.

What was found by labels may be anybody's, and is shown a token that is good for a Brain alone
(`penstock.client.brain.brain_token`), and so is what the caller named, where the cluster has
accounts for that. The token of the kubeconfig is shown to an address that ``penstock up`` wrote,
and to one that the caller named where the chart is not installed.

With TLS the Brain has to show a certificate of the authority in ``$PENSTOCK_BRAIN_CA_FILE``, else
of the one that the chart publishes beside it, else of one that this machine trusts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.base.ports import BRAIN
from penstock.client.address import address
from penstock.client.brain.brain_token import (
    ACCOUNTS,
    PEOPLES_ACCOUNT,
    Account,
    BrainToken,
    own_account,
    parsed,
)
from penstock.client.errors import (
    BrainAddressError,
    ClusterError,
    ForbiddenError,
    ObjectNotFoundError,
)
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import ClusterAccess, Json
from penstock.client.kubernetes.resources import CONFIG_MAPS, SERVICES, ClusterCall
from penstock.client.token import Token, TokenFile
from penstock.client.trust import Trust, TrustFile, trusting
from penstock.crds.environment import BRAIN_CA_FILE, BRAIN_TOKEN_FILE
from penstock.crds.group import SYSTEM_NAMESPACE

URL_VARIABLE: Final = "PENSTOCK_BRAIN_URL"
TOKEN_VARIABLE: Final = "PENSTOCK_BRAIN_TOKEN"
NAMESPACE_VARIABLE: Final = "PENSTOCK_SYSTEM_NAMESPACE"
ACCOUNT_VARIABLE: Final = "PENSTOCK_BRAIN_ACCOUNT"
SERVICE_LABELS: Final = "app.kubernetes.io/name=penstock,app.kubernetes.io/component=brain"
UP_FOLDER: Final = Path(".penstock")
"""Where ``penstock up`` keeps its files unless told otherwise."""
FORWARD_SECONDS: Final = 20.0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
AUTHORITY: Final = "penstock-brain-ca"
"""ConfigMap in which the chart publishes whose certificate the Brain shows."""
SAY_WHERE: Final = f"give its address with --brain or ${URL_VARIABLE}"


@dataclass
class BrainAddress:
    """Where the Brain is reached and with which token. Close it: a forwarded port ends then."""

    url: str
    token: Token
    how: str
    """How it was found, for people."""
    _forward: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    trust: Trust = True
    """Whom to trust, of a Brain with TLS."""

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
    namespace: str | None = None,
    account: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> BrainAddress:
    """The Brain of the cluster that the client reaches.

    Args:
        cluster: the client.
        url: the address, where the caller knows it.
        token: what the Brain is shown; else $PENSTOCK_BRAIN_TOKEN, else as the module says.
        namespace: of the Brain's Service; else $PENSTOCK_SYSTEM_NAMESPACE, else penstock-system.
        account: NAMESPACE/NAME of the ServiceAccount as which to call a Brain that was found; else
            $PENSTOCK_BRAIN_ACCOUNT, else the caller's own, else that of the chart for people.
        environ: the variables.

    Raises:
        BrainAddressError: Nobody said where the Brain is, and it could not be found.
    """
    access = cluster.access
    token = token or environ.get(TOKEN_VARIABLE) or _token_file(environ)
    trust = _trust_file(environ)
    place = namespace or environ.get(NAMESPACE_VARIABLE) or SYSTEM_NAMESPACE
    if url:
        shown = token or _token_for_address(cluster, place, account, environ)
        return BrainAddress(_address(url, "of the Brain"), shown, "as given", trust=trust)
    if url := environ.get(URL_VARIABLE):
        how = f"${URL_VARIABLE}"
        shown = token or _token_for_address(cluster, place, account, environ)
        return BrainAddress(_address(url, f"in {how}"), shown, how, trust=trust)
    if beside := _beside(access):
        url, own = beside
        return BrainAddress(url, token or own or _cluster_token(access), "penstock up")
    service = _service(cluster, place)
    name = service["metadata"]["name"]
    scheme, port = _port(service)
    if scheme == "https" and trust is True:
        trust = _published_trust(cluster, place)
    token = token or _found_brains_token(cluster, place, account, environ)
    if access.kubeconfig is None:
        return BrainAddress(f"{scheme}://{name}.{place}.svc:{port}", token, "Service", trust=trust)
    local, process = _forwarded(access, name, place, port)
    url = f"{scheme}://127.0.0.1:{local}"
    return BrainAddress(url, token, "kubectl port-forward", process, trust)


def _port(service: Json) -> tuple[str, int]:
    """Scheme and port of a Brain's Service; TLS, where it offers both."""
    ports = (service.get("spec") or {}).get("ports") or [{"port": BRAIN}]
    for one in ports:
        if one.get("name") == "https" or one.get("appProtocol") == "https":
            return "https", int(one["port"])
    return "http", int(ports[0]["port"])


def _trust_file(environ: Mapping[str, str]) -> Trust:
    """What the variable names, else what this machine trusts."""
    path = environ.get(BRAIN_CA_FILE)
    return TrustFile(Path(path)) if path else True


def _published_trust(cluster: ClusterClient, namespace: str) -> Trust:
    """What the chart publishes beside the Brain; without it, what this machine trusts."""
    try:
        found = cluster.send(ClusterCall(method="GET", path=CONFIG_MAPS.path(namespace, AUTHORITY)))
    except (ForbiddenError, ObjectNotFoundError):
        return True
    except ClusterError as error:
        raise BrainAddressError(f"the Brain's certificate authority: {error}") from error
    pem = str((found.get("data") or {}).get("ca.crt", ""))
    return trusting(pem, f"ConfigMap {AUTHORITY} in namespace {namespace}")


def _token_file(environ: Mapping[str, str]) -> Token:
    path = environ.get(BRAIN_TOKEN_FILE)
    return TokenFile(Path(path)) if path else None


def _token_for_address(
    cluster: ClusterClient, place: str, account: str | None, environ: Mapping[str, str]
) -> Token:
    """For an address that the caller has given: one for a Brain alone, where the cluster has any.

    Where nobody made accounts for people, as without the chart, it is the caller's own.
    """
    if not account and not environ.get(ACCOUNT_VARIABLE) and not _has_account(cluster, place):
        return _cluster_token(cluster.access)
    return _found_brains_token(cluster, place, account, environ)


def _has_account(cluster: ClusterClient, place: str) -> bool:
    """Whether the chart's account for people is there, as far as can be seen."""
    try:
        cluster.send(ClusterCall(method="GET", path=ACCOUNTS.path(place, PEOPLES_ACCOUNT)))
    except ForbiddenError:
        return True  # it may be there: a token for it is asked for
    except ClusterError:
        return False
    return True


def _found_brains_token(
    cluster: ClusterClient, place: str, account: str | None, environ: Mapping[str, str]
) -> BrainToken:
    """A token that is of use to a Brain alone: who answers there may be anybody."""
    if account:
        chosen = parsed(account, "the account for the Brain")
    elif named := environ.get(ACCOUNT_VARIABLE):
        chosen = parsed(named, f"${ACCOUNT_VARIABLE}")
    else:
        chosen = own_account(cluster) or Account(place, PEOPLES_ACCOUNT)
    token = BrainToken(cluster.access, chosen)
    token.take(cluster)
    return token


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


def _beside(access: ClusterAccess) -> tuple[str, Token] | None:
    """The address in the state file of ``penstock up``, and the token for it.

    That is the file beside this very kubeconfig, where ``penstock up`` wrote both, or the one in
    its usual folder, where that says that it is for this cluster (``up --external``).

    Raises:
        BrainAddressError: Another user could have written it.
    """
    first = (access.kubeconfig or "").split(os.pathsep)[0]
    if not first:
        return None
    for folder in (Path(first).parent, UP_FOLDER):
        path = folder / "state.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with path.open("rb") as file:
                about = os.fstat(file.fileno())
                state = json.load(file)
            url = str(state["components"]["brain"]["url"])
            server = str(state.get("api_server", ""))  # of a cluster that it did not start
            ours = _same(server, access.server) if server else folder == Path(first).parent
            if not (url and ours):
                continue
            if about.st_uid != os.getuid() or about.st_mode & _OTHERS_WRITE:
                raise BrainAddressError(
                    f"{path} says where the Brain is, but others may have written it: it must be "
                    f"your own and writable by you alone (chmod go-w); or {SAY_WHERE}"
                )
            return url, TokenFile(folder / "brain-token") if server else None
    return None


def _same(server: str, other: str) -> bool:
    return server.rstrip("/") == other.rstrip("/")


def _service(cluster: ClusterClient, namespace: str) -> Json:
    """The one Service of a Brain in the namespace; anybody may label one in their own."""
    try:
        found = cluster.list(SERVICES, namespace, labels=SERVICE_LABELS)
    except ClusterError as error:
        raise BrainAddressError(f"the Brain was not found: {error}; {SAY_WHERE}") from error
    if not found:
        raise BrainAddressError(
            f"no Service of a Brain in namespace {namespace}; name that of the release with "
            f"--system-namespace or ${NAMESPACE_VARIABLE}, or {SAY_WHERE}"
        )
    if len(found) > 1:
        names = ", ".join(sorted(each["metadata"]["name"] for each in found))
        raise BrainAddressError(
            f"{len(found)} Services of a Brain in namespace {namespace}, and which is meant is not "
            f"known: {names}; {SAY_WHERE}"
        )
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
