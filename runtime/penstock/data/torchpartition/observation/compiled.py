"""What a program has compiled (`torch.compile`): code is compiled for the values that it is given.

A compiled module gets plain tensors at its door
(`penstock.data.torchpartition.observation.modules`). A function has none, and neither has a method
of a module other than its ``forward``, unless it was compiled while a step was looked at
(`penstock.data.torchpartition.observation.compiling`).
"""

from __future__ import annotations

import gc
import inspect
import sys
import types
from typing import Any, Final

import torch

_ORIGINAL: Final = "_torchdynamo_orig_callable"
_LEFT_ALONE: Final = "_torchdynamo_disable"
_CALLS: Final = ("_call_impl", "_wrapped_call_impl", "_call")
"""Methods of modules that `torch.compile` takes for the module; the last is a looked at one's."""


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether compiled code runs when a module is called: for all of it, or its ``forward``."""
    if module._compiled_call_impl is not None or "_orig_mod" in module._modules:
        return True
    own = vars(module).get("forward")
    return own is not None and _original_of(own) is not None


def compiled_function() -> str:
    """The name of a function that `torch.compile` made, and that has no door; "": there is none.

    It takes long only in a program that has compiled something.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is None or not getattr(compiler, "cached_backends", None):
        return ""
    for one in gc.get_objects():
        # Most functions have no dict, and to ask for it would make them one.
        if type(one) is not types.FunctionType or getattr(one, _ORIGINAL, None) is None:
            continue
        original = _original_of(one)
        if original is not None and not _has_door(one, original) and not _is_pytorchs(one):
            return str(getattr(original, "__qualname__", "")) or "a function"
    return ""


def _original_of(compiled: Any) -> Any:
    """What was compiled; None: it was not compiled, or is left alone."""
    found = getattr(compiled, "__dict__", {})
    return None if found.get(_LEFT_ALONE) else found.get(_ORIGINAL)


def _has_door(compiled: Any, original: Any) -> bool:
    """Whether it is called where a module is, and nowhere else as far as is known."""
    if getattr(original, "__globals__", {}).get("__name__", "").startswith("torch."):
        original = inspect.unwrap(original)  # round what is PyTorch's own it compiles a function
    if isinstance(original, torch.nn.Module):
        return True
    module = getattr(original, "__self__", None)
    if not isinstance(module, torch.nn.Module):
        return False
    return original.__name__ in _CALLS or vars(module).get("forward") is compiled


def _is_pytorchs(compiled: Any) -> bool:
    """Whether a module of PyTorch has compiled it for itself."""
    name = getattr(compiled, "__module__", None) or ""
    home = sys.modules.get(name) if name.startswith("torch.") else None
    return home is not None and any(one is compiled for one in vars(home).values())
