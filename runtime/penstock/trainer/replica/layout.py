"""Where this process stands in its replica group: of how many, and which samples are its part."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed

from penstock.crds import environment as names
from penstock.trainer.group.division import Division
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.sharding import unsharded

logger = logging.getLogger(__name__)

_SHOWN: Final = 3
_PART: Final = re.compile(r"part-([0-9]+)-of-([0-9]+)")


@dataclass(frozen=True)
class Layout:
    """The place of one process.

    Attributes:
        rank: within the replica group.
        size: processes of the replica group.
        division: its part of each slot.
        data_groups: process groups over which the samples are divided, one for each dimension.
    """

    rank: int
    size: int
    division: Division
    data_groups: tuple[Any, ...] = ()

    def checkpoint_folder(self, folder: Path) -> Path:
        """Where this process keeps its part of each checkpoint."""
        own = folder / f"part-{self.rank}-of-{self.size}"
        others = {} if own.is_dir() else _other_sizes(folder)
        if others and self.rank == 0:
            logger.warning(
                "%s: checkpoints of replica groups of %s processes are there, and this one has %d: "
                "they are not taken up",
                folder,
                " and ".join(map(str, sorted(others))),
                self.size,
            )
        return own


def part_of(name: str) -> tuple[int, int] | None:
    """Rank and size of a replica group, by the name of a folder; None: it is no part of one."""
    match = _PART.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def _other_sizes(folder: Path) -> set[int]:
    """Of how many processes the replica groups were whose parts are there."""
    try:
        found = [part_of(path.name) for path in folder.iterdir()]
    except OSError:  # there is none yet, or it is looked at again when it is needed
        return set()
    return {part[1] for part in found if part is not None}


def find_layout(mesh: Any, data_parallel: Sequence[str] | None, model: torch.nn.Module) -> Layout:
    """The place of this process in a mesh of all processes of its replica group.

    Args:
        mesh: a DeviceMesh.
        data_parallel: names of its dimensions over which samples are divided; along the others all
            have the same ones. None: a mesh of one dimension is divided.

    Raises:
        ValueError: names what does not fit, and what to do.
    """
    size = distributed.get_world_size() if distributed.is_initialized() else 0
    if mesh.size() != size:
        raise ValueError(
            f"replica_group: a mesh of {mesh.size()} processes; torch.distributed has {size}: give "
            "the mesh over all processes of this replica group, which are its process group"
        )
    dims: tuple[str, ...] = mesh.mesh_dim_names or ()
    if data_parallel is None:
        if mesh.ndim != 1:
            raise ValueError(
                f"data_parallel: a mesh of {mesh.ndim} dimensions needs the names of those over "
                f"which samples are divided: some of {', '.join(dims) or 'its mesh_dim_names'}"
            )
        divided = [0]
    else:
        if unknown := [name for name in data_parallel if name not in dims]:
            raise ValueError(
                f"data_parallel: {unknown[0]!r}; the mesh has {', '.join(dims) or 'no names'}"
            )
        divided = sorted(dims.index(name) for name in data_parallel)
    place, extents = mesh.get_coordinate(), tuple(mesh.shape)
    part = 0
    for dim in divided:
        part = part * extents[dim] + place[dim]
    parts = math.prod(extents[dim] for dim in divided)
    others = [place[dim] for dim in range(mesh.ndim) if dim not in divided]
    division = Division(part, parts, speaks=not any(others))
    if parts > 1 and (ordinary := unsharded(model)):
        named = ", ".join(ordinary[:_SHOWN]) + (", ..." if len(ordinary) > _SHOWN else "")
        raise ValueError(
            f"model: {named}: not sharded, so nobody sums their gradients over the {parts} "
            "processes with different samples: call fully_shard(model, mesh=...) on the whole "
            "model before the session"
        )
    groups = tuple(mesh.get_group(dim) for dim in divided)
    return Layout(distributed.get_rank(), size, division, groups)


def refuse_lone_processes(environ: Mapping[str, str]) -> None:
    """Raises SessionError: this is one of several processes, each with a session of its own."""
    if count := environ.get(names.REPLICA_GROUP, ""):
        raise SessionError(
            f"replica_group: none; `penstock run --replica-group` started {count} processes, which "
            "are one member: give the session the mesh over them (docs/training.md)"
        )
