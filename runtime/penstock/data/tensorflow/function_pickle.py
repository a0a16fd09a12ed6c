"""The function that makes a shard's dataset, pickled: without tensors of the training process.

An eager tensor or a variable in a closure is a value of the program, perhaps on its device, and may
differ from what it was when a data worker begins a shard again. It is refused by name.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from penstock.data.errors import NotPortableError


def dump_function(function: Callable[[Any], Any]) -> bytes:
    """The function by value, if it is of the program's script, else by name.

    Raises:
        NotPortableError: it holds what does not travel; says what.
    """
    file = io.BytesIO()
    try:
        _Pickler(file).dump(function)
    except NotPortableError:
        raise
    except Exception as error:  # pickling runs code of the user's classes
        raise NotPortableError(
            f"the function that makes the datasets cannot be pickled: {type(error).__name__}: "
            f"{error}"
        ) from error
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # has no types
    def reducer_override(self, obj: Any) -> Any:
        tf = sys.modules.get("tensorflow")
        held = () if tf is None or isinstance(obj, type) else (tf.Tensor, tf.Variable)
        if held and isinstance(obj, held):
            # `held` is empty where `tf` is None.
            kind = "tf.Variable" if isinstance(obj, tf.Variable) else "tf.Tensor"  # type: ignore[union-attr]
            raise NotPortableError(
                f"the function that makes the datasets holds a {kind} of shape {obj.shape}: make "
                "it within the function, or hold a NumPy array"
            )
        # As above: `tf` is there.
        if held and isinstance(obj, tf.data.Dataset):  # type: ignore[union-attr]
            raise NotPortableError(
                "the function that makes the datasets holds a tf.data.Dataset: make it within"
            )
        return super().reducer_override(obj)
