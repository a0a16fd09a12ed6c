"""Calls faults of a cluster in another process, synchronously.

>>> faults = FaultsClient(url, token)
>>> faults("kill_container", name="job-worker-0-1")
"""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any, Self

import httpx

from penstock_cluster.faults.endpoint import PREFIX

_TIMEOUT_SECONDS = 30.0


class FaultRefusedError(Exception):
    """The cluster refused the fault; the message is its answer."""


class FaultsClient:
    """Carries out faults by name over HTTP."""

    def __init__(self, url: str, token: str, ca_pem: bytes | None = None) -> None:
        """``ca_pem``: the authority of a cluster that serves TLS."""
        verify: ssl.SSLContext | bool = True
        if ca_pem is not None:
            verify = ssl.create_default_context(cadata=ca_pem.decode())
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            verify=verify,
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        )

    def __call__(self, fault: str, **arguments: Any) -> Any:
        """Carry out a fault; its result. Raises FaultRefusedError."""
        answer = self._http.post(f"{PREFIX}/{fault}", json=arguments)
        if answer.status_code != 200:
            raise FaultRefusedError(f"{fault}: {answer.text}")
        return answer.json()["result"]

    def names(self) -> list[str]:
        """The faults that this cluster knows."""
        answer = self._http.get(PREFIX)
        answer.raise_for_status()
        return [each["name"] for each in answer.json()["faults"]]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()
