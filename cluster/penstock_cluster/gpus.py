"""The GPUs of this machine, as CUDA names them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

GPU: Final = "nvidia.com/gpu"
"""The resource by which a pod asks for some."""
CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
NVIDIA_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_DEVICE_FILE: Final = re.compile(r"nvidia[0-9]+")


def machine_gpus(
    environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")
) -> tuple[str, ...]:
    """Those that this process may use: what it was told, or else one for each device file."""
    if (told := environ.get(CUDA_VISIBLE_DEVICES)) is not None:
        names = [token.strip() for token in told.split(",")]
        return () if names[0] in {"", "-1"} else tuple(dict.fromkeys(names))
    files = [path for path in devices.glob("nvidia*") if _DEVICE_FILE.fullmatch(path.name)]
    return tuple(map(str, range(len(files))))
