"""The namespace of the control plane, for a process that runs outside the cluster.

Its Leases lie where those of the chart's pods lie, so that there is one leader for a cluster
wherever the candidates run. In a pod the namespace is there; outside, a cluster may never have
had it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError, ApiUnavailableError, ConfigurationError

logger = logging.getLogger(__name__)

_NOT_FOUND: Final = 404
_EXISTS: Final = 409


async def ensure_namespace(api: Api, name: str, retry_seconds: float) -> None:
    """Make a namespace unless it is there; a server that is away is asked again until it answers.

    Raises:
        ConfigurationError: it is missing and may not be made.
    """
    while True:
        try:
            if not await _is_there(api, name):
                await _make(api, name)
        except ApiUnavailableError as error:
            logger.warning("whether namespace %s is there is not known: %s", name, error)
            await asyncio.sleep(retry_seconds)
        else:
            return


async def _is_there(api: Api, name: str) -> bool:
    """Also where we may not look: whoever may not is not the one who is to make it."""
    try:
        await api.get("namespaces", None, name)
    except ApiRefusedError as error:
        return error.code != _NOT_FOUND
    return True


async def _make(api: Api, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await api.submit("namespaces", None, body)
    except ApiRefusedError as error:
        if error.code != _EXISTS:
            raise ConfigurationError(
                f"namespace {name!r}, for the Leases, is missing and cannot be made: {error}; "
                f"`kubectl create namespace {name}` or choose another with --lease-namespace"
            ) from error
