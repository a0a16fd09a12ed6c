"""Batches of one epoch on disk: made once, and read again in their order, bit by bit.

    from penstock.data import saved

    saved.save(loader, "/data/epoch")       # any iterable of batches
    for batch in saved.load("/data/epoch"):
        ...

What is random about the batches was drawn when they were made: in each epoch they are the same.
"""

from __future__ import annotations

from penstock.data.errors import SavedError
from penstock.data.saved.reading import SavedBatches, load
from penstock.data.saved.writing import BatchWriter, save

__all__ = ["BatchWriter", "SavedBatches", "SavedError", "load", "save"]
