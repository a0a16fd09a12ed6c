"""The names by which any process finds a function of PyTorch, and what is known of some by name."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.overrides import resolve_name

MAX_NAMES: Final = 10_000

_PROPERTIES: Final = (
    "device", "dtype", "grad", "grad_fn", "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mkldnn",
    "is_mps", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla",
    "is_xpu", "itemsize", "layout", "name", "names", "nbytes", "ndim", "output_nr",
    "requires_grad", "retains_grad", "shape", "_version",
)  # fmt: skip
_METHODS: Final = (
    "__len__", "dim", "element_size", "get_device", "has_names", "is_complex", "is_conj",
    "is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_signed", "ndimension",
    "nelement", "numel", "size", "storage_offset", "stride",
)  # fmt: skip
_FUNCTIONS: Final = ("is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg",
                     "is_signed", "numel")  # fmt: skip

DESCRIBING: Final = frozenset(
    [f"torch.Tensor.{one}.__get__" for one in _PROPERTIES]
    + [f"torch.Tensor.{one}" for one in _METHODS]
    + [f"torch.{one}" for one in _FUNCTIONS]
)
"""They say what a tensor is like and read none of its numbers."""
EXPOSING: Final = frozenset(
    f"torch.Tensor.{one}"
    for one in (
        "__array__", "__cuda_array_interface__.__get__", "__dlpack__", "_cdata.__get__",
        "_typed_storage", "data.__get__", "data.__set__", "data_ptr", "numpy", "set_",
        "share_memory_", "storage", "untyped_storage",
    )
)  # fmt: skip
"""They give away a tensor's memory: what is written to it later, nobody counts."""

_names: Final[dict[Any, str]] = {}


def name_of(function: Any) -> str:
    """The dotted name that `function_named` takes; "": it has none."""
    try:
        return _names[function]
    except KeyError:
        pass
    except TypeError:  # it cannot be hashed
        return ""
    found = _name(function)
    if len(_names) < MAX_NAMES:
        _names[function] = found
    return found


def function_named(name: str) -> Any:
    """The function of a name; AttributeError where this PyTorch has none."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def _name(function: Any) -> str:
    name = resolve_name(function) or ""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = f"torch.ops.{name}"
    try:
        return name if name and function_named(name) == function else ""
    except AttributeError:
        return ""
