"""The data plane of a job: who processes which samples (`penstock.data.ledger`), and their way.

`DataLoader` is PyTorch's with its batches made by data workers; `Loader` needs no framework, and
with `Buckets` gives steps of samples of like length. They are imported when they are first asked
for: importing this package imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.data.ledger import Buckets
    from penstock.data.loader import Loader
    from penstock.data.torch_loading.torch_loader import DataLoader

__all__ = ["Buckets", "DataLoader", "Loader"]


def __getattr__(name: str) -> Any:
    if name == "DataLoader":
        from penstock.data.torch_loading.torch_loader import DataLoader

        return DataLoader
    if name == "Loader":
        from penstock.data.loader import Loader

        return Loader
    if name == "Buckets":
        from penstock.data.ledger import Buckets

        return Buckets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
