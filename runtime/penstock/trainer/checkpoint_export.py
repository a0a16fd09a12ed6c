"""A session's checkpoint in the form of `torch.distributed.checkpoint`, which anybody can read.

What is written is ``{"model": ..., "optimizer": ..., "scheduler": ..., "step": N}`` and whatever
the session was given as ``extra``, each as its ``state_dict()`` was. Of a sharded model the parts
of all processes of a replica group are put together, so that any number of processes can read it.
It is made in one process, without a process group, and holds the whole state in memory once; of a
sharded one twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from penstock.job import atomic_file
from penstock.trainer.checkpoint_file import CheckpointError, check_size, read
from penstock.trainer.group.sharding import MARK
from penstock.trainer.replica.layout import part_of


def export(source: Path, target: str, step: int | None = None) -> int:
    """Write a checkpoint for `torch.distributed.checkpoint.load`.

    Args:
        source: a file of a session's checkpoints, or their folder.
        target: the folder to write, which is made; with fsspec, also a URL such as s3://BUCKET/NAME.
        step: which one of a folder; None: the newest that is whole.

    Returns:
        Steps that its model has seen.

    Raises:
        CheckpointError: there is none, it is damaged, or sharded in a way that cannot be undone.
        OSError: the target cannot be written.
    """
    state = _read(source, step)
    content = {**state["holders"], "step": int(state["step"])}
    from torch.distributed.checkpoint.state_dict_saver import save  # seconds of imports

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as it is meant here
        save(content, storage_writer=_writer(target), no_dist=True)
    return int(content["step"])


def _writer(target: str) -> Any:
    if "://" not in target:
        from torch.distributed.checkpoint.filesystem import FileSystemWriter

        return FileSystemWriter(target)
    try:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
    except ImportError as error:
        raise CheckpointError(
            f"{target}: a URL needs fsspec: pip install 'penstock[fsspec]'"
        ) from error
    return FsspecWriter(target)


def _read(source: Path, step: int | None) -> dict[str, Any]:
    if source.is_file():
        return _checked(source, read(source))
    parts = _parts(source)
    folders = parts or [source]
    wanted = [step] if step is not None else _common_steps(folders)
    problem = f"{source}: no checkpoint of a session is there"
    for each in wanted:
        paths = [atomic_file.Series(folder, "step", 1).path(each) for folder in folders]
        try:
            states = [_checked(path, read(path)) for path in paths]
        except CheckpointError as error:
            problem = str(error)
            continue
        whole = states[0]
        if parts:
            whole["holders"] = _joined([state["holders"] for state in states], str(source))
        return whole
    raise CheckpointError(problem)


def _checked(path: Path, state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or not {"holders", "step"} <= state.keys():
        raise CheckpointError(f"{path}: not a checkpoint of a session")
    return state


def _parts(source: Path) -> list[Path]:
    """The folders of the processes of a replica group, in order; of the newest, if of several."""
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such file or folder")
    named = [(part_of(path.name), path) for path in source.iterdir()]
    found = [(part[1], part[0], path) for part, path in named if part is not None]
    if not found:
        return []
    sizes = {size for size, _, _ in found}
    if len(sizes) > 1:
        named_sizes = " and ".join(map(str, sorted(sizes)))
        raise CheckpointError(
            f"{source}: parts of replica groups of {named_sizes} processes are there: move"
            " those away that are not meant"
        )
    [size] = sizes
    numbers = sorted(number for _, number, _ in found)
    if numbers != list(range(size)):
        raise CheckpointError(f"{source}: parts {numbers} of {size} are there: all are needed")
    return [path for _, _, path in sorted(found)]


def _common_steps(folders: Sequence[Path]) -> list[int]:
    """Steps of which all folders have a file of the right size, newest first."""
    common: set[int] | None = None
    for folder in folders:
        steps = set()
        for path, number in atomic_file.Series(folder, "step", 1).list():
            try:
                check_size(path)
            except CheckpointError:
                continue
            steps.add(number)
        common = steps if common is None else common & steps
    return sorted(common or (), reverse=True)


def _joined(parts: Sequence[Any], path: str) -> Any:
    """One state of those of all processes: sharded tensors are put together."""
    first = parts[0]
    if isinstance(first, dict):
        if MARK in first:
            return _tensor(parts, path)
        return {key: _joined([part[key] for part in parts], f"{path}.{key}") for key in first}
    if isinstance(first, list | tuple):
        together = zip(*parts, strict=True)
        return type(first)(
            [_joined(each, f"{path}[{place}]") for place, each in enumerate(together)]
        )
    return first


def _tensor(parts: Sequence[dict[str, Any]], path: str) -> torch.Tensor:
    first = parts[0]
    shape = list(first["shape"])
    match first["placements"]:
        case [["replicate"]]:
            whole: torch.Tensor = first[MARK]
        case [["shard", dim]]:
            whole = torch.cat([part[MARK] for part in parts], int(dim))
        case other:
            raise CheckpointError(
                f"{path}: it is laid out as {other}; what is sharded over one dimension of a mesh"
                " can be exported: for others save with torch.distributed.checkpoint in the script"
            )
    if list(whole.shape) != shape:
        raise CheckpointError(f"{path}: its parts make {list(whole.shape)} together, not {shape}")
    return whole
