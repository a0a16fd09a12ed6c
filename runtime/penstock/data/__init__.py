"""The data plane of a job: who processes which samples (`penstock.data.ledger`), and their way.

`DataLoader` is PyTorch's with its batches made by data workers; `Loader` needs no framework, and
with `Buckets` gives steps of samples of like length; `like_lengths` makes such batches of a stream.
`offload` has data workers call a stateless function. They are imported when they are first asked
for: importing this package imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.data.ledger import Buckets
    from penstock.data.length_window import like_lengths
    from penstock.data.loader import Loader
    from penstock.data.offloading.offload import offload
    from penstock.data.torch_loading.torch_loader import DataLoader

__all__ = ["Buckets", "DataLoader", "Loader", "like_lengths", "offload"]


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
    if name == "like_lengths":
        from penstock.data.length_window import like_lengths

        return like_lengths
    if name == "offload":
        from penstock.data.offloading.offload import offload

        return offload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
