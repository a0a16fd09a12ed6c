"""Programs that know nothing of it: ``penstock run --save-batches DIR`` and ``--load-batches DIR``.

The loaders of a program are numbered in the order in which it first iterates them, and each rank
has a folder of its own: ``DIR/rank-0/loader-0``. The first epoch of each is saved while the program
trains with it. When batches are loaded, neither dataset nor sampler is asked for anything, but the
program's generators are drawn from as PyTorch would have, so that what the model draws is the same.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from torch.utils import data as torch_data

from penstock.crds import environment as names
from penstock.data.errors import SavedError
from penstock.data.saved.reading import SavedBatches, load
from penstock.data.saved.writing import BatchWriter, describe
from penstock.data.torch_loading.torch_sampling import begin_sampling, is_known

logger = logging.getLogger(__name__)

_ATTRIBUTE: Final = "_penstock_saved"
_numbers = itertools.count()

Begin = Callable[[Any], Any]
"""``iter`` of a loader as it is without any of this."""
Finish = Callable[[Any], Any]


def begin(loader: Any, usual: Begin, finisher: Callable[[Any], Finish | None]) -> Any:
    """``iter`` of a loader of such a program.

    ``finisher`` says what is done with a loader's batches where they arrive.

    Raises:
        SavedError: its batches cannot be saved or loaded.
    """
    if torch_data.get_worker_info() is not None:
        return usual(loader)  # it is in the process of another loader
    kept = loader.__dict__.get(_ATTRIBUTE)
    if kept is None:
        kept = _Kept(finisher(loader))
        object.__setattr__(loader, _ATTRIBUTE, kept)
    return kept.begin(loader, usual)


class _Kept:
    """What is known of one loader of the program."""

    def __init__(self, finish: Finish | None) -> None:
        self._finish = finish
        self._number = next(_numbers)
        self._saving, self._loading = (
            _folder(os.environ.get(name), self._number)
            for name in (names.SAVE_BATCHES, names.LOAD_BATCHES)
        )
        self._saved: SavedBatches | None = None
        self._base_seed: int | None = None  # of persistent workers, which there would be

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A copy of the loader, here or in another process, has its batches made as usual."""
        return _Nothing, ()

    def begin(self, loader: Any, usual: Begin) -> Any:
        if self._loading is not None:
            return self._load(loader, self._loading, usual)
        folder, self._saving = self._saving, None  # the first epoch alone
        if folder is None:
            return usual(loader)
        writer = BatchWriter(folder, describe(loader), expected=_length(loader))
        if writer.complete:
            writer.close()
            _say(loader, f"is saved in {folder} already")
            return usual(loader)
        _say(loader, f"is saved in its first epoch, in {folder}")
        return _Saving(usual(loader), writer, loader)

    def _load(self, loader: Any, folder: Path, usual: Begin) -> Any:
        if self._saved is None:
            if not folder.exists():
                self._loading = None
                _say(loader, f"makes its batches as usual: there is no {folder}")
                return usual(loader)
            saved = load(folder)
            if dict(saved.index.source) != describe(loader):
                raise SavedError(
                    f"{folder}: it has batches of {dict(saved.index.source)}, and the program's "
                    f"loader number {self._number} is {describe(loader)}: they are of another "
                    "program, or its loaders are iterated in another order"
                )
            self._saved = saved
        self._draw(loader)
        return _Loading(self._saved, self._finish)

    def _draw(self, loader: Any) -> None:
        """Draw from the program's generators what an epoch of PyTorch's draws."""
        known = self._base_seed if loader.persistent_workers else None
        given = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        drawn, _, indices, _ = begin_sampling(loader, lambda: given, None, 0, known)
        self._base_seed = drawn
        if is_known(loader):
            next(indices, None)  # a sampler that shuffles draws when it is first asked


class _Nothing:
    """In the place of what is known of a loader, in a copy of it."""

    def begin(self, loader: Any, usual: Begin) -> Any:
        return usual(loader)


class _Saving:
    """The iterator of the epoch that is saved."""

    def __init__(self, batches: Any, writer: BatchWriter, loader: Any) -> None:
        self._batches = batches
        self._writer = writer
        self._what = loader

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._what is not None:
                self._writer.finish()
                _say(self._what, f"is saved: {self._writer.batches} batches")
                self._what = None
            raise
        if self._what is not None:
            self._writer.add(batch)
        return batch

    def __del__(self) -> None:
        if getattr(self, "_what", None) is None:
            return
        writer, loader = self._writer, self._what
        try:
            writer.close()
        except SavedError as error:
            logger.error("%s", error)
        count = writer.batches
        _say(loader, f"was left early: {count} batches of its epoch are saved, and not all")


class _Loading:
    """The iterator of an epoch of saved batches."""

    def __init__(self, saved: SavedBatches, finish: Callable[[Any], Any] | None) -> None:
        self._batches: Iterator[Any] = iter(saved)
        self._length = len(saved)
        self._finish = finish

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return self._length

    def __next__(self) -> Any:
        batch = next(self._batches)
        return batch if self._finish is None else self._finish(batch)


def _folder(text: str | None, number: int) -> Path | None:
    if not text:
        return None
    said = [os.environ.get("RANK", ""), os.environ.get(names.RANK, "")]
    rank = next((int(one) for one in said if one.isdecimal()), 0)
    return Path(text) / f"rank-{rank}" / f"loader-{number}"


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _say(loader: Any, what: str) -> None:
    dataset = type(loader.dataset).__qualname__
    logger.warning("a %s of %s %s", type(loader).__qualname__, dataset, what)
