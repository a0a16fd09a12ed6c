"""The collectives of one group: sums of gradients and the transfer of the model.

A group owns its process group and store instead of the framework's global default, so that it can
be left and another one formed within the same process, as often as the membership changes. gloo
carries everything on CPUs; gradients on GPUs go through NCCL where the group can use it (see
`penstock.trainer.group.backend_choice`). A collective is only entered when all members are known to
have arrived (see `penstock.trainer.group.step_barrier`); what still fails in it, because a member
died at that very moment, is reported as `GroupBrokenError`, and what would fail in every further
group as well as `CollectiveError`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
from torch import distributed

from penstock.base.listener import create_listener
from penstock.trainer.group.backend_choice import Backend, Equipment
from penstock.trainer.group.collective_errors import Cause, cause_of, first_words
from penstock.trainer.group.devices import equipment
from penstock.trainer.group.nccl_sums import NcclSums
from penstock.trainer.group.nccl_sums import environment as nccl_environment
from penstock.trainer.group.sharding import as_gradient, gradient_part, local_part
from penstock.trainer.group.step_barrier import GroupBrokenError

logger = logging.getLogger(__name__)

RENDEZVOUS_TIMEOUT_SECONDS: Final = 15.0

dist: Any = distributed  # its stub declares neither stores nor options


class CollectiveError(Exception):
    """The members cannot add up as they are configured: another group would fail alike."""


def serve_store(host: str, size: int) -> Any:
    """The key-value store through which the members of a group find each other; on a free port.

    It asks nobody who they are, so it listens at this member's address and no other.
    """
    with create_listener(host, 0) as listener:
        port = listener.getsockname()[1]
        descriptor = os.dup(listener.fileno())  # the store closes it
    return dist.TCPStore(
        host,
        port,
        size,
        is_master=True,
        timeout=timedelta(seconds=RENDEZVOUS_TIMEOUT_SECONDS),
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )


def join_store(host: str, port: int, size: int) -> Any:
    """The store of another member. Raises GroupBrokenError when it cannot be reached."""
    try:
        return dist.TCPStore(
            host,
            port,
            size,
            is_master=False,
            timeout=timedelta(seconds=RENDEZVOUS_TIMEOUT_SECONDS),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        why = first_words(str(error))
        raise GroupBrokenError(f"the store at {host}:{port} cannot be reached: {why}") from error


class Collective:
    """The process group of one membership; ``host`` is the address of this member."""

    def __init__(
        self,
        store: Any,
        host: str,
        rank: int,
        size: int,
        *,
        backend: Backend,
        timeout_seconds: float,
    ) -> None:
        self._store = store
        timeout = timedelta(seconds=timeout_seconds)
        try:
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
            options._timeout = timeout
            self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)
            self._nccl = None
            if backend is Backend.NCCL:
                self._nccl = NcclSums(_nccl(store, rank, size, timeout), timeout_seconds)
        except RuntimeError as error:
            raise _failed(
                error, lost="the members cannot connect", otherwise="the members cannot connect"
            ) from error

    def sum(
        self, tensors: Iterable[torch.Tensor], interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Add each tensor up over the members, in place; returns when that is done.

        ``interrupted``: whether the trainer has ended the group; gloo finds out by itself.

        Raises:
            GroupBrokenError: a member was lost, or it is not known what happened.
            CollectiveError: every further group would fail alike.
        """
        try:
            if self._nccl is not None:
                self._nccl.sum(tensors, interrupted)
                return
            for work in [self._gloo.allreduce([tensor]) for tensor in tensors]:
                work.wait()
        except RuntimeError as error:
            lost, otherwise = "a member was lost in a sum", "a sum failed"
            raise _failed(error, lost=lost, otherwise=otherwise) from error

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Copy a CPU tensor of the first member to all, in place. Raises as `sum` does."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        try:
            self._gloo.broadcast([tensor], options).wait()
        except RuntimeError as error:
            raise _failed(
                error, lost="a member was lost in a broadcast", otherwise="a broadcast failed"
            ) from error

    def close(self) -> None:
        """Let go of all connections."""
        if self._nccl is not None:
            try:
                self._nccl.close()
            except RuntimeError as error:
                logger.warning("a group was left behind: %s", error)
        del self._nccl, self._gloo, self._store


def _nccl(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A process group of NCCL whose errors are raised and end nothing."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    with nccl_environment():
        return dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, size, options)


def _failed(error: RuntimeError, *, lost: str, otherwise: str) -> Exception:
    """What to raise for an error of a process group: ``lost`` says that a member is gone."""
    cause, words = cause_of(error), first_words(str(error))
    if cause is Cause.CONFIGURATION:
        return CollectiveError(f"{otherwise}: {words}")
    return GroupBrokenError(f"{lost if cause is Cause.LOST_MEMBER else otherwise}: {words}")


class Gradients:
    """The gradients of a model in one flat buffer per type, and the averages of its statistics.

    The buffers of the model that are floating point (running statistics of a normalisation) differ
    between members, which saw different slots: they are averaged, weighted by the slots seen.

    Of a sharded model they are the parts that this process holds.
    """

    def __init__(self, model: torch.nn.Module, data_groups: Sequence[Any] = ()) -> None:
        """``data_groups``: process groups within this member that saw different samples."""
        self._data_groups = data_groups
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._statistics = [b for b in model.buffers() if b.is_floating_point()]
        self._flat: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}
        self._places: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes: dict[tuple[torch.dtype, torch.device], int] = {}
        spans = []
        for tensor in [*self._parameters, *self._statistics]:
            part = local_part(tensor)
            kind = (part.dtype, part.device)
            start = sizes.get(kind, 0)
            sizes[kind] = start + part.numel()
            spans.append((tensor, part, kind, start))
        for (dtype, device), size in sizes.items():
            self._flat[dtype, device] = torch.zeros(size, dtype=dtype, device=device)
        for tensor, part, kind, start in spans:
            view = self._flat[kind][start : start + part.numel()].view(part.shape)
            self._places.append((tensor, view))

    @property
    def elements(self) -> int:
        """How many numbers are summed: must be the same on all members."""
        return sum(flat.numel() for flat in self._flat.values())

    @property
    def layout(self) -> list[tuple[str, int]]:
        """Type and numbers of each buffer, in the order in which they are summed: the same on all.

        gloo ends the process, and NCCL hangs, where two members sum buffers of different lengths.
        """
        return [(str(dtype), flat.numel()) for (dtype, _), flat in self._flat.items()]

    def equipment(self) -> Equipment:
        """What this worker sums them with."""
        return equipment(device for _, device in self._flat)

    @torch.no_grad()
    def reduce(
        self,
        collective: Collective | None,
        weight: float,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Sum the gradients over all members; ``weight`` is this process's part of the step.

        Without a collective there are no others.
        """
        gradients = len(self._parameters)
        for place, (tensor, view) in enumerate(self._places):
            if place >= gradients:
                torch.mul(tensor, weight, out=view)
                for group in self._data_groups:
                    dist.all_reduce(view, group=group)
            elif (gradient := gradient_part(tensor)) is None:
                view.zero_()
            else:
                view.copy_(gradient)
        if collective is not None:
            collective.sum(self._flat.values(), interrupted)
        for place, (tensor, view) in enumerate(self._places):
            if place >= gradients:
                tensor.copy_(view)
            elif (gradient := gradient_part(tensor)) is None:
                tensor.grad = as_gradient(tensor, view.clone())
            else:
                gradient.copy_(view)
