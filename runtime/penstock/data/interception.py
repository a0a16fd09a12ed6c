"""Have the DataLoaders of an unmodified program served by data workers.

``penstock run`` puts the folder `hook` first on PYTHONPATH; its ``sitecustomize`` waits for the
program to import `torch.utils.data` and then has `install` replace one method. Nothing else of the
data's way is touched, and nothing is imported before the first loader is iterated. The same hook
has `penstock.trainer.training_evidence` tell the agent that the program trains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.crds import environment as names
from penstock.data.hooked import INTERCEPT, hooked


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program whose DataLoaders are to be intercepted.

    In a share group texts have the same hashes in all programs, so that sets are pickled alike.
    """
    alike = {"PYTHONHASHSEED": "0"} if environ.get(names.SHARE_ADDRESS) else {}
    return {**alike, **hooked(environ), INTERCEPT: "1"}


def install(loader_class: Any) -> None:
    """Replace ``__iter__`` of PyTorch's DataLoader.

    Subclasses with an ``__iter__`` of their own call it, sooner or later; that of torchdata makes
    its iterators itself, and is only told of.
    """
    plain = loader_class.__iter__

    def begin(self: Any) -> Any:
        from penstock.data.torch_loading import torch_loader

        told = os.environ.get(names.SAVE_BATCHES) or os.environ.get(names.LOAD_BATCHES)
        if told and not isinstance(self, torch_loader.DataLoader):
            from penstock.data import saved_program

            def usual(loader: Any) -> Any:
                return torch_loader.begin(loader, plain)

            return saved_program.begin(self, usual, torch_loader.finisher)
        return torch_loader.begin(self, plain)

    def note_subclass(cls: Any, /, **options: Any) -> None:
        super(loader_class, cls).__init_subclass__(**options)
        if cls.__module__.split(".")[0] == "torchdata" and "__iter__" in cls.__dict__:
            _tell_of(cls)

    begin.__wrapped__ = plain  # type: ignore[attr-defined]  # for `inspect.unwrap`
    loader_class.__iter__ = begin
    loader_class.__init_subclass__ = classmethod(note_subclass)


def _tell_of(loader_class: Any) -> None:
    own = loader_class.__iter__

    def begin(self: Any) -> Any:
        from penstock.data.torch_loading import torch_loader

        torch_loader.tell_stays(
            self,
            "torchdata's state_dict is of iterators that it makes itself; penstock.data.DataLoader "
            "has a state_dict, and is served",
        )
        return own(self)

    loader_class.__iter__ = begin
