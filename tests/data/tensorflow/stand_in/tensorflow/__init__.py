"""As much of TensorFlow as `penstock.data.tensorflow` uses, on NumPy: for tests without it.

Datasets are lazy, fetch ahead where they say ``prefetch``, tell errors of generators as their text
alone, and shuffle with the global seed, as TensorFlow's do.
"""

from __future__ import annotations

import random as _random
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np


class DType:
    """A type; NumPy has none for texts, and another one in place of bfloat16."""

    def __init__(self, name: str, as_numpy_dtype: Any) -> None:
        self.name, self.as_numpy_dtype = name, as_numpy_dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


int64, float32, uint8 = (DType(n, np.dtype(n).type) for n in ("int64", "float32", "uint8"))
string = DType("string", object)
bfloat16 = DType("bfloat16", np.dtype("V2"))
variant = DType("variant", object)
_OF_NUMPY = {np.dtype(one.as_numpy_dtype): one for one in (int64, float32, uint8)}


class TensorShape:
    def __init__(self, sizes: Any) -> None:
        self._sizes = None if sizes is None else list(sizes)

    @property
    def rank(self) -> int | None:
        return None if self._sizes is None else len(self._sizes)

    def as_list(self) -> list[int | None]:
        return list(self._sizes or [])


class TensorSpec:
    def __init__(self, shape: Any, dtype: DType = float32) -> None:
        self.shape, self.dtype = TensorShape(shape), dtype


class RaggedTensorSpec:
    """Not dense."""


class Tensor:
    """An eager tensor."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)
        self.shape = self._array.shape

    def numpy(self) -> Any:
        return self._array


class Variable(Tensor):
    """A variable."""


class OpError(Exception):
    """What an operation raised."""


class UnknownError(OpError):
    """What a generator raised, as its text."""


errors = SimpleNamespace(OpError=OpError, UnknownError=UnknownError)


def _flatten(structure: Any) -> list[Any]:
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in _flatten(structure[key])]
    if isinstance(structure, tuple | list):
        return [leaf for one in structure for leaf in _flatten(one)]
    return [structure]


def _map(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, dict):
        made = {key: _map(structure[key], leaves) for key in sorted(structure)}
        return {key: made[key] for key in structure}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(_map(one, leaves) for one in structure))
    if isinstance(structure, tuple | list):
        return type(structure)(_map(one, leaves) for one in structure)
    return next(leaves)


def _pack(structure: Any, leaves: Any) -> Any:
    return _map(structure, iter(leaves))


nest = SimpleNamespace(flatten=_flatten, pack_sequence_as=_pack)
_seed: list[int] = [0]
random = SimpleNamespace(set_seed=lambda value: _seed.__setitem__(0, value))
threads: dict[str, int] = {}
config = SimpleNamespace(
    threading=SimpleNamespace(
        set_inter_op_parallelism_threads=lambda n: threads.__setitem__("inter_op", n),
        set_intra_op_parallelism_threads=lambda n: threads.__setitem__("intra_op", n),
    ),
    set_visible_devices=lambda devices, kind: threads.__setitem__(kind, len(devices)),
)


class Options:
    def __init__(self) -> None:
        self.deterministic: bool | None = None
        self.autotune = SimpleNamespace(cpu_budget=None, ram_budget=None)
        self.threading = SimpleNamespace(private_threadpool_size=None)


class Dataset:
    """Elements that are made when they are iterated."""

    def __init__(
        self, begin: Callable[[], Iterator[Any]], spec: Any, size: int = -2, options: Any = None
    ) -> None:
        self._begin, self.element_spec, self._size = begin, spec, size
        self._options = options or Options()

    @staticmethod
    def from_generator(generator: Callable[[], Iterator[Any]], output_signature: Any) -> Dataset:
        def begin() -> Iterator[Any]:
            try:
                for element in generator():
                    leaves = zip(_flatten(element), _flatten(output_signature), strict=True)
                    yield _pack(output_signature, [_checked(*one) for one in leaves])
            except Exception as error:  # noqa: BLE001 - as TensorFlow does
                raise UnknownError(f"{type(error).__name__}: {error}") from None

        return Dataset(begin, output_signature)

    @staticmethod
    def from_tensor_slices(arrays: Any) -> Dataset:
        leaves = _flatten(arrays)
        specs = [TensorSpec(one.shape[1:], _OF_NUMPY[one.dtype]) for one in leaves]
        rows = range(len(leaves[0]))
        # One expression.
        begin = lambda: (_pack(arrays, [one[row] for one in leaves]) for row in rows)  # noqa: E731
        return Dataset(begin, _pack(arrays, specs), len(rows))

    @staticmethod
    def range(*bounds: int) -> Dataset:
        return Dataset.from_tensor_slices(np.arange(*bounds, dtype=np.int64))

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        return Dataset(lambda: map(function, self._begin()), self.element_spec, self._size)

    def batch(self, size: int) -> Dataset:
        def begin() -> Iterator[Any]:
            batch: list[Any] = []
            for element in self._begin():
                batch.append(element)
                if len(batch) == size:
                    yield self._stacked(batch)
                    batch = []
            if batch:
                yield self._stacked(batch)

        specs = [
            TensorSpec([None, *one.shape.as_list()], one.dtype)
            for one in _flatten(self.element_spec)
        ]
        return Dataset(begin, _pack(self.element_spec, specs), -(-self._size // size))

    def _stacked(self, batch: list[Any]) -> Any:
        columns = zip(*map(_flatten, batch), strict=True)
        return _pack(self.element_spec, [np.stack(column) for column in columns])

    def shuffle(self, _: int) -> Dataset:
        seed = _seed[0]

        def begin() -> Iterator[Any]:
            elements = list(self._begin())
            _random.Random(seed).shuffle(elements)
            return iter(elements)

        return Dataset(begin, self.element_spec, self._size)

    def repeat(self) -> Dataset:
        def begin() -> Iterator[Any]:
            while True:
                yield from self._begin()

        return Dataset(begin, self.element_spec, -1)

    def prefetch(self, ahead: int) -> Dataset:
        def begin() -> Iterator[Any]:
            source, waiting = self._begin(), deque[Any]()
            for element in source:
                waiting.append(element)
                if len(waiting) > ahead:
                    yield waiting.popleft()
            yield from waiting

        return Dataset(begin, self.element_spec, self._size, self._options)

    def options(self) -> Options:
        return self._options

    def with_options(self, options: Options) -> Dataset:
        return Dataset(self._begin, self.element_spec, self._size, options)

    def cardinality(self) -> int:
        return self._size

    def as_numpy_iterator(self) -> Iterator[Any]:
        return self._begin()

    def __iter__(self) -> Iterator[Any]:
        for element in self._begin():
            yield _pack(element, [Tensor(one) for one in _flatten(element)])


def _checked(value: Any, spec: Any) -> Any:
    shape, sizes = np.shape(value), spec.shape.as_list()
    fits = len(shape) == len(sizes) and all(
        wanted in (None, size) for size, wanted in zip(shape, sizes, strict=True)
    )
    if spec.shape.rank is not None and not fits:
        raise TypeError(f"shape {shape} where {sizes} was due")
    return value


def _records(file: str) -> Dataset:
    """Of a file that need not exist: three texts."""
    texts = [f"{file}-{number}".encode() for number in range(3)]
    return Dataset(lambda: iter(texts), TensorSpec([], string), 3)


data = SimpleNamespace(
    Dataset=Dataset, Options=Options, INFINITE_CARDINALITY=-1, TFRecordDataset=_records
)
