"""What the program's own code raised in a local worker, on its way to the program.

The program gets an error of the same class, as it would from PyTorch's own workers, and with the
worker's traceback in its text.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass


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
        try:
            return self.kind(text)
        except Exception:  # noqa: BLE001 - the user's class
            return RuntimeError(text)


def pack_raised(error: BaseException, place: str) -> bytes:
    """An error of the user's code, for the program's own thread."""
    trace = "".join(traceback.format_exception(error))
    try:
        return pickle.dumps(Raised(type(error), trace, place))
    except Exception:  # noqa: BLE001 - a class within a function, for instance
        return pickle.dumps(Raised(RuntimeError, trace, place))


def unpack_raised(packed: bytes) -> BaseException:
    """The error that this process or a child of it has packed."""
    try:
        raised = pickle.loads(packed)  # noqa: S301 - of this process's own child
    except Exception as error:  # noqa: BLE001 - the class cannot be made here
        return RuntimeError(f"a local worker raised what cannot be read here: {error!r}")
    return raised.error() if isinstance(raised, Raised) else RuntimeError(repr(raised))
