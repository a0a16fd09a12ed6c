"""Addresses that a pod cannot reach: a file in its folder, which its processes read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock_cluster.kubelet.network.hosts import write_atomically


class Blocklist:
    """Addresses whose connections from one pod go unanswered."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "blocked"
        self._blocked: set[str] = set()

    def block(self, addresses: Iterable[str]) -> None:
        """New connections to these go unanswered; ``pods`` stands for all pods."""
        self._blocked.update(addresses)
        self._write()

    def unblock(self, addresses: Iterable[str] | None = None) -> None:
        """Answer them again; None: all."""
        if self._blocked:
            self._blocked -= self._blocked.copy() if addresses is None else set(addresses)
            self._write()

    def close(self) -> None:
        """The pod has ended: there is nothing left to unblock."""
        self._blocked.clear()

    def _write(self) -> None:
        write_atomically(self._path, "\n".join(sorted(self._blocked)))
