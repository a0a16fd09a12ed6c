"""Programs that compile: modules get what they always get, and others are left alone."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.nn import functional

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.torchpartition.loader_steps import LoaderSteps
from penstock.data.torchpartition.observation import compiling
from penstock.data.torchpartition.observation.compiled import compiled_function, is_compiled
from penstock.data.torchpartition.observation.modules import unwatch
from tests.data.torchpartition.training import (
    Training,
    encoder,
    everything_is_worth_it,
    normal,
    pairs,
    program,
)


@pytest.fixture(autouse=True)
def _worth_it() -> Iterator[None]:
    with everything_is_worth_it():
        yield


class Compiler:
    """A backend that notes what is compiled, and what that is called with."""

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.kinds: set[type] = set()

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs.append(str(graph.graph))

        def run(*values: Any) -> Any:
            self.kinds.update(type(one) for one in values)
            return graph.forward(*values)

        return run


class Tower(nn.Module):
    """A model of a class of its own: PyTorch's are compiled in another way."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, hidden: torch.Tensor) -> Any:
        return self.layers(hidden)


class Whole(nn.Module):
    """A model that holds its frozen encoder, as many are written."""

    def __init__(self, encode: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encode, self.head = encode, head

    def forward(self, images: torch.Tensor) -> Any:
        with torch.no_grad():
            hidden = self.encode(images)
        return self.head(hidden)


def whole(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    return compile_(Whole(encode, head))


def head_alone(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    return Whole(encode, compile_(head))


def in_place(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    head.compile(backend=compile_.keywords["backend"])
    return Whole(encode, head)


def pytorchs_by_forward(encode: nn.Module, head: Any, compile_: Any) -> Any:
    layers = head.layers
    layers.forward = compile_(layers.forward)
    return Whole(encode, head)


def pytorchs_module(encode: nn.Module, head: Any, compile_: Any) -> Any:
    return Whole(encode, compile_(head.layers))


def by_forward(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    head.forward = compile_(head.forward)  # as programs do
    return Whole(encode, head)


def encoder_alone(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    return Whole(compile_(encode), head)


def encoder_by_forward(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    encode.forward = compile_(encode.forward)  # as programs do
    return Whole(encode, head)


class Compiling:
    """A program that compiles something, and what was compiled for each run of it."""

    def __init__(self, build: Any) -> None:
        self.build = build
        self.compilers: list[Compiler] = []
        self.made = program(self._loss, self._make)

    def _make(self) -> Any:
        torch._dynamo.reset()
        self.compilers.append(Compiler())
        return {"encode": Tower(encoder()).eval()}

    def _loss(self, batch: Any, own: Any, head: nn.Module) -> torch.Tensor:
        if "model" not in own:
            compile_ = partial(torch.compile, backend=self.compilers[-1])
            own["model"] = self.build(own["encode"], Tower(head), compile_)
        return functional.cross_entropy(own["model"](normal(batch[0])), batch[1])


def ragged() -> list[torch.Tensor]:
    """Batches of sizes for which modules are compiled anew, at any step."""
    return pairs(random.choice((4, 4, 4, 3, 5)))


@pytest.mark.parametrize("batch", [pairs, ragged])
@pytest.mark.parametrize(
    "build",
    [
        whole,
        head_alone,
        in_place,
        by_forward,
        pytorchs_by_forward,
        pytorchs_module,
        encoder_alone,
        encoder_by_forward,
    ],
)
def test_a_compiled_module_is_compiled_for_what_it_always_gets(
    build: Any, batch: Callable[[], Any]
) -> None:
    compiled = Compiling(build)
    training = Training(compiled.made, batch)
    training.run()
    assert training.loader.moved >= 15, training.loader.state.proof.why
    alone, watched = compiled.compilers
    assert alone.graphs
    assert watched.graphs == alone.graphs
    assert watched.kinds == alone.kinds
    assert watched.kinds <= {torch.Tensor, nn.Parameter, int}


def a_function(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    normal_fast = compile_(lambda images: images / 2)
    return lambda images: head(encode(normal_fast(images)))


def a_method(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    predict = compile_(head.forward)  # as it is, beside its module's door
    return lambda images: predict(encode(images))


def pytorchs(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    activate = compile_(functional.gelu)
    return lambda images: head(activate(encode(images)))


def pytorchs_in_python(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
    normalise = compile_(functional.normalize)
    return lambda images: head(normalise(encode(images)))


@pytest.mark.parametrize(
    ("build", "name"),
    [(a_function, "lambda"), (a_method, "forward"), (pytorchs, "gelu"),
     (pytorchs_in_python, "normalize")],
)  # fmt: skip
def test_a_program_that_compiles_a_function_is_left_alone(build: Any, name: str) -> None:
    compiled = Compiling(build)
    training = Training(compiled.made)
    training.run()
    assert training.loader.moved == 0
    why = training.loader.state.proof.why
    assert "the program compiles" in why
    assert name in why
    alone, watched = compiled.compilers
    assert watched.graphs == alone.graphs


@pytest.mark.parametrize("epoch_steps", [2, 8, 24, 30])
@pytest.mark.parametrize(
    ("build", "name"),
    [(a_function, "lambda"), (a_method, "forward"), (pytorchs, "gelu"), (head_alone, ""),
     (whole, "")],
)  # fmt: skip
def test_one_that_compiles_later_has_the_same_losses(
    build: Any, name: str, epoch_steps: int
) -> None:
    """In a recorded step, while nothing moves yet, at the beginning of an epoch, or within it."""

    def later(encode: nn.Module, head: nn.Module, compile_: Any) -> Any:
        plain, steps = Whole(encode, head), itertools.count()
        models: list[Any] = [plain]

        def model(images: torch.Tensor) -> Any:
            if next(steps) == epoch_steps:
                models.append(build(encode, head, compile_))
            return models[-1](images)

        return model

    compiled = Compiling(later)
    training = Training(compiled.made)
    training.run()
    alone, watched = compiled.compilers
    assert alone.graphs
    assert watched.graphs == alone.graphs, "it is compiled for what it always gets"
    assert watched.kinds == alone.kinds
    if name:
        assert training.loader.state.phase is Phase.FELL_BACK
        (note,) = training.loader.notes().values()
        assert "the program compiles" in note.why
        assert name in note.why


def test_a_compiler_that_is_loaded_while_steps_are_looked_at_has_doors_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, steps, compiler = torch.compile, LoaderSteps("the loader"), Compiler()
    monkeypatch.delitem(sys.modules, compiling._COMPILER)
    steps.deliver(pairs())
    images, _ = steps.deliver(pairs())  # the second step is looked at
    monkeypatch.undo()
    brighter = torch.compile(lambda images: images + 1, backend=compiler)
    assert torch.equal(brighter(images), images + 1)
    assert compiler.kinds == {torch.Tensor}
    unwatch()
    assert torch.compile is plain
    assert torch._dynamo.eval_frame.OptimizeContext.__call__ is not compiling._call


def test_what_counts_as_compiled() -> None:
    compile_ = partial(torch.compile, backend="eager")
    module, other, third = nn.Linear(2, 2), encoder(), encoder()
    assert not is_compiled(module)
    assert is_compiled(compile_(module))
    assert not is_compiled(module)
    module.compile(backend="eager")
    assert is_compiled(module)
    other.forward = compile_(other.forward)  # as programs do
    assert is_compiled(other)
    kept = torch.compiler.disable(third.forward)
    third.forward = kept  # as programs do
    assert not is_compiled(third)
    assert not compiled_function()
