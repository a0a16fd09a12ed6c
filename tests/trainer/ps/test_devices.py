"""A model whose dense part and rows are on a device: the same training, in few copies.

A device is stood in for by the CPU behind copies that are carried out as late as they may be, and
by PyTorch's meta device, which has shapes and no values.
"""

from __future__ import annotations

import math
from importlib import import_module

import pytest
import torch
from torch import nn

from penstock.crds import environment
from penstock.trainer import ps
from penstock.trainer.ps import model as served_model
from penstock.trainer.ps.transfer import Transfer
from tests.trainer.ps.test_alone import IDS, SAMPLES, Net, start, train

SESSIONS = import_module("penstock.trainer.ps.session")  # the package has a function of that name


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


class LateCopies:
    """Downloads hold nothing that is of use before they were waited for."""

    def __init__(self) -> None:
        self.uploads = self.waits = self.downloads = 0
        self._begun: list[tuple[torch.Tensor, torch.Tensor]] = []

    def upload(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        assert not values.requires_grad
        self.uploads += 1
        return values.clone()

    def download(self, values: torch.Tensor) -> torch.Tensor:
        self.downloads += 1
        host = torch.full_like(values, math.nan)
        self._begun.append((host, values))
        return host

    def wait(self, device: torch.device) -> None:
        self.waits += 1
        while self._begun:
            host, values = self._begun.pop()
            host.copy_(values)


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_through_a_device_it_trains_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    here = train(*start(rule))
    copies = LateCopies()
    monkeypatch.setattr(SESSIONS, "Transfer", lambda: Transfer({"cpu": copies}))
    there = train(*start(rule))
    assert here.keys() == there.keys()
    for name, values in here.items():
        assert torch.equal(there[name], values), name
    batches, lookups = 10, 3
    # The dense vector at each batch and at the end; the rows of each look-up.
    assert copies.uploads == batches * (1 + lookups) + 1
    # Gradients of all look-ups together and of the dense vector, and the values at the beginning.
    assert copies.waits == batches * 2 + 1
    assert copies.downloads == batches * (1 + lookups) + 1


def test_a_model_without_dense_parameters_crosses_for_its_rows_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = LateCopies()
    monkeypatch.setattr(SESSIONS, "Transfer", lambda: Transfer({"cpu": copies}))
    model = nn.Sequential(ps.Embedding(9, 2))
    optimizer = ps.Optimizer(model, "sgd", lr=0.1)
    with ps.session(model, optimizer, 9, 3) as session:
        for batch in session:
            model(batch).square().sum().backward()
            optimizer.step()
    assert copies.uploads == copies.downloads == copies.waits == 3


def test_rows_are_where_the_module_was_moved_or_where_the_ids_are() -> None:
    model, _, session = start()
    table = model.deep
    assert isinstance(table, ps.Embedding)
    with session, torch.no_grad():
        assert table(IDS).device.type == "cpu"
        table.to("meta")
        rows = table(IDS)
        assert rows.is_meta
        assert rows.shape == (SAMPLES, 3, 4)
        table.float()  # changes no device
        assert table(IDS).is_meta
        table.to_empty(device="cpu")
        assert table(IDS).device.type == "cpu"


def test_a_parameter_without_values_is_refused_by_name() -> None:
    model = Net()
    model.head.to("meta")
    with pytest.raises(ValueError, match=r"parameter head\.0\.weight: on the meta device"):
        start(model=model)


def test_neighbours_on_one_device_cross_together() -> None:
    there = torch.empty(2, device="meta")
    here = torch.empty(3)
    groups = served_model._by_device([here, here, there, there, there, here])
    assert [len(group) for group in groups] == [2, 3, 1]


def test_on_the_host_nothing_is_copied() -> None:
    values = torch.arange(4.0)
    transfer = Transfer()
    assert transfer.to_device(values, torch.device("cpu")) is values
    assert transfer.to_host([values])[0] is values


@pytest.mark.gpu
@pytest.mark.parametrize("whole", [True, False])
def test_on_a_gpu_it_trains_as_on_a_cpu(whole: bool) -> None:
    expected = train(*start())
    model = Net()
    moved = model if whole else model.head
    moved.cuda()
    model.register_forward_pre_hook(lambda _, given: tuple(part.cuda() for part in given))
    model.register_forward_hook(lambda _, __, logits: logits.cpu())
    if not whole:  # the program moves what it looked up
        model.deep.register_forward_hook(lambda _, __, rows: rows.cuda())
        model.wide.register_forward_hook(lambda _, __, rows: rows.cuda())
    found = train(*start(model=model))
    for name, values in expected.items():
        assert found[name].device.type == "cpu"
        torch.testing.assert_close(found[name], values, rtol=1e-3, atol=1e-5)
