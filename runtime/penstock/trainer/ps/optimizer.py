"""What of a model is trained on servers, and by which rule: in place of a ``torch.optim`` one."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Protocol

import torch

from penstock.parameter_server.schedule import Schedule
from penstock.parameter_server.spec import OptimizerKind, OptimizerSpec


class _Defaults(NamedTuple):
    lr: float
    eps: float
    weight_decay: float


_DEFAULTS: Final = {
    OptimizerKind.SGD: _Defaults(0.01, 0.0, 0.0),
    OptimizerKind.ADAGRAD: _Defaults(0.01, 1e-10, 0.0),
    OptimizerKind.ADAM: _Defaults(0.001, 1e-8, 0.0),
    OptimizerKind.ADAMW: _Defaults(0.001, 1e-8, 0.01),
}
_ADAMS: Final = (OptimizerKind.ADAM, OptimizerKind.ADAMW)
_OF_RULES: Final = {
    "eps": (OptimizerKind.ADAGRAD, *_ADAMS),
    "initial_accumulator_value": (OptimizerKind.ADAGRAD,),
    "momentum": (OptimizerKind.SGD,),
    "nesterov": (OptimizerKind.SGD,),
    "betas": _ADAMS,
}


class Stepper(Protocol):
    """The session in which an optimizer makes steps."""

    def step(self) -> None:
        """Hand in the gradients of the present batch."""

    def zero_grad(self) -> None:
        """Forget the gradients of the present batch."""


class Optimizer:
    """SGD, Adagrad, Adam or AdamW for all parameters of a model, on the servers.

    The rules are those of ``torch.optim`` with these names (without dampening, AMSGrad and decay of
    Adagrad's rate); `penstock.parameter_server.spec.OptimizerSpec` has the formulas. Rows of tables
    that a batch does not look up stay as they are, with their state, and do not decay; Adam counts
    the steps of each row by itself. All workers have the same rate.

    Args:
        model: the whole model.
        rule: "sgd", "adagrad", "adam" or "adamw".
        lr: the rate; default: 0.01, and 0.001 of Adam and AdamW.
        eps: of the rules that divide; default: 1e-10 of Adagrad, 1e-8 of Adam and AdamW.
        initial_accumulator_value: of Adagrad.
        momentum, nesterov: of SGD.
        betas: of Adam and AdamW.
        weight_decay: taken as part of the gradient, and by AdamW off the parameters; default: 0.01
            of AdamW, else 0.
        schedule: of the rate, by the number of the batch; default: it stays as it is.

    Raises:
        ValueError: an argument is out of range, or is none of the rule's; names it.
    """

    __slots__ = ("_stepper", "model", "spec")  # so that `optimizer.lr = ...` is an error

    def __init__(
        self,
        model: torch.nn.Module,
        rule: str = "adagrad",
        *,
        lr: float | None = None,
        eps: float | None = None,
        initial_accumulator_value: float | None = None,
        momentum: float | None = None,
        nesterov: bool = False,
        betas: tuple[float, float] | None = None,
        weight_decay: float | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise ValueError(
                f"model: a {type(model).__name__}; a ps.Optimizer takes the model itself, with its "
                "tables and all other parameters"
            )
        if rule not in tuple(OptimizerKind):
            raise ValueError(f"rule: {rule!r}; one of {', '.join(OptimizerKind)}")
        kind = OptimizerKind(rule)
        given = {
            "eps": eps,
            "initial_accumulator_value": initial_accumulator_value,
            "momentum": momentum,
            "nesterov": nesterov or None,
            "betas": betas,
        }
        for name, value in given.items():
            if value is not None and kind not in _OF_RULES[name]:
                rules = " and ".join(_OF_RULES[name])
                raise ValueError(f"{name}: {value!r}; it belongs to {rules}, and this is {rule}")
        if schedule is not None and not isinstance(schedule, Schedule):
            raise ValueError(
                f"schedule: a {type(schedule).__name__}; servers know the number of a batch and "
                "no function of yours: give a ps.Schedule(kind=...)"
            )
        defaults = _DEFAULTS[kind]
        self.model = model
        self.spec = OptimizerSpec(
            kind=kind,
            learning_rate=_number("lr", defaults.lr if lr is None else lr, above=True),
            epsilon=_number("eps", defaults.eps if eps is None else eps),
            initial_accumulator=_number(
                "initial_accumulator_value", initial_accumulator_value or 0.0
            ),
            momentum=_number("momentum", momentum or 0.0, below=1.0),
            nesterov=nesterov,
            **_named(betas),
            weight_decay=_number(
                "weight_decay", defaults.weight_decay if weight_decay is None else weight_decay
            ),
            schedule=schedule,
        )
        if nesterov and not self.spec.momentum:
            raise ValueError("nesterov: True without momentum; give it one, such as momentum=0.9")
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


def _named(betas: Any) -> dict[str, float]:
    if betas is None:
        return {}
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"betas: {betas!r}; two numbers, such as (0.9, 0.999)")
    return {
        name: _number("betas", beta, below=1.0)
        for name, beta in zip(("beta1", "beta2"), betas, strict=True)
    }


def _number(name: str, value: Any, *, above: bool = False, below: float = math.inf) -> float:
    """A number of at least 0 and below a bound; ``above``: above 0. Raises ValueError."""
    if isinstance(value, int | float) and 0 <= value < below and not (above and value == 0):
        return float(value)
    least = "above 0" if above else "of at least 0"
    most = "" if below == math.inf else f" and below {below:g}"
    raise ValueError(f"{name}: {value!r}; a finite number {least}{most}")
