"""Stages on a device: what a stage with a device is given, and where its result goes.

The tensors of a batch are put on the device, and what the stage returns comes back to main memory,
so that a batch is the same wherever the stage ran. All that decides who runs a stage is elsewhere
and knows names only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

CPU: Final = "cpu"
CUDA: Final = "cuda"


def own_devices() -> frozenset[str]:
    """The devices that this process can compute on."""
    torch = sys.modules.get("torch")
    has_cuda = torch is not None and torch.cuda.is_available()
    return frozenset({CPU, CUDA} if has_cuda else {CPU})


def call_on(device: str, function: Callable[[Any], Any], batch: Any) -> Any:
    """Call a stage's function with a batch in main memory; its result is there too."""
    if device == CPU:
        return function(batch)
    return _moved(function(_moved(batch, device)), CPU)


def _moved(value: Any, device: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(one, device) for key, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, device) for one in value]
    if isinstance(value, tuple):
        parts = [_moved(one, device) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
