"""What the program's own code raised in a local worker, on its way to the program.

The program gets an error of the same class, as it would from PyTorch's own workers, and with the
worker's traceback in its text.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Final

MAX_TRACE: Final = 1 << 20
"""Of a longer traceback, or an error with a longer text, the middle is left out."""


class _Verbatim(str):
    """A text that a KeyError shows as it is, lines and all, and not as its ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Raised:
    """An error without its frames.

    Attributes:
        kind: its class.
        trace: its traceback, as text.
        place: where it was raised, as PyTorch says it.
    """

    kind: type[BaseException]
    trace: str
    place: str

    def error(self) -> BaseException:
        """An error of the class with the traceback as its text; RuntimeError if it takes none."""
        text = f"Caught {self.kind.__name__} in {self.place}.\nOriginal {self.trace}"
        if self.kind is KeyError:
            text = _Verbatim(text)
        try:
            return self.kind(text)
        except Exception:  # noqa: BLE001 - the user's class
            return RuntimeError(text)


def pack_raised(error: BaseException, place: str) -> bytes:
    """An error of the user's code, for the program's own thread."""
    trace = text_of("".join(traceback.format_exception(error)), MAX_TRACE)
    try:
        return pickle.dumps(Raised(type(error), trace, place))
    except Exception:  # noqa: BLE001 - a class within a function, for instance
        return pickle.dumps(Raised(RuntimeError, trace, place))


def describe(error: BaseException) -> str:
    """Class and text of an error of the user's code, whose ``__str__`` may raise too."""
    try:
        said = str(error)
    except Exception as other:  # noqa: BLE001 - the user's class
        said = f"(its text raised {type(other).__name__})"
    return f"{type(error).__name__}: {said}"


def text_of(text: str, limit: int) -> str:
    """A text as messages carry it: UTF-8, and not longer than that."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[{len(text) - 2 * half} more characters]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def unpack_raised(packed: bytes) -> BaseException:
    """The error that this process or a child of it has packed."""
    try:
        raised = pickle.loads(packed)  # noqa: S301 - of this process's own child
    except Exception as error:  # noqa: BLE001 - the class cannot be made here
        return RuntimeError(f"a local worker raised what cannot be read here: {error!r}")
    return raised.error() if isinstance(raised, Raised) else RuntimeError(repr(raised))
