"""What a computation depends on beside its arguments: it goes with a call to who makes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import torch

from penstock.data.machine import machine

_mkldnn: Final[Any] = torch.backends.mkldnn


@dataclass(frozen=True, slots=True)
class Surroundings:
    """PyTorch's modes and options, but for the number of threads: who makes batches has one."""

    grad: bool
    inference: bool
    autocast: str
    default_dtype: str
    deterministic: bool
    precision: str
    mkldnn: bool

    @staticmethod
    def here() -> Surroundings:
        """Of this thread, now."""
        autocast = torch.is_autocast_enabled("cpu")
        return Surroundings(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            str(torch.get_autocast_dtype("cpu"))[6:] if autocast else "",
            str(torch.get_default_dtype())[6:],
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            bool(_mkldnn.enabled),
        )

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Compute as there; what the process had before is put back.

        Most often nothing differs, or gradients alone: each batch is made in some of these.
        """
        before = Surroundings.here()
        if before == self:
            yield
            return
        if replace(before, grad=self.grad) == self:
            with torch.set_grad_enabled(self.grad):
                yield
            return
        self._set(before)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.inference_mode(self.inference))
                stack.enter_context(torch.set_grad_enabled(self.grad))
                dtype = getattr(torch, self.autocast) if self.autocast else None
                stack.enter_context(torch.autocast("cpu", dtype, enabled=bool(self.autocast)))
                yield
        finally:
            before._set(self)

    def _set(self, other: Surroundings) -> None:
        """Set the options in which ``other``, those of now, differ.

        To set one to what it is may take long: `torch.use_deterministic_algorithms` imports
        PyTorch's compiler, for a second of the processor in each process that has not yet.
        """
        if self.default_dtype != other.default_dtype:
            torch.set_default_dtype(getattr(torch, self.default_dtype))
        if self.deterministic != other.deterministic:
            torch.use_deterministic_algorithms(self.deterministic)
        if self.precision != other.precision:
            torch.set_float32_matmul_precision(self.precision)
        if self.mkldnn != other.mkldnn:
            _mkldnn.enabled = self.mkldnn


@cache
def place() -> str:
    """What results of one computation may differ by: library and processor."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, {machine()}"
