"""Sharded models: their parts as a state, as gradients, and which meshes a session takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from penstock.crds import environment as names
from penstock.trainer import elastic
from penstock.trainer.group.collective import Gradients
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.sharding import Sharding
from penstock.trainer.group.state_codec import StateError, pack
from penstock.trainer.replica.layout import find_layout
from tests.trainer.group.line import arrived


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    dist: Any = distributed  # its stub declares no stores
    store = dist.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def mesh() -> Any:
    return init_device_mesh("cpu", (1,), mesh_dim_names=("shards",))


def sharded(mesh: Any, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    fully_shard(model, mesh=mesh)
    return model


def trained(model: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def test_parts_of_a_state_travel_and_are_put_together(mesh: Any) -> None:
    model = sharded(mesh, 1)
    optimizer = trained(model)
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    packed = pack(Sharding(model).take_apart(whole))

    other = sharded(mesh, 2)
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)  # that has no state yet
    state = Sharding(other).put_together(arrived(packed))
    other.load_state_dict(state["model"])
    other_optimizer.load_state_dict(state["optimizer"])
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), same.full_tensor())  # type: ignore[attr-defined]  # a DTensor's
    for each in (model, other):
        torch.manual_seed(3)
        each(torch.rand(4, 3)).square().sum().backward()
    optimizer.step()
    other_optimizer.step()
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.full_tensor(), same.full_tensor())  # type: ignore[attr-defined]  # a DTensor's


def test_a_state_of_a_sharded_model_is_refused_by_one_that_is_not(mesh: Any) -> None:
    model = sharded(mesh, 1)
    state = Sharding(model).take_apart(model.state_dict())
    plain = Sharding(torch.nn.Linear(3, 5))
    with pytest.raises(StateError, match=r"state\.0\.weight: it is sharded"):
        plain.put_together(state)
    with pytest.raises(StateError, match="over a mesh that no parameter has"):
        plain.take_apart(model.state_dict())


class Doubling:
    """Another member with the same gradients."""

    def sum(self, tensors: Any, interrupted: Any) -> None:
        for tensor in tensors:
            tensor.mul_(2)


def test_gradients_are_summed_part_by_part(mesh: Any) -> None:
    model = sharded(mesh, 1)
    gradients = Gradients(model, [mesh.get_group()])
    # A replica group without a slot in this step has no gradients, and gets the others'.
    gradients.reduce(Doubling(), 0.5)  # type: ignore[arg-type]  # stands for one
    assert all(not one.grad.to_local().any() for one in model.parameters())  # type: ignore[union-attr]  # a DTensor is there
    model(torch.ones(4, 3)).square().sum().backward()
    before = [one.grad.full_tensor().clone() for one in model.parameters()]  # type: ignore[union-attr]  # a DTensor is there
    gradients.reduce(Doubling(), 0.5)  # type: ignore[arg-type]  # stands for one
    for one, gradient in zip(model.parameters(), before, strict=True):
        assert torch.equal(one.grad.full_tensor(), gradient * 2)  # type: ignore[union-attr]  # a DTensor is there


def test_a_mesh_says_who_has_which_samples(mesh: Any) -> None:
    layout = find_layout(mesh, None, sharded(mesh, 1))
    assert (layout.rank, layout.size, layout.division.parts) == (0, 1, 1)
    assert layout.division.speaks
    both = init_device_mesh("cpu", (1, 1), mesh_dim_names=("fsdp", "tensor"))
    assert len(find_layout(both, ["fsdp"], torch.nn.Linear(1, 1)).data_groups) == 1
    assert find_layout(both, [], torch.nn.Linear(1, 1)).data_groups == ()
    with pytest.raises(ValueError, match=r"data_parallel: a mesh of 2 dimensions .* fsdp, tensor"):
        find_layout(both, None, torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="data_parallel: 'rows'; the mesh has fsdp, tensor"):
        find_layout(both, ["rows"], torch.nn.Linear(1, 1))


class Mesh:
    """Of two processes, as this one sees it."""

    ndim = 1
    shape = (2,)
    mesh_dim_names = ("shards",)

    def size(self) -> int:
        return 2

    def get_coordinate(self) -> list[int]:
        return [0]

    def get_group(self, dim: int) -> None:
        return None


def test_a_mesh_has_all_processes_of_the_process_group() -> None:
    with pytest.raises(ValueError, match=r"a mesh of 2 processes; torch\.distributed has 1"):
        find_layout(Mesh(), None, torch.nn.Linear(1, 1))


def test_a_model_that_is_not_sharded_as_a_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="model: weight, bias: not sharded"):
        find_layout(Mesh(), None, torch.nn.Linear(1, 1))


def test_a_session_without_a_mesh_is_refused_among_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(names.REPLICA_GROUP, "2")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = elastic.session(
        model=model, optimizer=optimizer, dataset_size=4, global_batch=2, epochs=1
    )
    with pytest.raises(SessionError, match=r"replica_group: none; .* started 2 processes"):
        session.__enter__()


def test_dimensions_without_a_mesh_are_refused() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="data_parallel: it goes with replica_group"):
        elastic.session(
            model=model,
            optimizer=optimizer,
            dataset_size=4,
            global_batch=2,
            epochs=1,
            data_parallel=["fsdp"],
        )
