"""How many processes `--nproc-per-node` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.job.protocol import MAX_RANKS

OPTION: Final = "--nproc-per-node"


def count_processes(text: str, devices: Callable[[], int], cores: Callable[[], float]) -> int:
    """The number of processes that a value of the option means.

    Args:
        text: a number; or ``gpu``, ``cpu`` or ``auto``: one for each visible GPU, for each core
            that the pod may use, or for each GPU if there are any and else for each core.
        devices: counts visible GPUs.
        cores: that this pod may use.

    Raises:
        ValueError: names the value and the rule.
    """
    if text.isascii() and text.isdecimal():
        count = int(text)
        if not 1 <= count <= MAX_RANKS:
            raise ValueError(f"{OPTION}: {text}; must be from 1 to {MAX_RANKS}")
        return count
    match text.lower():
        case "gpu":
            if not (found := devices()):
                raise ValueError(
                    f"{OPTION}: gpu; no GPU is visible here: look at CUDA_VISIBLE_DEVICES, at the "
                    "pod's limits, and whether the image has the driver and nvidia-ml-py "
                    "(penstock[gpu]); or give a number"
                )
            return found
        case "cpu":
            return _whole(cores())
        case "auto":
            return devices() or _whole(cores())
    raise ValueError(f"{OPTION}: {text}; must be a number, gpu, cpu or auto")


def without_device(count: int, devices: int) -> str:
    """What to say where some processes have no device of their own; empty where there is nothing.

    It is no error: processes may train on CPUs, or share devices.
    """
    if not devices or count <= devices:
        return ""
    last = count - 1
    which = f"LOCAL_RANK {devices}" + (f" to {last}" if last > devices else "")
    return (
        f"{OPTION}: {count}; {devices} visible GPU{'s' * (devices > 1)}: {which} have none of "
        "their own, and fail where they ask for it: say gpu, or give the pod as many"
    )


def _whole(cores: float) -> int:
    return min(max(1, int(cores)), MAX_RANKS)
