"""Which of the devices that NVML shows are the program's: pure.

``CUDA_VISIBLE_DEVICES`` says it as CUDA reads it: indices, UUIDs or the beginning of a UUID, and
the first that fits nothing ends the list. Without it ``NVIDIA_VISIBLE_DEVICES`` does, which a
container runtime has acted on already: its indices are those of the host, and NVML shows just the
devices that they name. Without either, all are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
NVIDIA_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_NOBODYS: Final = frozenset({"", "void", "none"})


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device as NVML lists it; one in MIG mode with the UUIDs of the slices that are shown."""

    uuid: str
    slices: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What of it a program computes on: its slices, where it is cut into some."""
        return self.slices or (self.uuid,)


def visible_devices(environ: Mapping[str, str], listed: Sequence[ListedDevice]) -> tuple[str, ...]:
    """UUIDs of the devices and MIG slices that are the program's, in its order."""
    if (named := environ.get(CUDA_VISIBLE_DEVICES)) is not None:
        return _named(_tokens(named), listed)
    given = environ.get(NVIDIA_VISIBLE_DEVICES)
    everything = tuple(part for device in listed for part in device.parts)
    if given is None or given.strip() == "all":
        return everything
    if given.strip() in _NOBODYS:
        return ()
    tokens = _tokens(given)
    if all(token.isdecimal() for token in tokens) and len(listed) <= len(tokens):
        return everything
    return _named(tokens, listed)


def _tokens(text: str) -> list[str]:
    return [token.strip() for token in text.split(",")]


def _named(tokens: Sequence[str], listed: Sequence[ListedDevice]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for token in tokens:
        parts = _parts(token, listed)
        if not parts:
            break
        found.update(dict.fromkeys(parts))
    return tuple(found)


def _parts(token: str, listed: Sequence[ListedDevice]) -> tuple[str, ...]:
    """What one entry names; nothing where it names nothing, or no one thing."""
    if token.isdecimal():
        index = int(token)
        return listed[index].parts if index < len(listed) else ()
    if token.startswith("MIG-"):
        slices = [part for one in listed for part in one.slices if part.startswith(token)]
        return tuple(slices) if len(slices) == 1 else ()
    if not token.startswith("GPU-"):
        return ()
    fitting = [one.parts for one in listed if one.uuid.startswith(token)]
    return fitting[0] if len(fitting) == 1 else ()
