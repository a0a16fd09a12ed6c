"""The pipeline of persistent workers, which have the dataset as it was when they began.

What a program changes in the dataset after that, between epochs for instance, reaches them no more
(with PyTorch neither), so it must not reach data workers: the batches would depend on who makes
them. A pipeline is packed once for all epochs; and where the first data worker comes after a
change, not at all. The look for one is shallow: it sees attributes that are set, of the dataset and
of what it wraps, and not what is written to a tensor or a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.data.errors import NotPortableError
from penstock.data.pipeline import PackedPipeline

_MOST_WRAPPED: Final = 16
_BY_VALUE: Final = (int, float, str, bytes)


class PersistentPipeline:
    """Packs the pipeline of one loader, as its persistent workers have it."""

    def __init__(self, dataset: Any) -> None:
        """``dataset``: as they have it."""
        self._dataset = dataset
        self._before = _attributes(dataset)
        self._packed: PackedPipeline | None = None

    def pack(self, pack: Callable[[], PackedPipeline]) -> PackedPipeline:
        """What ``pack`` gives, or gave.

        Raises:
            NotPortableError: the dataset was changed meanwhile, or cannot be packed.
        """
        if self._packed is None:
            self._packed = self.pack_cut(pack)
        return self._packed

    def pack_cut(self, pack: Callable[[], PackedPipeline]) -> PackedPipeline:
        """What ``pack`` gives now, which ends elsewhere than the loader's own; raises as `pack`."""
        if not _same(self._before, _attributes(self._dataset)):
            raise NotPortableError(
                "persistent_workers=True: its dataset was changed after they began, and they "
                "have it as it was"
            )
        return pack()


def _attributes(dataset: Any) -> list[dict[str, Any]]:
    """Of a dataset, of the one that it wraps, and so on."""
    found: list[dict[str, Any]] = []
    while dataset is not None and len(found) < _MOST_WRAPPED:
        found.append(dict(getattr(dataset, "__dict__", {})))
        dataset = found[-1].get("dataset")
    return found


def _same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    return len(left) == len(right) and all(
        before.keys() == after.keys()
        and all(_is_same(before[name], after[name]) for name in before)
        for before, after in zip(left, right, strict=True)
    )


def _is_same(left: Any, right: Any) -> bool:
    return left is right or (
        type(left) is type(right) and type(left) in _BY_VALUE and left == right
    )
