"""What goes through a dataset in the place of a value that is not made to its end yet.

The last transforms of a sample are to run elsewhere, so its dataset is given something in the place
of what they return, and is to hand it on unseen. If it looks at it, as for a picture's shape, it
would make another sample than without the cut: looking raises, and is remembered where the dataset
catches that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.data.errors import NotCutError

_LOOKING: Final = (
    "__abs__",
    "__add__",
    "__array__",
    "__bool__",
    "__call__",
    "__contains__",
    "__delitem__",
    "__eq__",
    "__float__",
    "__floordiv__",
    "__format__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__index__",
    "__int__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__matmul__",
    "__mod__",
    "__mul__",
    "__ne__",
    "__neg__",
    "__next__",
    "__pow__",
    "__radd__",
    "__repr__",
    "__reduce_ex__",
    "__rmul__",
    "__rsub__",
    "__rtruediv__",
    "__setattr__",
    "__setitem__",
    "__str__",
    "__sub__",
    "__truediv__",
)
"""What Python finds in a class without asking the object."""


class Passing:
    """See the module's docstring; `HandOver` knows what it stands for."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[[str], None]) -> None:
        object.__setattr__(self, "_note", note)

    def __getattribute__(self, name: str) -> Any:
        object.__getattribute__(self, "_note")(name)
        raise NotCutError(_looked_at(name))


def _looked_at(name: str) -> str:
    return f"its dataset looks at what its transforms return ({name})"


def _refuse(name: str) -> Any:
    def looked(self: Any, *_: Any) -> Any:
        return Passing.__getattribute__(self, name)

    return looked


for _name in _LOOKING:
    setattr(Passing, _name, _refuse(_name))


class HandOver:
    """Takes the value of one sample after the other in the middle of its way."""

    def __init__(self) -> None:
        self._taken: list[tuple[Passing, Any]] = []
        self._looked = ""

    def __reduce__(self) -> tuple[type[HandOver], tuple[()]]:
        return HandOver, ()

    def begin(self) -> None:
        """The next sample is begun."""
        self._taken.clear()
        self._looked = ""

    def __call__(self, *values: Any, **named: Any) -> Any:
        """In the place of a transform: give the dataset something else than the value."""
        if len(values) != 1 or named:
            raise NotCutError("its transforms are called with several values")
        passing = Passing(self._note)
        self._taken.append((passing, values[0]))
        return passing

    def _note(self, name: str) -> None:
        self._looked = self._looked or _looked_at(name)

    def find(self, sample: Any) -> tuple[list[Any], Any]:
        """The way to the value in a sample that the dataset gave, and the sample with the value.

        Raises:
            NotCutError: the value is not in it, or not just there.
        """
        if self._looked:
            raise NotCutError(self._looked)
        if len(self._taken) != 1:
            raise NotCutError(f"a sample goes {len(self._taken)} times through its transforms")
        ((passing, value),) = self._taken
        ways = list(_ways(sample, passing, []))
        if len(ways) != 1:
            raise NotCutError(
                "its dataset gives what its transforms return in another form"
                if not ways
                else "its dataset gives what its transforms return several times"
            )
        self.begin()
        return ways[0], replaced(sample, ways[0], lambda _: value)


def _ways(value: Any, wanted: Any, way: list[Any]) -> Iterator[list[Any]]:
    if value is wanted:
        yield way
    elif type(value) is dict:
        for key, one in value.items():
            yield from _ways(one, wanted, [*way, key])
    elif type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        for at, one in enumerate(value):
            yield from _ways(one, wanted, [*way, at])


def replaced(sample: Any, way: list[Any], by: Callable[[Any], Any]) -> Any:
    """A sample with another value at the end of a way; lists and dicts of it are changed."""
    if not way:
        return by(sample)
    key, *rest = way
    changed = replaced(sample[key], rest, by)
    if isinstance(sample, tuple):
        parts = [*sample[:key], changed, *sample[key + 1 :]]
        return type(sample)(*parts) if hasattr(sample, "_fields") else tuple(parts)
    sample[key] = changed
    return sample
