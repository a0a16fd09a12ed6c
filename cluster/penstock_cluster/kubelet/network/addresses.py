"""Pod addresses: one of 127.0.0.0/8 for each pod, so that ports of different pods never clash.

Every cluster on this machine takes a /16 of its own, held by an abstract Unix socket: the kernel
gives the name to one process only and takes it back when that process ends, however it ends. Where
the machine has 127.0.0.1 only (macOS), all pods have that and must not use the same ports.
"""

from __future__ import annotations

import random
import socket
from collections import deque

FIRST_BLOCK, LAST_BLOCK = 64, 250
LOOPBACK = "127.0.0.1"


class AddressError(Exception):
    """No address is left; the message says what to do."""


class AddressBlock:
    """The pod addresses of one cluster; ``close`` gives the block back."""

    def __init__(self) -> None:
        self._lock: socket.socket | None = None
        self.number = self._take_block()
        self._next = 1
        self._free: deque[str] = deque()
        self._held: dict[str, str] = {}

    def _take_block(self) -> int | None:
        if not has_loopback_block():
            return None
        candidates = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
        random.shuffle(candidates)
        for number in candidates:
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                lock.bind(f"\0penstock-pods-127.{number}")
            except OSError:
                lock.close()
                continue
            self._lock = lock
            return number
        raise AddressError(
            f"all blocks 127.{FIRST_BLOCK}.0.0/16 to 127.{LAST_BLOCK}.0.0/16 are held by other "
            "embedded clusters on this machine; stop one of them"
        )

    def assign(self, pod_uid: str) -> str:
        """The address of a pod; the same for the same pod. An address is reused late."""
        if self.number is None:
            return LOOPBACK
        held = self._held.get(pod_uid)
        if held is not None:
            return held
        if self._next < 0xFF00:
            address = f"127.{self.number}.{self._next >> 8}.{self._next & 0xFF}"
            self._next += 1
        elif self._free:
            address = self._free.popleft()
        else:
            raise AddressError("65,279 pods hold an address; delete some")
        self._held[pod_uid] = address
        return address

    def release(self, pod_uid: str) -> None:
        address = self._held.pop(pod_uid, None)
        if address is not None:
            self._free.append(address)

    @property
    def reserved(self) -> str:
        """An address of the block that no pod ever gets."""
        return LOOPBACK if self.number is None else f"127.{self.number}.255.254"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def has_loopback_block() -> bool:
    """Whether all of 127.0.0.0/8 is this machine, as on Linux."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.64.0.1", 0))
        except OSError:
            return False
    return True
