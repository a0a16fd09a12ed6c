"""A PyTorch model as parameter servers see it: tables in spaces, all else one vector.

The vector is on the host, where it comes from servers and goes to them; the parameters are on
whatever devices the program has put them. Those that follow each other on one device cross in one
copy.

Invariant: the specification is a function of the program alone, so that all workers of a job, which
run the same program, have the same; the trainer refuses one that has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from pydantic import ValidationError
from torch.nn.parameter import is_lazy

from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.trainer.ps.embedding import Embedding, Source
from penstock.trainer.ps.transfer import Transfer


class ServedModel:
    """The trained parts of a model, in the order of its modules."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: OptimizerSpec,
        seed: int,
        transfer: Transfer | None = None,
    ) -> None:
        """Raises ValueError: a parameter cannot be on servers; names it."""
        self._model = model
        self._transfer = transfer or Transfer()
        self._embeddings: list[tuple[str, Embedding]] = [
            (name or "embedding", module)
            for name, module in model.named_modules()
            if isinstance(module, Embedding)
        ]
        self._parameters = self._trained()
        if not self._embeddings and not self._parameters:
            raise ValueError("model: it has nothing to train")
        tables: dict[int | str, list[TableSpec]] = {}
        try:
            for name, module in self._embeddings:
                tables.setdefault(_space_of(name, module), []).extend(
                    TableSpec(name=table, rows=rows, deviation=module.std)
                    for table, rows in zip(module.table_names(name), module.sizes, strict=True)
                )
            self._numbers = {space: number for number, space in enumerate(tables)}
            modules = {_space_of(name, module): module for name, module in self._embeddings}
            self.spec = ModelSpec(
                spaces=tuple(
                    SpaceSpec(
                        dim=modules[space].dim,
                        tables=tuple(own),
                        vocabulary=modules[space].vocabulary,
                    )
                    for space, own in tables.items()
                ),
                dense=tuple(
                    DenseSpec(name=name, shape=tuple(parameter.shape))
                    for name, parameter in self._parameters
                ),
                optimizer=optimizer,
                seed=seed,
            )
        except ValidationError as error:
            raise ValueError(f"model: {_said(error)}") from error
        self._sizes = [parameter.numel() for _, parameter in self._parameters]

    def connect(self, source: Source | None) -> None:
        """Have the embeddings look their rows up at a source."""
        next_table = [0] * len(self.spec.spaces)
        for name, module in self._embeddings:
            number = self._numbers[_space_of(name, module)]
            first = next_table[number]
            next_table[number] += len(module.sizes)
            starts = self.spec.spaces[number].starts[first : next_table[number]]
            module.connect(source, number, starts)

    def check(self) -> None:
        """Raises ValueError: the model has other parameters than it had; names one."""
        now = self._trained()
        if len(now) == len(self._parameters) and all(
            mine is yours for (_, mine), (_, yours) in zip(now, self._parameters, strict=True)
        ):
            return
        before = dict(self._parameters)
        for name, parameter in now:
            if before.pop(name, None) is not parameter:
                raise ValueError(
                    f"parameter {name}: it was added or replaced after the session began, so the "
                    "servers do not have it: build the whole model first"
                )
        raise ValueError(f"parameter {next(iter(before))}: it was taken out of the training")

    @torch.no_grad()
    def load(self, dense: Floats) -> None:
        """Give the dense parameters these values."""
        if not self._parameters:
            return
        flat, at = torch.from_numpy(dense), 0
        for parameters in _by_device([parameter for _, parameter in self._parameters]):
            sizes = [parameter.numel() for parameter in parameters]
            part = self._transfer.to_device(flat[at : at + sum(sizes)], parameters[0].device)
            for parameter, values in zip(parameters, part.split_with_sizes(sizes), strict=True):
                parameter.copy_(values.view(parameter.shape))
            at += sum(sizes)

    @torch.no_grad()
    def values(self) -> Floats:
        """The dense parameters as one vector: a copy."""
        return self._flat([parameter for _, parameter in self._parameters])

    def gradients(self) -> Floats | None:
        """The dense gradients as one vector; None when there is none at all."""
        parameters = [parameter for _, parameter in self._parameters]
        if all(parameter.grad is None for parameter in parameters):
            return None
        return self._flat([_gradient(parameter) for parameter in parameters])

    def zero_grad(self) -> None:
        """Forget the dense gradients."""
        for _, parameter in self._parameters:
            parameter.grad = None

    def not_finite(self, sparse: Sequence[Gradients], dense: Floats | None) -> list[str]:
        """The parameters whose gradients are not finite, by name."""
        found = []
        for part in sparse:
            bad = ~np.isfinite(part.values).all(axis=1)
            if bad.any():
                found += self._tables_of(part.space, part.rows[bad])
        if dense is not None and not np.isfinite(dense).all():
            pieces = np.split(dense, np.cumsum(self._sizes)[:-1])
            found += [
                name
                for (name, _), piece in zip(self._parameters, pieces, strict=True)
                if not np.isfinite(piece).all()
            ]
        return found

    def tables(self) -> Iterator[tuple[str, int, int, int]]:
        """Each table: its name, its space, and the half-open range of its rows there.

        Those of a table that is keyed by ids say nothing.
        """
        for number, space in enumerate(self.spec.spaces):
            for table, start in zip(space.tables, space.starts, strict=True):
                yield table.name, number, start, start + table.rows

    def split(self, dense: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Each dense parameter's name and values."""
        flat = torch.from_numpy(dense)
        for (name, parameter), values in zip(
            self._parameters, flat.split_with_sizes(self._sizes), strict=True
        ):
            yield name, values.view(parameter.shape)

    def _tables_of(self, space: int, rows: Rows) -> list[str]:
        if self.spec.spaces[space].vocabulary is not None:
            return [self.spec.spaces[space].tables[0].name]
        starts = np.asarray(self.spec.spaces[space].starts)
        numbers = np.unique(np.searchsorted(starts, rows, side="right") - 1)
        return [self.spec.spaces[space].tables[number].name for number in numbers]

    def _flat(self, tensors: Sequence[torch.Tensor]) -> Floats:
        """Tensors, in their order, as one vector on the host."""
        if not tensors:
            return np.empty(0, np.float32)
        parts = [
            torch.cat([tensor.detach().reshape(-1) for tensor in group])
            for group in _by_device(tensors)
        ]
        here = self._transfer.to_host(parts)
        flat: Floats = (here[0] if len(here) == 1 else torch.cat(here)).numpy()
        return flat

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        found = []
        for name, parameter in self._model.named_parameters():
            if not parameter.requires_grad:
                continue
            if is_lazy(parameter):
                raise ValueError(
                    f"parameter {name}: its shape is not known before the first forward pass: give "
                    "its module all its sizes"
                )
            if parameter.dtype is not torch.float32:
                raise ValueError(
                    f"parameter {name}: of type {parameter.dtype}; servers hold torch.float32: "
                    "call model.float(), or freeze it with requires_grad_(False)"
                )
            if parameter.is_meta:
                raise ValueError(
                    f"parameter {name}: on the meta device, where it has no values: build the "
                    "model on a CPU or a GPU"
                )
            found.append((name, parameter))
        return found


def _space_of(name: str, module: Embedding) -> int | str:
    """What tables share a space: those of one width, but one that is keyed by ids has its own."""
    return module.dim if module.vocabulary is None else name


def _by_device(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors in their order, cut where the device changes."""
    return [list(group) for _, group in groupby(tensors, key=lambda tensor: tensor.device)]


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """A whole one; ``torch.nn.Embedding(..., sparse=True)`` gives only some rows, or none."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _said(error: ValidationError) -> str:
    [first, *_] = error.errors(include_url=False)
    where = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {said}, not {first['input']!r:.100}" if where else said
