"""Sharded checkpoints (`torch.distributed.checkpoint`): they say where the loaders are, too.

There an optimizer's state is put together anew, by the names of parameters, so that what
`penstock.trainer.follow.follower` adds to its ``state_dict`` is not in it. `get_state_dict` and
`get_optimizer_state_dict` add it once more, as one text, which a checkpoint keeps beside the
optimizer's state. Who loads gives the keys that it wants, and knows nothing of this one:
`DefaultLoadPlanner` reads it where it reads that optimizer's state, and hands it to the follower.
A checkpoint's model without its optimizer says nothing of loaders, and without Penstock nobody
asks for the text.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from penstock.trainer.follow.follower import KEY, installed, of_text, text_of


def install_state(module: Any) -> None:
    """``torch.distributed.checkpoint.state_dict`` has been imported."""
    both, one = module.get_state_dict, module.get_optimizer_state_dict
    set_both, set_one = module.set_state_dict, module.set_optimizer_state_dict

    @functools.wraps(both)
    def get_state_dict(*arguments: Any, **options: Any) -> Any:
        weights, state = both(*arguments, **options)
        return weights, _saying_where(state)

    @functools.wraps(one)
    def get_optimizer_state_dict(*arguments: Any, **options: Any) -> Any:
        return _saying_where(one(*arguments, **options))

    @functools.wraps(set_both)
    def set_state_dict(*arguments: Any, optim_state_dict: Any, **options: Any) -> Any:
        state = _heard(optim_state_dict, options.get("options"))
        return set_both(*arguments, optim_state_dict=state, **options)

    @functools.wraps(set_one)
    def set_optimizer_state_dict(
        model: Any, optimizers: Any, optim_state_dict: Any, **options: Any
    ) -> Any:
        return set_one(
            model, optimizers, _heard(optim_state_dict, options.get("options")), **options
        )

    for own in (get_state_dict, get_optimizer_state_dict, set_state_dict, set_optimizer_state_dict):
        setattr(module, own.__name__, own)


def install_planner(module: Any) -> None:
    """``torch.distributed.checkpoint.default_planner`` has been imported."""
    planner = module.DefaultLoadPlanner
    set_up, load = planner.set_up_planner, planner.load_bytes

    @functools.wraps(load)
    def load_bytes(self: Any, read_item: Any, value: Any) -> None:
        if read_item.dest_index.fqn != getattr(self, "_penstock_asks", None):
            load(self, read_item, value)
        elif (follower := installed()) is not None:
            follower.load(of_text(torch.load(value, weights_only=True)))

    @functools.wraps(set_up)
    def set_up_planner(
        self: Any, state_dict: Any, metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        set_up(self, state_dict, metadata, is_coordinator)
        # Without flattening the planner's dictionary may be the program's own.
        if metadata is None or not self.flatten_state_dict:
            return
        if installed() is None or type(self).load_bytes is not load_bytes:
            return
        wanted = _wanted(self.state_dict, metadata.state_dict_metadata)
        if wanted is not None:
            self.state_dict = {**self.state_dict, wanted: ""}
            self._penstock_asks = wanted

    planner.set_up_planner, planner.load_bytes = set_up_planner, load_bytes


def _wanted(reads: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """The checkpoint's entry of an optimizer whose state is read; None: there is none."""
    for name in there:
        head, _, last = name.rpartition(".")
        if last != KEY or name in reads:
            continue
        below = f"{head}." if head else ""
        if any(one.startswith((f"{below}state.", f"{below}param_groups.")) for one in reads):
            return name
    return None


def _saying_where(state: Any) -> Any:
    """An optimizer's state with where the loaders are, if one is within an epoch."""
    follower = installed()
    where = None if follower is None else follower.state()
    return {**state, KEY: text_of(where)} if state and where is not None else state


def _heard(state: Any, options: Any) -> Any:
    """An optimizer's state without what it says of loaders, which is heard.

    Where one rank reads for all, the others know nothing of it: all begin as they do without.
    """
    if not isinstance(state, Mapping) or KEY not in state:
        return state
    state = dict(state)
    text, follower = state.pop(KEY), installed()
    if follower is not None and not getattr(options, "broadcast_from_rank0", False):
        follower.load(of_text(text))
    return state
