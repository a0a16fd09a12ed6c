"""Which GPUs of this machine a pod has, and how its containers are told.

What a device plug-in and a container runtime do between them: a pod that asks for some has them to
itself from its admission to its end, whatever restarts meanwhile, and a container that asks for
none sees none. Only there being no mount namespace, a container is told and not prevented, and
devices have the names that they have on the machine.

Nothing is kept for a later kubelet: no process of a pod outlives the one that started it.

Nodes may declare more devices than the machine has. Then pods share them fairly, those that fewest
hold first; on a machine with none the names are numbers, so that what was asked for can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from penstock_cluster.gpus import CUDA_VISIBLE_DEVICES, GPU, NVIDIA_VISIBLE_DEVICES
from penstock_cluster.requests import container_requests, is_sidecar, pod_requests

Json = Mapping[str, Any]


class DeviceAllocator:
    """Who holds which device, by pod; of all nodes, as they are on one machine."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = tuple(devices)
        self._held: dict[str, tuple[str, ...]] = {}

    def assign(self, pod_uid: str, pod: Json) -> tuple[str, ...]:
        """The devices of a pod: as many as it asks for, or all where there are fewer.

        The same for the same pod until it gives them back.
        """
        if pod_uid not in self._held and (wanted := pod_requests(pod).get(GPU, 0)):
            self._held[pod_uid] = self._choose(wanted)
        return self._held.get(pod_uid, ())

    def release(self, pod_uid: str) -> None:
        """Give back what a pod held; nothing happens for one that held nothing."""
        self._held.pop(pod_uid, None)

    def _choose(self, wanted: int) -> tuple[str, ...]:
        holders = Counter(device for held in self._held.values() for device in held)
        if self._devices:
            return tuple(sorted(self._devices, key=lambda one: holders[one])[:wanted])
        free = (name for number in count() if (name := str(number)) not in holders)
        return tuple(next(free) for _ in range(wanted))


def container_devices(spec: Json, held: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The devices of each container of a pod that holds these.

    Containers and sidecars have their own; a one-shot init container uses those that come after
    the sidecars before it, which later containers have once it has ended.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken = 0
    for container in spec.get("initContainers") or ():
        found[container["name"]] = _part(container, held, taken)
        if is_sidecar(container):
            taken += container_requests(container).get(GPU, 0)
    for container in spec["containers"]:
        found[container["name"]] = _part(container, held, taken)
        taken += container_requests(container).get(GPU, 0)
    return found


def device_variables(devices: Sequence[str]) -> dict[str, str]:
    """How a container is told: by CUDA's variable and by the container runtime's."""
    names = ",".join(devices)
    return {CUDA_VISIBLE_DEVICES: names, NVIDIA_VISIBLE_DEVICES: names or "void"}


def _part(container: Json, held: Sequence[str], start: int) -> tuple[str, ...]:
    """So many as the container asks for, from one place on; from the front again at the end."""
    wanted = container_requests(container).get(GPU, 0) if held else 0
    return tuple(dict.fromkeys(held[(start + index) % len(held)] for index in range(wanted)))
