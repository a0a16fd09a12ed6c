"""Waits for a program to import `torch.utils.data`; see `penstock.data.interception`.

The interpreter imports this at its start, in child processes too, so it must cost next to nothing
and must not fail: a program that never imports PyTorch runs as if this were not here. A
``sitecustomize`` that this one hides is run afterwards.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_WATCHED = "torch.utils.data"


class _Watch:
    """A finder that finds nothing itself: it only sees the one import that matters."""

    def find_spec(
        self, name: str, path: "Any" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != _WATCHED:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            from penstock.data.interception import install

            install(module.DataLoader)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _run_what_this_hides() -> None:
    import importlib.machinery
    import importlib.util

    # Only what stands behind this folder: were those before it searched too, two such hooks would
    # find each other without end.
    entries = [os.path.abspath(entry) for entry in sys.path]
    if _FOLDER not in entries:
        return
    behind = sys.path[entries.index(_FOLDER) + 1 :]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("PENSTOCK_DATA_INTERCEPT"):
    sys.meta_path.insert(0, _Watch())
_run_what_this_hides()
