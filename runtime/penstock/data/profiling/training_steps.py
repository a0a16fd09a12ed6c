"""Which loader of a program is the one that it trains on: between two of its batches it steps.

A validation loop may be the first to be iterated, and asks for its batches with gradients enabled
wherever only its forward pass is without. Optimizers say so when they step, by PyTorch's own hook.
A program that has made no optimizer only reads, or trains in a way that cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class TrainingSteps:
    """Steps of all optimizers of this process."""

    def __init__(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._torch = torch
        self.steps = 0
        self._hook: Any = register_optimizer_step_post_hook(self._note)

    @property
    def may_be_without(self) -> bool:
        """Whether the program trains by no optimizer, as far as can be seen, and reads to train."""
        return bool(self._torch.is_grad_enabled()) and not self._has_optimizer()

    def end(self) -> None:
        """Nothing is counted any more."""
        self._hook.remove()

    def _note(self, *_: Any, **__: Any) -> None:
        self.steps += 1

    def _has_optimizer(self) -> bool:
        """PyTorch marks the method of a class when the first optimizer of it is made."""
        return any(
            getattr(one.step, "hooked", False) for one in _below(self._torch.optim.Optimizer)
        )


def _below(kind: Any) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
