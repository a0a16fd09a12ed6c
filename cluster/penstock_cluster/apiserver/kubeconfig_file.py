"""The administrator's kubeconfig: its text, and writing it to a file.

It holds a token or a key with all rights, so that the file is its owner's alone from its first
byte. It is whole or as it was before, also on a full disk, and never takes the place of a file that
somebody else wrote: a cluster in ``~/.kube/config`` would be lost with it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

_CERTIFIED = ("client-certificate-data", "client-key-data")
_USERS = (["token"], sorted(_CERTIFIED))


def kubeconfig(
    url: str, user: str | tuple[bytes, bytes], name: str, ca_pem: bytes | None = None
) -> str:
    """A kubeconfig with one cluster, user and context; ``user``: token, or certificate and key."""
    cluster: dict[str, str] = {"server": url}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    if isinstance(user, str):
        shown = {"token": user}
    else:
        shown = {
            key: base64.b64encode(pem).decode() for key, pem in zip(_CERTIFIED, user, strict=True)
        }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": shown}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
        ],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def replace_kubeconfig(path: Path, text: str) -> None:
    """Put a kubeconfig in the place of nothing, or of an earlier one of such a cluster.

    Raises:
        FileExistsError: the file holds something else.
        OSError: it cannot be written; what was there before still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # a pipe or a terminal, where nothing is lost
        path.write_text(text)
        return
    target = path.resolve()  # a link stays one
    if target.exists() and not _is_ours(target.read_bytes(), text):
        raise FileExistsError(
            f"{path}: not overwritten, since it is no kubeconfig of penstock-cluster's; choose "
            "another file for the kubeconfig, or move this one away"
        )
    # Made with mode 0600, whatever the one that it replaces had.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _is_ours(found: bytes, text: str) -> bool:
    """Whether nothing but one cluster by the name of that in ``text``, with its user, is in it."""
    if not found.strip():
        return True
    try:
        before = yaml.safe_load(found)
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    return _shape(before) is not None and _shape(before) == _shape(yaml.safe_load(text))


def _shape(document: Any) -> tuple[str, str] | None:
    """The names of the only cluster and user, who has what ours have; None: it has other ones."""
    try:
        (cluster,), (user,) = document["clusters"], document["users"]
        return (cluster["name"], user["name"]) if sorted(user["user"]) in _USERS else None
    except (TypeError, KeyError, ValueError):
        return None
