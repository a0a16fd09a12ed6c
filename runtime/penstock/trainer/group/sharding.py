"""The parts of tensors that a process holds of a sharded model, and tensors made of them again.

A sharded model's parameters are DTensors: each process of its replica group holds a part, and the
mesh and the placements say which. Process ``i`` of every replica group holds part ``i``, so sums of
gradients and the transfer of the model are between processes of one number, part by part, and no
process ever needs the whole.

In a state, a DTensor becomes a map of its local part and the words for its layout, which
`penstock.trainer.group.state_codec` can write. A process that takes the state over puts the part
into its own mesh; a layout that it does not have is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch

from penstock.trainer.group.state_codec import StateError

MARK: Final = "__penstock_part__"


def is_sharded(tensor: object) -> bool:
    """Whether it is a DTensor. Where PyTorch's module for them was never imported, none exists."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


@torch.no_grad()
def local_part(tensor: Any) -> torch.Tensor:
    """What of a tensor this process holds: all of an ordinary one."""
    part: torch.Tensor = tensor.detach().to_local() if is_sharded(tensor) else tensor
    return part


@torch.no_grad()
def gradient_part(parameter: Any) -> torch.Tensor | None:
    """This process's part of a parameter's gradient, laid out as the parameter; None: it has none.

    Tensor parallelism may leave a gradient as terms of a sum: all processes then add it up.
    """
    gradient: Any = parameter.grad
    if gradient is None or not is_sharded(gradient):
        return None if gradient is None else local_part(gradient)
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
        parameter.grad = gradient
    return local_part(gradient)


@torch.no_grad()
def as_gradient(parameter: Any, part: torch.Tensor) -> Any:
    """A gradient of a parameter that has none, of this process's part of it."""
    if not is_sharded(parameter):
        return part
    return type(parameter.data).from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class Sharding:
    """The meshes of one model, by which parts are put together; equal on all replica groups."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._meshes: list[Any] = []
        for tensor in (*model.parameters(), *model.buffers()):
            if is_sharded(tensor) and tensor.device_mesh not in self._meshes:  # type: ignore[attr-defined]  # a DTensor's
                self._meshes.append(tensor.device_mesh)  # type: ignore[attr-defined]  # a DTensor's

    def take_apart(self, state: Any, path: str = "state") -> Any:
        """A state with this process's parts in place of sharded tensors. Raises StateError."""
        if is_sharded(state):
            mesh = state.device_mesh
            if mesh not in self._meshes:
                raise StateError(f"{path}: it is sharded over a mesh that no parameter has")
            return {
                MARK: local_part(state),
                "mesh": self._meshes.index(mesh),
                "placements": [_word(one, path) for one in state.placements],
                "shape": list(state.shape),
                "stride": list(state.stride()),
            }
        if isinstance(state, dict):
            return {key: self.take_apart(each, f"{path}.{key}") for key, each in state.items()}
        if isinstance(state, list | tuple):
            return type(state)([self.take_apart(each, path) for each in state])
        return state

    def put_together(self, state: Any, path: str = "state") -> Any:
        """The state that `take_apart` took apart, on another process with the same place.

        Raises StateError: it belongs to a model that is sharded otherwise.
        """
        if isinstance(state, dict):
            if MARK in state:
                return self._whole(state, path)
            return {key: self.put_together(each, f"{path}.{key}") for key, each in state.items()}
        if isinstance(state, list | tuple):
            return type(state)([self.put_together(each, path) for each in state])
        return state

    def _whole(self, said: dict[str, Any], path: str) -> Any:
        from torch.distributed.tensor import DTensor

        number = int(said["mesh"])
        if number >= len(self._meshes):
            raise StateError(f"{path}: it is sharded, and this model is not, or otherwise")
        mesh = self._meshes[number]
        return DTensor.from_local(
            said[MARK].to(mesh.device_type),
            mesh,
            [_placement(word, path) for word in said["placements"]],
            run_check=False,
            shape=torch.Size(said["shape"]),
            stride=tuple(said["stride"]),
        )


def _word(placement: Any, path: str) -> list[Any]:
    from torch.distributed.tensor import placement_types as known

    if isinstance(placement, known._StridedShard):
        return ["strided", placement.dim, placement.split_factor]
    if isinstance(placement, known.Shard):
        return ["shard", placement.dim]
    if isinstance(placement, known.Replicate):
        return ["replicate"]
    raise StateError(f"{path}: {placement} is not a layout that a state can have")


def _placement(word: Sequence[Any], path: str) -> Any:
    from torch.distributed.tensor import placement_types as known

    match list(word):
        case ["strided", dim, factor]:
            return known._StridedShard(dim, split_factor=factor)
        case ["shard", dim]:
            return known.Shard(dim)
        case ["replicate"]:
            return known.Replicate()
    raise StateError(f"{path}: {word} is not a layout")


def unsharded(model: torch.nn.Module) -> list[str]:
    """Names of the parameters to train that are ordinary tensors."""
    named: Iterable[tuple[str, torch.nn.Parameter]] = model.named_parameters()
    return [name for name, one in named if one.requires_grad and not is_sharded(one)]
