"""Whether a function is stateless, as far as that can be seen, and whether it stays what it was.

`Frozen` is taken before a call and asked afterwards. What PyTorch counts (versions of tensors),
whether a module is trained and what it consists of are looked at each time, in microseconds. Writes
that PyTorch does not count (``parameter.data.add_()``, the usual way of a moving average) are found
by the bytes of one tensor in turn: a write to all of them with the next call, one to a single
tensor after as many calls as there are tensors, or when results are next compared.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from penstock.data.offloading.arguments import version
from penstock.data.offloading.reachable import Reachable

LOOKED_AT_BYTES: Final = 16 << 10
"""Of a tensor, in its turn, with each call: a microsecond, or five where there is no copy."""
COPIED_BYTES: Final = 4 << 20
"""Of these bytes copies are kept; of the tensors beyond that, checksums."""
_TRAINING: Final = operator.attrgetter("training")


class Frozen:
    """What a function can read, as it was when this was made.

    Attributes:
        problem: why the function is not stateless; None: as far as is seen it is.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._found = Reachable(function)
        self._before = {name: _state(one) for name, one in self._found.tensors.items()}
        self._parts = {name: _parts(one) for name, one in self._found.modules.items()}
        heads = ((name, _head(one)) for name, one in self._found.tensors.items())
        self._heads = list(_Head.of((name, head) for name, head in heads if head is not None))
        self._quick = _Quick(self._found)
        self._turn = 0
        self._memory = {_memory(one) for one in self._found.tensors.values()}
        self.problem = next(self._problems(), None)

    def _problems(self) -> Iterator[str]:
        found = self._found
        if not found.complete:
            yield "it leads to more objects than are looked at"
        for name in found.generators:
            yield f"it has a random generator of its own ({name})"
        for name, module in found.modules.items():
            if module.training:
                yield f"{_shown(name)} is in training mode: call its eval()"
            inner = module._forward_hooks or module._forward_pre_hooks
            if inner and module is not self._function:
                yield f"{_shown(name)} has hooks, which would be called elsewhere"
        for name, tensor in found.tensors.items():
            if tensor.requires_grad:
                yield f"{_shown(name)} requires a gradient: it is trained"
            if tensor.device.type != "cpu":
                yield f"{_shown(name)} is on {tensor.device}: data workers compute on CPUs"

    def holds(self, tensors: Iterator[torch.Tensor]) -> bool:
        """Whether one of these lies in memory of what the function can read."""
        return any(one.numel() and _memory(one) in self._memory for one in tensors)

    def change(self) -> str | None:
        """What is another than it was; None: nothing that can be seen for little."""
        if not self._quick.is_same() and (why := self._named_change()) is not None:
            return why
        if not self._heads:
            return None
        # Their memory is where it was, or the quick look would have told.
        head = self._heads[self._turn % len(self._heads)]
        self._turn += 1
        return None if head.is_same() else f"{_shown(head.name)} was written to"

    def _named_change(self) -> str | None:
        for name, module in self._found.modules.items():
            if _parts(module) != self._parts[name]:
                trained = module.training
                return f"{_shown(name)} {'was put into training mode' if trained else 'changed'}"
        for name, tensor in self._found.tensors.items():
            if (now := _state(tensor)) != (before := self._before[name]):
                trained = now[1] and not before[1]
                return f"{_shown(name)} {'requires a gradient' if trained else 'was written to'}"
        return None

    def change_of_numbers(self) -> str | None:
        """As `change`, of numbers, texts and lengths as well, which takes longer to see."""
        now = Reachable(self._function).plain
        for name, value in self._found.plain.items():
            if name in now and now[name] != value:
                return f"calling it changes {name}"
        return self.change()


class _Head:
    """The first bytes of a tensor, and what they were."""

    __slots__ = ("_checksum", "_copy", "_now", "name")

    def __init__(self, name: str, now: memoryview, *, keep: bool) -> None:
        """``keep``: hold a copy, which costs a seventh of the time of a checksum."""
        self.name, self._now = name, now
        self._copy = now.tobytes() if keep else None
        self._checksum = 0 if keep else zlib.crc32(now)

    @classmethod
    def of(cls, heads: Iterable[tuple[str, memoryview]]) -> Iterator[_Head]:
        """Of all tensors; copies of `COPIED_BYTES` at most."""
        held = 0
        for name, now in heads:
            held += now.nbytes
            yield cls(name, now, keep=held <= COPIED_BYTES)

    def is_same(self) -> bool:
        """Whether the bytes are what they were."""
        if self._copy is not None:
            # They are as many as they were, so the one begins with the other if it is the other.
            return self._copy.startswith(self._now)
        return zlib.crc32(self._now) == self._checksum


class _Quick:
    """All that `Frozen.change` compares, as it was when this was made.

    It is asked with each matched call: a small module must cost little more than its tensors, and
    an encoder may have a thousand of them.
    """

    def __init__(self, found: Reachable) -> None:
        tensors = found.tensors.values()
        self._versioned = [
            (one, one._version, one.requires_grad, one.data_ptr())
            for one in tensors
            if not one.is_inference()
        ]
        self._others = [
            (one, one.requires_grad, one.data_ptr()) for one in tensors if one.is_inference()
        ]
        self._modules = list(found.modules.values())
        self._training = list(map(_TRAINING, self._modules))
        self._groups: list[dict[str, Any]] = [
            group
            for module in self._modules
            for group in (module._parameters, module._buffers, module._modules)
        ]
        self._sizes = list(map(len, self._groups))
        self._parts = list(self._parts_now())

    def is_same(self) -> bool:
        """Whether nothing has changed that PyTorch counts."""
        for one, version_then, gradient, memory in self._versioned:
            if one._version != version_then or one.requires_grad is not gradient:
                return False
            if one.data_ptr() != memory:
                return False
        for one, gradient, memory in self._others:
            if one.requires_grad is not gradient or one.data_ptr() != memory:
                return False
        if list(map(_TRAINING, self._modules)) != self._training:
            return False
        if list(map(len, self._groups)) != self._sizes:
            return False
        return all(map(operator.is_, self._parts_now(), self._parts))

    def _parts_now(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(map(dict.values, self._groups))


def _state(tensor: torch.Tensor) -> tuple[int, bool, int]:
    return version(tensor), tensor.requires_grad, tensor.data_ptr()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _parts(module: torch.nn.Module) -> tuple[bool, tuple[int, ...]]:
    groups = (module._parameters, module._buffers, module._modules)
    return module.training, tuple(id(one) for group in groups for one in group.values())


def _head(tensor: torch.Tensor) -> memoryview | None:
    """The first bytes of a tensor, where they lie; None: they cannot be looked at there."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return None
    if tensor.is_conj() or tensor.is_neg():
        return None  # a view whose numbers are made when they are read
    flat = tensor.detach() if tensor.is_contiguous() else tensor.detach().as_strided((1,), (1,))
    count = max(1, LOOKED_AT_BYTES // tensor.element_size())
    found: memoryview = flat.reshape(-1)[:count].view(torch.uint8).numpy().data
    return found


def _shown(name: str) -> str:
    return name or "the module"
