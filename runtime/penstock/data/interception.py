"""Have the DataLoaders of an unmodified program served by data workers.

``penstock run`` puts the folder `hook` first on PYTHONPATH; its ``sitecustomize`` waits for the
program to import `torch.utils.data` and then has `install` replace one method. Nothing else of the
data's way is touched, and nothing is imported before the first loader is iterated. The same hook
has `penstock.trainer.training_evidence` tell the agent that the program trains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

HOOK: Final = Path(__file__).with_name("hook")
INTERCEPT: Final = "PENSTOCK_DATA_INTERCEPT"


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program whose DataLoaders are to be intercepted."""
    return {**hooked(environ), INTERCEPT: "1"}


def hooked(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program whose interpreters run the hook; others of it say for what."""
    path = environ.get("PYTHONPATH", "")
    if path.split(os.pathsep)[0] != str(HOOK):
        path = os.pathsep.join([str(HOOK), path]) if path else str(HOOK)
    return {**environ, "PYTHONPATH": path}


def install(loader_class: Any) -> None:
    """Replace ``__iter__`` of PyTorch's DataLoader."""
    plain = loader_class.__iter__

    def begin(self: Any) -> Any:
        from penstock.data import torch_loader

        return torch_loader.begin(self, plain)

    loader_class.__iter__ = begin
