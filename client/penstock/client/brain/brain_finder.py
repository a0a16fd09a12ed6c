"""The Brain of a namespace for the SDK: looked for once, on the first use, and closed with it.

The two forms are no twins: without an event loop there is nothing to be cancelled in, and with one
the search is a thread that cannot be.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.client.brain.async_brain_client import AsyncBrainClient
from penstock.client.brain.brain_address import BrainAddress, find_brain
from penstock.client.brain.brain_client import BrainClient
from penstock.client.errors import PenstockError
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import ClusterAccess
from penstock.client.retry import RetryPolicy
from penstock.client.token import Token

_CLOSED: Final = "the SDK's client is closed; make another"


@dataclass(frozen=True)
class BrainSearch:
    """Which Brain is meant, and how patient to be with it; see `find_brain` for the fields."""

    access: ClusterAccess
    url: str | None = None
    token: Token = None
    account: str | None = None
    system_namespace: str | None = None
    retry: RetryPolicy | None = None

    def find(self) -> BrainAddress:
        """Look for it.

        Raises:
            BrainAddressError: Nobody said where the Brain is, and it could not be found.
            ClusterError: A call to the Kubernetes API did not succeed.
        """
        with ClusterClient(self.access) as cluster:
            return find_brain(
                cluster,
                self.url,
                self.token,
                namespace=self.system_namespace,
                account=self.account,
            )


class BrainFinder:
    """One Brain's client, found when it is first asked for."""

    def __init__(self, search: BrainSearch) -> None:
        self._search = search
        self.address: BrainAddress | None = None
        self._client: BrainClient | None = None
        self._closed = False

    def client(self) -> BrainClient:
        """The client.

        Raises:
            BrainAddressError: No Brain is found.
            RuntimeError: It was closed.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        if self._client is None:
            self.address = self._search.find()
            self._client = BrainClient(
                self.address.url,
                token=self.address.token,
                retry=self._search.retry,
                verify=self.address.trust,
            )
        return self._client

    def close(self) -> None:
        """Close the client, and a port forwarded to the Brain."""
        self._closed = True
        if self._client is not None:
            self._client.close()
        if self.address is not None:
            self.address.close()


class AsyncBrainFinder:
    """The same for asyncio: one search, however many tasks ask for the client."""

    def __init__(self, search: BrainSearch) -> None:
        self._search = search
        self.address: BrainAddress | None = None
        self._client: AsyncBrainClient | None = None
        self._finding = asyncio.Lock()
        self._closed = False

    async def client(self) -> AsyncBrainClient:
        """The client.

        Raises:
            BrainAddressError: No Brain is found.
            RuntimeError: It was closed.
        """
        async with self._finding:
            if self._closed:
                raise RuntimeError(_CLOSED)
            if self._client is None:
                address = await self._found()
                self._client = AsyncBrainClient(
                    address.url,
                    token=address.token,
                    retry=self._search.retry,
                    verify=address.trust,
                )
            return self._client

    async def _found(self) -> BrainAddress:
        if self.address is not None:  # found for a caller who was cancelled
            return self.address
        # A thread cannot be cancelled: whoever is, waits for it and keeps what it found, so that a
        # forwarded port is closed with the rest.
        search = asyncio.ensure_future(asyncio.to_thread(self._search.find))
        try:
            self.address = await asyncio.shield(search)
        except asyncio.CancelledError:
            with suppress(PenstockError):
                self.address = await search
            raise
        return self.address

    async def aclose(self) -> None:
        """Close the client, and a port forwarded to the Brain."""
        self._closed = True
        if self._client is not None:
            await self._client.aclose()
        if self.address is not None:
            await asyncio.to_thread(self.address.close)
