"""What of a model is trained on servers, and by which rule: in place of a ``torch.optim`` one."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from penstock.parameter_server.spec import OptimizerKind, OptimizerSpec


class Stepper(Protocol):
    """The session in which an optimizer makes steps."""

    def step(self) -> None:
        """Hand in the gradients of the present batch."""

    def zero_grad(self) -> None:
        """Forget the gradients of the present batch."""


class Optimizer:
    """SGD or Adagrad for all parameters of a model, as ``torch.optim`` has them, on the servers.

    The rules are those of ``torch.optim.SGD`` (without momentum) and ``torch.optim.Adagrad``
    (without decay); rows of tables that a batch does not look up stay as they are. All workers
    have the same rate, and it stays as it is for the whole job.
    """

    __slots__ = ("_stepper", "model", "spec")  # so that `optimizer.lr = ...` is an error

    def __init__(
        self,
        model: torch.nn.Module,
        rule: str = "adagrad",
        *,
        lr: float = 0.01,
        eps: float = 1e-10,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        """``rule``: "adagrad" or "sgd"; the other arguments are those of ``torch.optim``.

        Raises:
            ValueError: an argument is out of range; names it.
        """
        if not isinstance(model, torch.nn.Module):
            raise ValueError(
                f"model: a {type(model).__name__}; a ps.Optimizer takes the model itself, with its "
                "tables and all other parameters"
            )
        if rule not in tuple(OptimizerKind):
            raise ValueError(f"rule: {rule!r}; one of {', '.join(OptimizerKind)}")
        given: dict[str, Any] = {
            "lr": lr,
            "eps": eps,
            "initial_accumulator_value": initial_accumulator_value,
        }
        for name, value in given.items():
            number = isinstance(value, int | float) and 0 <= value < float("inf")
            if not number or (value == 0 and name == "lr"):
                least = "above 0" if name == "lr" else "of at least 0"
                raise ValueError(f"{name}: {value!r}; a finite number {least}")
        self.model = model
        self.spec = OptimizerSpec(
            kind=OptimizerKind(rule),
            learning_rate=lr,
            epsilon=eps,
            initial_accumulator=initial_accumulator_value,
        )
        self._stepper: Stepper | None = None

    def connect(self, stepper: Stepper | None) -> None:
        """Make steps in a session."""
        self._stepper = stepper

    def zero_grad(self) -> None:
        """Forget the gradients of the last backward pass."""
        if self._stepper is not None:
            self._stepper.zero_grad()
        else:
            self.model.zero_grad()

    def step(self) -> None:
        """Hand in the gradients of the batch. Raises RuntimeError outside a session."""
        if self._stepper is None:
            raise RuntimeError(
                "optimizer.step() outside a session: call it within the loop over ps.session(...)"
            )
        self._stepper.step()
