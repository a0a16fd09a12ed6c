"""Whether a program compiles functions: they would be compiled for the tensors that they are given.

A compiled module is no such problem: it gets plain tensors at its door
(`penstock.data.torchpartition.observation.modules`). A function has none.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Final

import torch

_ORIGINAL: Final = "_torchdynamo_orig_callable"
_LEFT_ALONE: Final = "_torchdynamo_disable"


def compiled_function() -> str:
    """The name of a function that `torch.compile` made; "": there is none.

    It takes long only in a program that has compiled something.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is None or not getattr(compiler, "cached_backends", None):
        return ""
    for one in gc.get_objects():
        if type(one) is not types.FunctionType:
            continue
        original = one.__dict__.get(_ORIGINAL)
        if original is None or one.__dict__.get(_LEFT_ALONE) or _is_of_module(original):
            continue
        name = getattr(original, "__qualname__", "")
        if not (getattr(original, "__module__", "") or "").startswith("torch."):
            return name or "a function"
    return ""


def _is_of_module(function: object) -> bool:
    return isinstance(getattr(function, "__self__", function), torch.nn.Module)
