"""A declared function as it is sent: its pickle, and apart from that its large tensors.

Where they are the program's own, or mapped, the function that is opened has them as they lie: no
process copies them. Local workers that are forked have them from the program. Those that are not
map them in the node's folder (`penstock.data.weights.node_folder`), which the program then puts
them into.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import logging
import multiprocessing.context
import pickle
from collections.abc import Callable
from typing import Any, Final

import cloudpickle
import torch

from penstock.data.bounded_pickle import Bounded, BoundedPickler
from penstock.data.errors import DataError
from penstock.data.pipeline import MAX_PIPELINE_BYTES
from penstock.data.weight_bundle import LEAST_BYTES, Gathering, Weights
from penstock.data.weights.node_folder import node_folder

logger = logging.getLogger(__name__)

_MARK: Final = "penstock: weights"


class PortableFunction:
    """See the module's docstring.

    Attributes:
        digest: of all of it.
        weights: None: it has no large tensors.
    """

    def __init__(
        self,
        blob: bytes,
        weights: Weights | None,
        modules: tuple[str, ...] = (),
        *,
        copied: bool = False,
    ) -> None:
        """``modules``: where its code is; ``copied``: the weights' memory is nobody else's."""
        self._blob = blob
        self._modules = modules
        self._copied = copied
        self.weights = weights
        self.digest = hashlib.sha256(blob + (weights.digest if weights else b"")).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.weights is not None and multiprocessing.context.get_spawning_popen() is not None:
            return _on_this_node, (self._blob, _published(self.weights), self._modules)
        return PortableFunction, (self._blob, self.weights, self._modules)

    @property
    def there(self) -> bool:
        """Whether it can be opened: its weights have come."""
        return self.weights is None or self.weights.there

    @property
    def keeps_bytes(self) -> bool:
        """Whether it opens as it was packed here, whatever becomes of the function's tensors."""
        return self.weights is None or self._copied

    def import_modules(self) -> None:
        """Have its code here before it is opened: libraries of models take seconds to import."""
        for name in self._modules:
            # A library may raise anything; whoever opens the function is told of it.
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def open(self) -> Callable[..., Any]:
        """The function; raises whatever its classes raise when they are unpickled."""
        opened: Callable[..., Any] = _Unpickler(self._blob, self.weights).load()
        return opened


def pack_function(function: Any, *, copied_bytes: int = 0) -> PortableFunction:
    """Take a function apart.

    ``copied_bytes``: weights of no more than that are copied, so that it opens here as it is now
    also when the program writes to them later.

    Raises:
        PipelineTooLargeError: it, or its large tensors, are more than is sent.
        Exception: whatever its classes raise when they are pickled.
    """
    file = Bounded(MAX_PIPELINE_BYTES)
    pickler = _Pickler(file, MAX_PIPELINE_BYTES)
    pickler.dump(function)
    weights = pickler.gathering.weights()
    modules = tuple(sorted(name.partition(":")[0] for name in pickler.named))
    if weights is None or weights.size > copied_bytes:
        return PortableFunction(file.getvalue(), weights, modules)
    return PortableFunction(file.getvalue(), _copy(weights), modules, copied=True)


def _copy(weights: Weights) -> Weights:
    """The same bytes in memory of their own."""
    memory = torch.empty(weights.size, dtype=torch.uint8).numpy()  # aligned as tensors are
    view, at = memory.data, 0
    for piece in weights.read(0, weights.size):
        view[at : at + len(piece)] = piece
        at += len(piece)
    found = Weights(weights.digest, weights.size)
    found.attach(memory)
    return found


def _published(weights: Weights) -> Weights:
    """Weights that a process which is just being started finds on this node."""
    try:
        if weights.there:
            node_folder().publish(weights)
    except (DataError, OSError) as error:
        logger.warning("offload: local workers have no weights: %s", error)
    return weights


def _on_this_node(blob: bytes, weights: Weights, modules: tuple[str, ...]) -> PortableFunction:
    try:
        if (memory := node_folder().find(weights)) is not None:
            weights.attach(memory)
    except (DataError, OSError) as error:
        logger.warning("offload: a local worker has no weights: %s", error)
    return PortableFunction(blob, weights, modules)


def _storage_of(value: Any) -> torch.UntypedStorage | None:
    """The memory of a large tensor, as a pickle has it; None: it is none, or stays where it is."""
    storage = value._untyped_storage if isinstance(value, torch.storage.TypedStorage) else value
    if not isinstance(storage, torch.UntypedStorage) or storage.device.type != "cpu":
        return None
    return storage if storage.nbytes() >= LEAST_BYTES else None


class _Pickler(BoundedPickler):
    def __init__(self, file: io.BytesIO, limit: int) -> None:
        super().__init__(file, limit)
        self.gathering = Gathering()
        self._offsets: dict[int, int] = {}
        self._kept: list[torch.UntypedStorage] = []  # so that no address is used twice

    def persistent_id(self, value: Any) -> Any:
        storage = _storage_of(value)
        if storage is None:
            return None
        address = storage.data_ptr()
        if address not in self._offsets:
            memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            self._offsets[address] = self.gathering.add(memory)
            self._kept.append(storage)
        kind = str(value.dtype)[6:] if isinstance(value, torch.storage.TypedStorage) else ""
        return _MARK, self._offsets[address], storage.nbytes(), kind

    def reducer_override(self, obj: Any) -> Any:
        plain = isinstance(obj, torch.Tensor) and obj.layout is torch.strided
        if plain and _storage_of(obj.untyped_storage()) is not None:
            return cloudpickle.Pickler.reducer_override(self, obj)  # it does not count
        return super().reducer_override(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, blob: bytes, weights: Weights | None) -> None:
        super().__init__(io.BytesIO(blob))
        self._weights = weights
        self._storages: dict[int, torch.UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        mark, offset, size, kind = pid
        if mark != _MARK or self._weights is None:
            raise pickle.UnpicklingError(f"a function with {mark!r} where weights were due")
        if offset not in self._storages:
            memory = torch.frombuffer(self._weights.piece(offset, size), dtype=torch.uint8)
            self._storages[offset] = memory.untyped_storage()
        storage = self._storages[offset]
        if not kind:
            return storage
        typed: Any = torch.storage.TypedStorage
        return typed(wrap_storage=storage, dtype=getattr(torch, kind), _internal=True)
