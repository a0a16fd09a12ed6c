"""A dataset's ``element_spec`` as components, and elements made of components again.

Only dense tensors travel. What else TensorFlow has (ragged, sparse, optional, datasets) is refused
by name, with what to do within the function that makes the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.data.tensorflow.components import Component, Form, decode, names_of

_INSTEAD: Final = {
    "RaggedTensorSpec": "tensor.to_tensor(), or its values and row_lengths(), travel",
    "SparseTensorSpec": "tf.sparse.to_dense(tensor), or its indices, values and shape, travel",
}
_NO_NUMBERS: Final = frozenset({"variant", "resource", "string"})


class ElementSpecError(TypeError):
    """A dataset whose elements cannot be carried, or are not as declared."""


def components_of(element_spec: Any) -> tuple[Component, ...]:
    """The components of each element.

    Raises:
        ElementSpecError: one of them cannot be carried; says which.
    """
    import tensorflow as tf

    leaves = tf.nest.flatten(element_spec)
    names = names_of(element_spec)
    if len(names) != len(leaves):  # a class of structures that tf.nest alone knows
        names = [f"[component {number}]" for number in range(len(leaves))]
    return tuple(_component(tf, name, leaf) for name, leaf in zip(names, leaves, strict=True))


def _component(tf: Any, name: str, spec: Any) -> Component:
    kind, where = type(spec).__name__, f"component {name}" if name else "the elements"
    if not isinstance(spec, tf.TensorSpec):
        how = _INSTEAD.get(kind, "only dense tensors travel")
        raise ElementSpecError(f"element_spec: {where}: {kind}: {how}")
    dtype = spec.dtype
    if dtype == tf.string:
        form = Form.TEXTS
    elif dtype.name in _NO_NUMBERS or "q" in dtype.name:
        raise ElementSpecError(
            f"element_spec: {where}: {dtype.name}: only numbers and texts travel"
        )
    else:
        plain = dtype.name in _PLAIN
        form = Form.NUMBERS if plain else Form.RAW
    sizes = spec.shape
    shape = None if sizes.rank is None else tuple(sizes.as_list())
    return Component(name, dtype.name, shape, form)


_PLAIN: Final = frozenset(
    {
        "bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16",
        "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    }
)  # fmt: skip  # one set of names
"""Types that NumPy has itself."""


def reader_of(element_spec: Any, components: Sequence[Component]) -> Callable[[Any], Any]:
    """What makes an element of its components, once they have come."""
    import tensorflow as tf

    types = [leaf.dtype.as_numpy_dtype for leaf in tf.nest.flatten(element_spec)]

    def read(parts: Any) -> Any:
        return tf.nest.pack_sequence_as(element_spec, decode(components, parts, types))

    return read
