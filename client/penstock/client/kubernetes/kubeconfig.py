"""How to reach a cluster and be known to it: what a kubeconfig says, read as kubectl reads it.

Several files of ``$KUBECONFIG`` are merged, the first to name a thing wins. Without any file, a
process in a pod uses its service account. Nothing is written, and no secret goes into a message.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from penstock.base import yaml_text as yamltext
from penstock.base.kubeconfig import named_or_home
from penstock.client.address import address
from penstock.client.errors import KubeconfigError
from penstock.client.token import is_token

EXEC_TIMEOUT_SECONDS: Final = 60.0
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """Where the API server is, and how to be known to it."""

    server: str
    namespace: str
    """Of the context; ``default`` where it names none."""
    context: str = ""
    source: str = ""
    """Where this was read, for messages."""
    kubeconfig: str | None = None
    """The files, joined by `os.pathsep`; None in a pod."""
    verify: ssl.SSLContext | bool = True
    token: Callable[[], str | None] = field(default=lambda: None)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of every request: a basic password, or whom to act as."""
    proxy: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, where it is not that of the address."""


def read_access(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> ClusterAccess:
    """The access that an option, ``$KUBECONFIG``, ``~/.kube/config`` or a pod's account give.

    Raises:
        KubeconfigError: There is no kubeconfig, or it does not say how to reach a cluster.
    """
    files = named_or_home(kubeconfig)
    present = [Path(each) for each in files.split(os.pathsep) if each and Path(each).exists()]
    if not present:
        if kubeconfig is None and context is None and _in_pod(environ):
            return _of_pod(environ)
        raise KubeconfigError(
            f"no kubeconfig at {files}: name one with --kubeconfig or $KUBECONFIG "
            "(`penstock up` starts a cluster and says which)"
        )
    clusters: dict[str, tuple[Json, Path]] = {}
    users: dict[str, tuple[Json, Path]] = {}
    contexts: dict[str, tuple[Json, Path]] = {}
    current = ""
    for path in present:
        document = _document(path)
        current = current or str(document.get("current-context") or "")
        for plural, singular, into in (
            ("clusters", "cluster", clusters),
            ("users", "user", users),
            ("contexts", "context", contexts),
        ):
            entries = document.get(plural) or []
            if not isinstance(entries, list):
                raise KubeconfigError(f"{path} is not a kubeconfig: {plural} is no list")
            for entry in entries:
                if isinstance(entry, Mapping) and isinstance(entry.get(singular) or {}, Mapping):
                    into.setdefault(str(entry.get("name")), (dict(entry.get(singular) or {}), path))
    chosen = context or current
    where = ", ".join(map(str, present))
    if not chosen:
        raise KubeconfigError(f"{where}: no current-context; choose one with --context")
    if chosen not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise KubeconfigError(f"{where}: no context {chosen!r}; there are: {known}")
    of_context = contexts[chosen][0]
    cluster, cluster_file = _named(clusters, of_context, "cluster", chosen, where)
    user: Json = {}
    user_file = cluster_file
    if of_context.get("user"):
        user, user_file = _named(users, of_context, "user", chosen, where)
    said_by = f"{cluster_file}: cluster {of_context['cluster']!r}"
    proxy = cluster.get("proxy-url")
    return ClusterAccess(
        server=_address(cluster.get("server"), f"{said_by}: server"),
        namespace=str(of_context.get("namespace") or "default"),
        context=chosen,
        source=where,
        kubeconfig=files,
        verify=_verification(cluster, cluster_file, user, user_file),
        token=_token(user, user_file),
        headers=_headers(user, user_file),
        proxy=_address(proxy, f"{said_by}: proxy-url") if proxy else None,
        server_name=cluster.get("tls-server-name") or None,
    )


def _document(path: Path) -> Json:
    try:
        found = yamltext.documents(path.read_text(encoding="utf-8"), unique_keys=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise KubeconfigError(f"{path} cannot be read: {reason}") from error
    except ValueError as error:
        raise KubeconfigError(f"{path} is not a kubeconfig: {error}") from error
    document = found[0] if found else None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig: clusters, users and contexts expected")
    return document


def _address(given: Any, where: str) -> str:
    try:
        return address(given)
    except ValueError as error:
        raise KubeconfigError(f"{where}: {error}") from error


def _named(
    entries: Mapping[str, tuple[Json, Path]], context: Json, kind: str, of: str, where: str
) -> tuple[Json, Path]:
    name = str(context.get(kind) or "")
    if name not in entries:
        raise KubeconfigError(f"{where}: context {of!r} names {kind} {name!r}, which is not there")
    return entries[name]


def _bytes(entry: Json, key: str, file: Path) -> bytes | None:
    """What ``KEY-data`` holds, or the file that ``KEY`` names, relative to the kubeconfig."""
    if data := entry.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise KubeconfigError(f"{file}: {key}-data is not base64") from error
    if name := entry.get(key):
        path = file.parent / str(name)
        try:
            return path.read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{file}: {key} {path}: {error.strerror}") from error
    return None


def _verification(
    cluster: Json, cluster_file: Path, user: Json, user_file: Path
) -> ssl.SSLContext | bool:
    if not str(cluster.get("server")).startswith("https://"):
        return True
    authority = _bytes(cluster, "certificate-authority", cluster_file)
    certificate = _bytes(user, "client-certificate", user_file)
    key = _bytes(user, "client-key", user_file)
    try:
        found = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            found.check_hostname = False
            found.verify_mode = ssl.CERT_NONE
        if bool(certificate) != bool(key):
            has, lacks = ("certificate", "key") if certificate else ("key", "certificate")
            raise KubeconfigError(f"{user_file}: the user has a client-{has} and no client-{lacks}")
        if certificate and key:
            _load_certificate(found, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{cluster_file}: a certificate or key cannot be used") from error
    return found


def _load_certificate(into: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module reads files alone. Both are gone as soon as they are read.
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        files = (Path(folder) / "certificate", Path(folder) / "key")
        for path, content in zip(files, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        into.load_cert_chain(*files)


def _headers(user: Json, file: Path) -> dict[str, str]:
    headers = {}
    if user.get("username") and not user.get("token"):
        pair = f"{user['username']}:{user.get('password') or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    if others := sorted({"as-groups", "as-uid", "as-user-extra"} & {*user}):
        raise KubeconfigError(f"{file}: {', '.join(others)} is not understood: use `as` alone")
    if user.get("as"):
        whom = str(user["as"])
        if not (whom.isascii() and whom.isprintable()):
            raise KubeconfigError(f"{file}: as: {whom!r} has characters that no header can carry")
        headers["Impersonate-User"] = whom
    return headers


def _token(user: Json, file: Path) -> Callable[[], str | None]:
    if user.get("auth-provider"):
        raise KubeconfigError(
            f"{file}: auth-provider is no longer part of Kubernetes: use an exec plugin"
        )
    if path := user.get("tokenFile"):
        return _FileToken(file.parent / str(path))
    if token := user.get("token"):
        given = _checked(str(token), f"{file}: the user's token")
        return lambda: given
    if plugin := user.get("exec"):
        return _ExecToken(_plugin(plugin, file), file)
    return lambda: None


def _checked(token: str, whose: str) -> str:
    """The token.

    Raises:
        KubeconfigError: No header can carry it; no word of it is quoted.
    """
    if not is_token(token):
        raise KubeconfigError(f"{whose} has spaces, line ends or characters that no token has")
    return token


def _plugin(given: Any, file: Path) -> Json:
    """The entry of a credential plugin, of which the shape is as it must be."""
    wrong = f"{file}: exec: a command, args and env (each a name and a value) expected"
    if not isinstance(given, dict) or not given.get("command"):
        raise KubeconfigError(wrong)
    if not all(isinstance(given.get(name) or [], list) for name in ("args", "env")):
        raise KubeconfigError(wrong)
    if not all(
        isinstance(each, dict) and {"name", "value"} <= {*each} for each in given.get("env") or ()
    ):
        raise KubeconfigError(wrong)
    return given


@dataclass(frozen=True)
class _FileToken:
    """A token that another process renews in its file."""

    path: Path

    def __call__(self) -> str:
        try:
            token = self.path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"the token {self.path} cannot be read: {error}") from error
        return _checked(token, f"the token in {self.path}")


class _ExecToken:
    """A token from a credential plugin, asked again when it runs out."""

    def __init__(self, plugin: Json, file: Path) -> None:
        self._plugin = plugin
        self._file = file
        self._token: str | None = None
        self._ends = 0.0

    def __call__(self) -> str | None:
        if self._token is None or time.time() > self._ends - 10:
            self._token, self._ends = self._ask()
        return self._token

    def _ask(self) -> tuple[str, float]:
        command = str(self._plugin.get("command") or "")
        program = command
        if os.sep in command and not Path(command).is_absolute():
            program = str(self._file.parent / command)
        version = str(self._plugin.get("apiVersion") or "client.authentication.k8s.io/v1")
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        given = {str(each["name"]): str(each["value"]) for each in self._plugin.get("env") or ()}
        try:
            done = subprocess.run(
                [program, *map(str, self._plugin.get("args") or ())],
                env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
                stdout=subprocess.PIPE,
                timeout=EXEC_TIMEOUT_SECONDS,
                check=True,
            )
            status = json.loads(done.stdout)["status"]
            token = _checked(
                str(status["token"]), f"{self._file}: what {command!r} gave as a token"
            )
            ends = status.get("expirationTimestamp")
            return token, datetime.fromisoformat(ends).timestamp() if ends else float("inf")
        except (OSError, subprocess.SubprocessError) as error:
            hint = str(self._plugin.get("installHint") or "").strip()
            raise KubeconfigError(
                f"{self._file}: the credential plugin {command!r} failed: {error}"
                + (f" ({hint})" if hint else "")
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise KubeconfigError(
                f"{self._file}: the credential plugin {command!r} gave no token, and nothing else "
                "is understood"
            ) from error


def _in_pod(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").is_file()


def _of_pod(environ: Mapping[str, str]) -> ClusterAccess:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = SERVICE_ACCOUNT / "namespace"
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        source="the pod's service account",
        verify=ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        token=_FileToken(SERVICE_ACCOUNT / "token"),
    )
