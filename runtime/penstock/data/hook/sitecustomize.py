"""Waits for a program to import PyTorch; see `penstock.data.interception`.

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


def _serve_loaders(module: "ModuleType") -> None:
    from penstock.data.interception import install

    install(module.DataLoader)


def _profile_loaders(module: "ModuleType") -> None:
    from penstock.data.profiling.loader_hooks import install

    install(module)


def _tell_agent(module: "ModuleType") -> None:
    from penstock.trainer.training_evidence import install

    install(module)


def _follow_loaders(module: "ModuleType") -> None:
    from penstock.trainer.follow.follower import install

    install(module)


def _place_hugging_face(module: "ModuleType") -> None:
    from penstock.trainer.follow.hugging_face import install

    install(module)


def _place_fit_loop(module: "ModuleType") -> None:
    from penstock.trainer.follow.lightning import install_fit_loop

    install_fit_loop(module)


def _place_epoch_loop(module: "ModuleType") -> None:
    from penstock.trainer.follow.lightning import install_epoch_loop

    install_epoch_loop(module)


def _place_sharded_state(module: "ModuleType") -> None:
    from penstock.trainer.follow.distributed_checkpoint import install_state

    install_state(module)


def _place_sharded_reads(module: "ModuleType") -> None:
    from penstock.trainer.follow.distributed_checkpoint import install_planner

    install_planner(module)


class _LateCompiler:
    """Has PyTorch load its compiler when a program compiles; see `penstock.trainer.late_compiler`.

    The modules with a part in it are handed over in the order in which they are executed. Without
    Penstock in this interpreter PyTorch stays as it is.
    """

    def __init__(self) -> None:
        self._take: Any = None

    def __call__(self, module: "ModuleType") -> None:
        if self._take is None:
            try:
                from penstock.trainer.late_compiler import LateCompiler
            except ImportError:
                self._take = lambda _: None
            else:
                self._take = LateCompiler(sys.modules["torch"]).take
        self._take(module)


_FOLLOW = "PENSTOCK_FOLLOW_LOADERS"
_LATE = "PENSTOCK_LATE_COMPILER"
_is_late = os.environ.get(_LATE, "").lower() not in ("0", "false", "no")  # as in data/variables.py
_late_compiler = _LateCompiler()
_ACTS = [
    (name, variable, act)
    for name, variable, act in (
        ("torch._compile", _LATE, _late_compiler),
        ("torch.optim.optimizer", _LATE, _late_compiler),
        ("torch.nn.parallel.distributed", _LATE, _late_compiler),
        ("torch._dynamo", _LATE, _late_compiler),
        ("torch.utils.data", "PENSTOCK_DATA_INTERCEPT", _serve_loaders),
        ("torch.utils.data", "PENSTOCK_PROFILE", _profile_loaders),
        ("torch", "PENSTOCK_AGENT_SOCKET", _tell_agent),
        ("torch", _FOLLOW, _follow_loaders),
        ("torch.distributed.checkpoint.state_dict", _FOLLOW, _place_sharded_state),
        ("torch.distributed.checkpoint.default_planner", _FOLLOW, _place_sharded_reads),
        ("transformers.trainer", _FOLLOW, _place_hugging_face),
        ("lightning.pytorch.loops.fit_loop", _FOLLOW, _place_fit_loop),
        ("lightning.pytorch.loops.training_epoch_loop", _FOLLOW, _place_epoch_loop),
        ("pytorch_lightning.loops.fit_loop", _FOLLOW, _place_fit_loop),
        ("pytorch_lightning.loops.training_epoch_loop", _FOLLOW, _place_epoch_loop),
    )
    if (_is_late if variable == _LATE else os.environ.get(variable))
    # A profile is of the program's own way of loading.
    and not (act is _serve_loaders and os.environ.get("PENSTOCK_PROFILE"))
]
_WATCHED = {name for name, _, _ in _ACTS}


class _Watch:
    """A finder that finds nothing itself: it only sees the imports that matter.

    A library may look whether PyTorch is there long before anybody imports it, so that a watch ends
    with the import and not with the search.
    """

    def __init__(self) -> None:
        self._searching = ""

    def find_spec(
        self, name: str, path: "Any" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name not in _WATCHED or name == self._searching:
            return None
        from importlib.util import find_spec

        self._searching = name
        try:
            spec = find_spec(name)
        finally:
            self._searching = ""
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            first = name in _WATCHED
            _WATCHED.discard(name)
            if not _WATCHED and self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            for watched, variable, act in _ACTS if first else ():
                if watched != name:
                    continue
                try:
                    act(module)
                except (ImportError, AttributeError) as error:  # no Penstock, or an unknown PyTorch
                    sys.stderr.write(f"penstock: {variable} has no effect here: {error}\n")

        # The loader's method is wrapped on purpose.
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


def _read_through_cache() -> None:
    try:
        from penstock.data.cache.interception import install_from

        install_from(os.environ)
    except ImportError as error:  # no Penstock in this interpreter
        sys.stderr.write(f"penstock: PENSTOCK_CACHE_SOCKET has no effect here: {error}\n")


def _let_stacks_be_read(folder: str) -> None:
    import faulthandler
    import fcntl

    try:
        path = os.path.join(folder, str(os.getpid()))
        low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # High, so that a program that closes what it does not know has no other file there.
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 700)
        finally:
            os.close(low)
        # See trainer.standstill.stacks. Threads that run while they are written of make the process
        # crash, so that only one that is about to be ended is asked for all of them.
        faulthandler.register(43, file=high, all_threads=False)
        faulthandler.register(44, file=high, all_threads=True)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return  # then it has none


if os.environ.get("PENSTOCK_STACKS"):
    _let_stacks_be_read(os.environ["PENSTOCK_STACKS"])
if os.environ.get("PENSTOCK_CACHE_SOCKET"):
    _read_through_cache()
if _WATCHED:
    sys.meta_path.insert(0, _Watch())
_run_what_this_hides()
