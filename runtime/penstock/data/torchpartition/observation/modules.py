"""Modules as one call each: which may be, and how a program's calls of them are seen.

A frozen module in ``eval()`` is one node: its own code runs on plain tensors, as without anybody
who looks, so that it takes the way that it always takes (some modules of PyTorch compute in another
way as soon as a tensor is watched). Others are gone into with the tensors that are looked at, but
for those of PyTorch that ask what their arguments are: they get plain ones at their door.

`torch.nn.Module.__call__` is replaced while some loader's steps are looked at, and put back; also
while a compiled module runs, which would otherwise be compiled with what is in its place. As long
functions that are compiled get a door (`penstock.data.torchpartition.observation.compiling`).
"""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import torch

from penstock.data.offloading.frozen import Frozen
from penstock.data.offloading.reachable import Reachable
from penstock.data.torchpartition.observation.compiled import is_compiled
from penstock.data.torchpartition.observation.compiling import unwatch_compiling, watch_compiling
from penstock.data.torchpartition.observation.deferred import Deferred, alive, first_deferred

_everybodys: Final[Any] = torch.nn.modules.module
_ASKING: Final = (
    torch.nn.MultiheadAttention,
    torch.nn.Transformer,
    torch.nn.TransformerDecoder,
    torch.nn.TransformerDecoderLayer,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
    torch.nn.RNNBase,
    torch.nn.RNNCellBase,
    torch.jit.ScriptModule,
)
"""They look whether a tensor is watched, or are no Python at all."""


class Door(Enum):
    """How a module is entered with tensors that are looked at."""

    WHOLE = "as one call"
    PLAIN = "with plain tensors"
    OPEN = "with the tensors as they are"


def door_of(module: torch.nn.Module) -> Door:
    """From what can be seen at once; `FrozenModules` may find that it cannot be one call."""
    if isinstance(module, _ASKING) or is_compiled(module):
        whole = not is_compiled(module) and looks_frozen(module)
        return Door.WHOLE if whole else Door.PLAIN
    return Door.WHOLE if looks_frozen(module) else Door.OPEN


def looks_frozen(module: torch.nn.Module) -> bool:
    """In ``eval()``, without gradients and without hooks that would have to be called here."""
    if module.training or module._forward_hooks or module._forward_pre_hooks:
        return False
    if _everybodys._global_forward_hooks or _everybodys._global_forward_pre_hooks:
        return False
    return not any(one.requires_grad for one in module.parameters())


class FrozenModules:
    """The modules that the calls of one loader's steps are of, and whether they stay as they are.

    What PyTorch counts is looked at with each call (`penstock.data.offloading.frozen`), and all
    bytes when `changed` is asked.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.nn.Module, Frozen, int]] = {}
        self._changed: dict[int, str] = {}

    def door(self, module: torch.nn.Module) -> tuple[Door, str]:
        """How it is entered, and why not as one call if it was one before."""
        door = door_of(module)
        if id(module) in self._known:
            why = self.change(module)
            return (Door.WHOLE, "") if door is Door.WHOLE and not why else (Door.PLAIN, why)
        if door is not Door.WHOLE:
            return door, ""
        frozen = Frozen(module)
        if frozen.problem is not None:
            return Door.PLAIN if isinstance(module, _ASKING) else Door.OPEN, ""
        self._known[id(module)] = module, frozen, _digest(module)
        return Door.WHOLE, ""

    def holds(self, module: torch.nn.Module, tensors: list[torch.Tensor]) -> bool:
        """Whether one of these is a part of the module."""
        return self._known[id(module)][1].holds(iter(tensors))

    def change(self, module: torch.nn.Module, *, numbers: bool = False) -> str:
        """What is another than it was, or once was, as far as is seen quickly; "": nothing.

        ``numbers``: also what it counts in attributes, which takes longer to see.
        """
        key = id(module)
        if key not in self._changed:
            frozen = self._known[key][1]
            why = frozen.change_of_numbers() if numbers else frozen.change()
            if not why:
                return ""
            self._changed[key] = why
        return self._changed[key]

    def still(self, module: torch.nn.Module) -> str:
        """Why one that is known cannot be one call any more, as far as is seen quickly; ""."""
        if module._forward_hooks or module._forward_pre_hooks or is_compiled(module):
            return "it has hooks, or was compiled"
        if _everybodys._global_forward_hooks or _everybodys._global_forward_pre_hooks:
            return "all modules have hooks"
        return self.change(module)

    def written(self, module: torch.nn.Module) -> bool:
        """Whether one that is known has not all bytes that it had when it was first called."""
        return _digest(module) != self._known[id(module)][2]

    def changed(self) -> dict[int, str]:
        """By `id` of a module how it changed, by any byte, since it was first called."""
        for key, (module, _, digest) in self._known.items():
            if not self.change(module) and _digest(module) != digest:
                self._changed[key] = "it was written to"
        return self._changed


def _digest(module: torch.nn.Module) -> int:
    """Of all that a module can read."""
    found = 0
    for tensor in Reachable(module).tensors.values():
        found = tensor_digest(tensor, found)
    return found


def tensor_digest(tensor: torch.Tensor, before: int = 0) -> int:
    """Of all its numbers."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return before
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(flat.numpy().data, before)


class Witness:
    """What modules are called with in a step of which nothing is looked at.

    The first call of each module is the step's. Where the program takes several batches before it
    uses the first, calls of several steps come in the meantime, and nobody can say whose each is:
    there one with the values that are expected counts, and all others do not.

    Attributes:
        used: nobody can say; a step that nobody looks at is taken for used.
        seen: by value whether it is, bit by bit, what the module got; "" if so.
    """

    used: Final = True

    def __init__(
        self, expected: dict[int, list[tuple[int, int]]], hold: Any, *, among_others: bool = False
    ) -> None:
        """``expected``: by `id` of a module arguments and the values that they are to be.

        ``hold``: says how a value differs from a tensor, or "". ``among_others``: calls of other
        steps come meanwhile.
        """
        self._expected = dict(expected)
        self._hold = hold
        self._among_others = among_others
        self.seen: dict[int, str] = {}

    def see(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A call."""
        expected = self._expected.get(id(module))
        if expected is None:
            return
        flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
        found = {
            key: self._hold(key, flat[place] if place < len(flat) else None)
            for place, key in expected
        }
        if not self._among_others or not any(found.values()):
            self.seen.update(found)
            del self._expected[id(module)]


@dataclass
class _Watch:
    """Whether calls of modules are seen, and by whom."""

    plain: Any = None
    users: int = 0
    compiled: int = 0  # modules of these that run now, in all threads
    witnesses: list[Witness] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_watch: Final = _Watch()


def watch() -> None:
    """See the program's calls of modules, until `unwatch` was called as often."""
    _watch.users += 1
    if _watch.users == 1:
        _watch.plain = torch.nn.Module.__call__
        torch.nn.Module.__call__ = _call  # type: ignore[method-assign]  # on purpose
        watch_compiling(_unwatched)


def unwatch() -> None:
    """See `watch`; what others have put into its place in the meantime stays."""
    _watch.users -= 1
    if not _watch.users:
        unwatch_compiling()
    if not _watch.users and torch.nn.Module.__call__ is _call:
        torch.nn.Module.__call__ = _watch.plain  # type: ignore[method-assign]  # on purpose


class Watching:
    """Whether one loader needs to see the calls of modules."""

    def __init__(self) -> None:
        self._begun = False

    def begin(self) -> None:
        """From now on they are seen."""
        if not self._begun:
            self._begun = True
            watch()

    def end(self, *, needed: bool) -> None:
        """They are seen as long as anybody has a tensor that is looked at, or it is ``needed``."""
        if self._begun and not needed and not alive():
            self._begun = False
            unwatch()


def add_witness(witness: Witness) -> None:
    """Tell it of calls, once; see `Witness`."""
    if witness not in _watch.witnesses:
        _watch.witnesses.append(witness)


def remove_witness(witness: Witness) -> None:
    """It has seen enough."""
    if witness in _watch.witnesses:
        _watch.witnesses.remove(witness)


def _call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    # Most modules that move are called with one tensor of the step, and many are called.
    found = args[0] if args and type(args[0]) is Deferred else first_deferred((args, kwargs))
    if _watch.witnesses and (found is None or not found._step.open):
        for witness in list(_watch.witnesses):
            witness.see(self, args, kwargs)
    if found is None:
        return _run(self, *args, **kwargs)
    return found._step.module(self, args, kwargs, _run)


def _run(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module, as without anybody who looks."""
    if not is_compiled(self):
        return _watch.plain(self, *args, **kwargs)
    return _unwatched(_watch.plain, self, *args, **kwargs)


def _unwatched(run: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call of what is compiled, or may be now: PyTorch's compiler sees modules as they are."""
    with _watch.lock:
        _watch.compiled += 1
        if torch.nn.Module.__call__ is _call:
            torch.nn.Module.__call__ = _watch.plain  # type: ignore[method-assign]  # on purpose
    try:
        return run(*args, **kwargs)
    finally:
        with _watch.lock:
            _watch.compiled -= 1
            mine = _watch.users and not _watch.compiled
            if mine and torch.nn.Module.__call__ is _watch.plain:
                torch.nn.Module.__call__ = _call  # type: ignore[method-assign]  # on purpose
