"""Who a process is and how it reaches its cluster: configuration, account, identity, namespace."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import uuid4

from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from penstock.base.kubeconfig import named, named_or_home
from penstock.crds.group import SYSTEM_NAMESPACE
from penstock.kube.errors import ConfigurationError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS: Final = 64
"""More than a process makes calls at once, its watches included."""


def make_identity() -> str:
    """A name that no other replica has, now or earlier."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def own_namespace() -> str:
    """The namespace that the process's own pod is in; outside a cluster, that of the chart."""
    return _namespace_of_pod() or SYSTEM_NAMESPACE


def in_pod() -> bool:
    """Whether the process runs in a pod."""
    return bool(_namespace_of_pod())


def _namespace_of_pod() -> str:
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def account_token(kubeconfig: Path | None) -> Path | None:
    """The file of the pod's own token, if that is what `connect` uses; it is renewed in place."""
    path = _ACCOUNT / "token"
    return path if named(kubeconfig) is None and path.exists() else None


async def connect(kubeconfig: Path | None, user_agent: str) -> ApiClient:
    """A client for the cluster of a kubeconfig, of ``$KUBECONFIG``, or the one it runs in.

    Args:
        kubeconfig: the file that an option names.
        user_agent: what the API server's audit log calls this process.

    Raises:
        ConfigurationError: there is no usable configuration.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = _CONNECTIONS
    # The configuration has its own proxy; with trust_env, every request looks for one and for a
    # netrc in a thread, which costs a third of its CPU time.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        if account_token(kubeconfig) is not None:
            # The library is untyped here.
            kube_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            # The library is untyped here.
            await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=named_or_home(kubeconfig), client_configuration=configuration
            )
    except (kube_config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"cannot use the kubeconfig {named_or_home(kubeconfig)}: {error}; name another "
            "with --kubeconfig"
        ) from error
    _use_proxy_of_environment(configuration)
    client = ApiClient(configuration)
    client.user_agent = user_agent
    return client


async def bearer_token(configuration: Configuration) -> str:
    """The token that a configuration sends to its API server, renewed where due; "" for none.

    The library keeps the whole header, and its loaders do not agree on how to write the scheme:
    ``bearer`` in a cluster, ``Bearer`` from a kubeconfig.
    """
    header = (await configuration.get_api_key_with_prefix("BearerToken") or "").strip()
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else header


def _use_proxy_of_environment(configuration: Configuration) -> None:
    """The proxy of ``HTTPS_PROXY`` and its like, unless the kubeconfig names one."""
    place = urlsplit(configuration.host)
    if not configuration.proxy and place.hostname and not proxy_bypass(place.hostname):
        configuration.proxy = getproxies().get(place.scheme)
