"""A declared function as it is sent: its large tensors stay where they are."""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from penstock.crds import environment as names
from penstock.data.errors import PipelineTooLargeError
from penstock.data.offloading import portable
from penstock.data.offloading.arguments import Built, Leaf
from penstock.data.offloading.batch_calls import BatchCall, BatchCalls
from penstock.data.offloading.portable import PortableFunction, pack_function
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.pipeline import Pipeline
from penstock.data.serving.batch_making import prepare
from penstock.data.weight_bundle import LEAST_BYTES


class Tied(torch.nn.Module):
    """Two names for one tensor, a view of it, a buffer of another type, and a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.rand(600, 600), requires_grad=False)
        self.other = self.one
        self.part: torch.Tensor
        self.register_buffer("part", self.one.data.T[3:9])
        self.register_buffer("counts", torch.arange(1 << 18))
        self.register_buffer("small", torch.ones(3))


def large(function: Any) -> PortableFunction:
    packed = pack_function(function)
    assert packed.weights is not None
    return packed


def test_large_tensors_leave_the_pickle_and_are_what_they_were() -> None:
    module = Tied()
    packed = large(module)
    assert packed.weights is not None
    assert packed.weights.size == 600 * 600 * 4 + (8 << 18)
    sent = cloudpickle.dumps(packed)
    assert len(sent) < 20_000
    arrived = pickle.loads(sent)
    assert not arrived.there
    assert arrived.digest == packed.digest
    arrived.weights.attach(bytearray(b"".join(packed.weights.read(0, packed.weights.size))))
    opened = arrived.open()
    for name, tensor in module.state_dict().items():
        assert torch.equal(opened.state_dict()[name], tensor)
        assert opened.state_dict()[name].stride() == tensor.stride()
    assert opened.one is opened.other
    assert opened.part.untyped_storage().data_ptr() == opened.one.untyped_storage().data_ptr()
    assert not opened.one.requires_grad


def test_in_the_process_itself_nothing_is_copied() -> None:
    module = Tied()
    opened: Any = large(module).open()
    assert opened.one.data_ptr() == module.one.data_ptr()
    assert opened.small.data_ptr() != module.small.data_ptr()


def test_a_function_of_little_has_no_weights() -> None:
    packed = pack_function(torch.nn.Linear(3, 3))
    assert packed.weights is None
    assert packed.there
    assert isinstance(packed.open(), torch.nn.Linear)


def test_equal_functions_have_equal_digests_and_others_do_not() -> None:
    torch.manual_seed(1)
    one, other = Tied(), Tied()
    assert large(one).digest == large(one).digest
    assert large(one).digest != large(other).digest


def test_tensors_do_not_count_as_pickled_but_all_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portable, "MAX_PIPELINE_BYTES", LEAST_BYTES)
    large(torch.nn.Linear(1000, 1000))
    with pytest.raises(PipelineTooLargeError):
        pack_function([torch.ones(100_000) for _ in range(3)])


def sum_in_child(packed: PortableFunction, connection: Any) -> None:
    opened: Any = packed.open()
    opened.one.data.zero_()  # stays in this process
    connection.send((packed.there, float(opened.counts.sum())))


@pytest.mark.slow
def test_a_local_worker_that_is_not_forked_maps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.WEIGHTS_DIR, str(tmp_path / "weights"))
    module = Tied()
    before, packed = module.one.clone(), large(module)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=sum_in_child, args=(packed, there), daemon=True)
    child.start()
    assert here.poll(60)
    assert here.recv() == (True, float(module.counts.sum()))
    child.join(20)
    assert torch.equal(module.one, before)
    assert packed.weights is not None
    (file,) = (tmp_path / "weights").glob("*.weights")
    assert file.read_bytes() == b"".join(packed.weights.read(0, packed.weights.size))


LIBRARY = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.parametrize("width", [4, 600])
def test_a_data_worker_has_the_code_before_it_is_asked_for_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """A library of models takes seconds to import, with large weights or small ones."""
    name = f"library_of_width_{width}"
    (tmp_path / f"{name}.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name).Net(width).eval().requires_grad_(requires_grad=False)
    function = pack_function(module)
    positional, named = Built(tuple, (), (Leaf(("x",)),)), Built(dict, (), ())
    call = BatchCall(0, function, positional, named, Surroundings.here())
    sent = Pipeline([], list, batch_stage=BatchCalls((call,)))
    packed = cloudpickle.dumps(sent)
    monkeypatch.delitem(sys.modules, name)
    arrived = pickle.loads(packed)
    assert name not in sys.modules
    prepare(arrived, 0)
    assert name in sys.modules
    [its] = arrived.batch_stage.calls
    assert its.function.there == (function.weights is None) == (its._opened is not None)


def test_code_that_cannot_be_imported_is_said_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "library_that_is_not_there"
    path = tmp_path / f"{name}.py"
    path.write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    function = pack_function(importlib.import_module(name).Net(4))
    monkeypatch.delitem(sys.modules, name)
    path.write_text("raise RuntimeError('no such processor')")
    importlib.invalidate_caches()
    positional, named = Built(tuple, (), (Leaf(("x",)),)), Built(dict, (), ())
    call = BatchCall(
        0, pickle.loads(pickle.dumps(function)), positional, named, Surroundings.here()
    )
    call.open()
    result = call({"x": torch.ones(1, 4)})
    assert result is not None
    assert "no such processor" in result.why
