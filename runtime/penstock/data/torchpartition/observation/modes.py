"""`Surroundings` as a tuple that costs a microsecond: it is asked for with each matched call."""

from __future__ import annotations

from typing import Any, Final

import torch

from penstock.data.offloading.surroundings import Surroundings

_is_grad_enabled: Final = torch.is_grad_enabled
_is_inference: Final = torch.is_inference_mode_enabled
_is_autocast: Final = torch.is_autocast_enabled
_autocast_dtype: Final = torch.get_autocast_dtype
_default_dtype: Final = torch.get_default_dtype
_deterministic: Final = torch._C._get_deterministic_algorithms
_precision: Final = torch._C._get_float32_matmul_precision
_mkldnn: Final = torch._C._get_mkldnn_enabled


def modes_now() -> tuple[Any, ...]:
    """Of this thread."""
    return (
        _is_grad_enabled(),
        _is_inference(),
        _autocast_dtype("cpu") if _is_autocast("cpu") else None,
        _default_dtype(),
        _deterministic(),
        _precision(),
        _mkldnn(),
    )


def modes_of(surroundings: Surroundings) -> tuple[Any, ...]:
    """What `modes_now` gives in these."""
    return (
        surroundings.grad,
        surroundings.inference,
        getattr(torch, surroundings.autocast) if surroundings.autocast else None,
        getattr(torch, surroundings.default_dtype),
        surroundings.deterministic,
        surroundings.precision,
        surroundings.mkldnn,
    )
