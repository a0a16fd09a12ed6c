"""Have PyTorch load its compiler when something is compiled, not with the first optimizer.

The first optimizer or DistributedDataParallel of a process has PyTorch import `torch._dynamo`,
which takes as long as importing PyTorch itself: each rank would pay that at each start, and all
ranks of a job whenever they form a group anew. What PyTorch asks it there has one answer as long as
nothing was ever compiled: a graph is broken (`graph_break`: there is none), a function is called
without being compiled (`disable`: it is called), and into what pieces DDP's graphs would be cut
(`get_optimize_ddp_mode`: what the compiler's settings begin with).

So the functions of PyTorch that ask this, and no others, find a `_Compiler` in place of
`torch._dynamo`. Guarantees:

- `sys.modules` and ``torch._dynamo`` are never anything but the real module: whoever imports it, or
  calls what needs it (`torch.compile`, `torch.export`, `torch.compiler`), gets it in the usual way;
- a `_Compiler` that is asked anything else loads the real one, and has that answer;
- once the real one is loaded, by whomever, PyTorch is as if this had never been there: functions
  that were called uncompiled meanwhile are disabled by the real one with their next call;
- what comes with the real one, and a program may use without having imported it, loads it: modules
  such as ``torch.distributed.nn`` as attributes, and what `torch.load` takes with weights only;
- a PyTorch of another version, or whose functions ask for something else, is left as it is.

Nothing here is imported from PyTorch: its modules are handed over as they have been executed.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

VERSIONS: Final = ("2.13.",)
"""Of PyTorch, of which `ALONG` is known."""
COMPILER: Final = "torch._dynamo"
DECORATORS: Final = "torch._compile"
OPTIMIZERS: Final = "torch.optim.optimizer"
DDP: Final = "torch.nn.parallel.distributed"
_DISABLED: Final = "__dynamo_disable"
"""Attribute in which PyTorch keeps what `disable` made of a function."""
ALONG: Final[dict[str, frozenset[str]]] = {
    package: frozenset(names.split())
    for package, names in {
        "torch._decomp": "decompositions_for_rng",
        "torch._functorch": "config deprecated make_functional",
        "torch._higher_order_ops": "triton_kernel_wrap",
        "torch.cuda": "_pin_memory_utils",
        "torch.distributed": "_composable _composable_state _functional_collectives "
        "_functional_collectives_impl _local_tensor _shard _state_dict_utils _symmetric_memory "
        "fsdp nn tensor",
        "torch.distributed.algorithms": "_checkpoint _comm_hooks",
        "torch.fx.experimental": "_dynamism _size_hinting dynamic_spec recording symbolic_shapes",
        "torch.fx.passes": "graph_transform_observer",
        "torch.nn.utils": "_expanded_weights",
        "torch.utils": "_device _functools _pallas _sympy _triton",
    }.items()
}
"""Attributes that packages of PyTorch have once its compiler is loaded, and not before."""
_IMPORTING: Final = ("importlib._bootstrap", "_frozen_importlib")
_UNPICKLER: Final = "torch._weights_only_unpickler"
_DDP_MODE: Final = re.compile(r"^optimize_ddp\b[^=#]*=\s*True\s*$", re.MULTILINE)
"""How the compiler's settings say that, by default, graphs are cut as DDP's buckets are."""


class LateCompiler:
    """What one process does about it."""

    def __init__(self, torch: Any) -> None:
        """``torch``: the module, of which nothing needs to be there yet."""
        self._version = str(getattr(torch, "__version__", ""))
        self._torch = _Torch(torch, _Compiler(self._note_asked, torch, self._called_as_it_is))
        self._asked = False
        self._undo: list[Callable[[], None]] = []
        self._called: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def take(self, module: ModuleType) -> None:
        """One of the modules that are named above has just been executed."""
        if not self._version.startswith(VERSIONS):
            return
        if module.__name__ == DECORATORS:
            if _asked(getattr(module, "_disable_dynamo", None)) == {"disable"}:
                self._divert(module)
        elif module.__name__ == OPTIMIZERS:
            wrapper = getattr(module, "_use_grad_for_differentiable", None)
            if _asked(wrapper) == {"graph_break"}:
                self._divert(module)
        elif module.__name__ == DDP:
            if vars(module).get("torch") is sys.modules["torch"]:
                self._replace(module, "torch", self._torch)
        elif module.__name__ == COMPILER:
            self._end()

    def _divert(self, module: ModuleType) -> None:
        """Have functions that the module defines from now on import through `_import`.

        A function has the builtins that its module had when it was made; those that ask are made
        by decorators, when the module is there.
        """
        own = {**vars(builtins), "__import__": self._import}
        self._replace(module, "__builtins__", own)
        self._undo.append(lambda: own.update(__import__=builtins.__import__))

    def _replace(self, module: ModuleType, name: str, value: Any) -> None:
        """For as long as the compiler is not there, and nobody else replaces it."""
        names, none = vars(module), object()
        before = names.get(name, none)

        def undo() -> None:
            if names.get(name) is not value:
                return
            if before is none:
                del names[name]
            else:
                names[name] = before

        names[name] = value
        self._undo.append(undo)

    def _note_asked(self) -> None:
        """From now on the compiler would be there, and what comes along with it."""
        if self._asked:
            return
        self._asked = True
        for package, names in ALONG.items():
            module = sys.modules.get(package)
            if module is not None and "__getattr__" not in vars(module):
                self._replace(module, "__getattr__", _loading(module, names))
        unpickler = sys.modules.get(_UNPICKLER)
        allowed = getattr(unpickler, "_get_user_allowed_globals", None)
        if unpickler is not None and allowed is not None:

            def allowed_by_then() -> Any:
                importlib.import_module(COMPILER)
                return allowed()

            self._replace(unpickler, "_get_user_allowed_globals", allowed_by_then)

    def _import(self, name: str, *arguments: Any, **options: Any) -> Any:
        """As ``__import__``; ``import torch._dynamo`` gives a `torch` that has a `_Compiler`."""
        whole = arguments[2:] == (None, 0)  # nothing of it by name, and absolute
        if name == COMPILER and whole and not _is_loaded():
            return self._torch
        return builtins.__import__(name, *arguments, **options)

    def _called_as_it_is(self, function: FunctionType, recursive: bool, options: Any) -> Any:
        """What stands for the disabled function until there is something to disable."""

        def as_it_is(*arguments: Any, **named: Any) -> Any:
            if not _is_loaded():
                return function(*arguments, **named)
            disabled = importlib.import_module(COMPILER).disable(function, recursive, **options)
            setattr(function, _DISABLED, disabled)
            return disabled(*arguments, **named)

        # The compiler does not look into what is marked so; it may meet one that `_end` missed,
        # which another thread was about to keep.
        as_it_is._torchdynamo_disable = True  # type: ignore[attr-defined]
        self._called[id(function)] = function
        return as_it_is

    def _end(self) -> None:
        """The compiler is here, and nothing was compiled yet: all is as it would be without us."""
        while self._undo:
            self._undo.pop()()
        for reference in self._called.valuerefs():
            function = reference()
            if function is not None:
                vars(function).pop(_DISABLED, None)
        self._called.clear()


class _Torch(ModuleType):
    """`torch` with another `torch._dynamo`."""

    def __init__(self, torch: Any, compiler: _Compiler) -> None:
        super().__init__("torch")
        vars(self).update(_real=torch, _dynamo=compiler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


class _Compiler:
    """Answers for `torch._dynamo` what is certain while it is not loaded; all else loads it."""

    def __init__(
        self,
        note_asked: Callable[[], None],
        torch: Any,
        called_as_it_is: Callable[[FunctionType, bool, Any], Any],
    ) -> None:
        self.utils = _Utilities(note_asked, torch)
        self._note_asked = note_asked
        self._called_as_it_is = called_as_it_is

    def graph_break(self, *_: Any, **__: Any) -> None:
        """There is no graph."""
        self._note_asked()

    def disable(self, function: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Nothing is compiled, this function neither."""
        plain = isinstance(function, FunctionType) and options.keys() <= {"wrapping"}
        if not plain or _is_loaded():
            return importlib.import_module(COMPILER).disable(function, recursive, **options)
        self._note_asked()
        return self._called_as_it_is(function, recursive, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(COMPILER), name)


class _Utilities:
    """Of `torch._dynamo.utils` what DistributedDataParallel asks."""

    def __init__(self, note_asked: Callable[[], None], torch: Any) -> None:
        self._note_asked = note_asked
        self._torch = torch

    def get_optimize_ddp_mode(self) -> Any:
        """What it is by default: who sets it otherwise has loaded the compiler."""
        if not _is_loaded() and _DDP_MODE.search(_settings(self._torch)):
            self._note_asked()
            return "ddp_optimizer"
        return importlib.import_module(COMPILER).utils.get_optimize_ddp_mode()

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(COMPILER).utils, name)


def _loading(module: ModuleType, names: frozenset[str]) -> Callable[[str], Any]:
    """What a module does for attributes that it does not have: for these it loads the compiler.

    But not for whoever imports such a module by its name, and first looks whether it is there; nor
    while it is imported, when what it consists of may look for it: the compiler needs it whole.
    """

    def find(name: str) -> Any:
        if name in names and sys._getframe(1).f_globals.get("__name__") not in _IMPORTING:
            coming = sys.modules.get(f"{module.__name__}.{name}")
            if coming is not None:
                return coming
            importlib.import_module(COMPILER)
            if name in vars(module):
                return vars(module)[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    return find


def _is_loaded() -> bool:
    """Whether something may be compiled; not yet while it is being loaded."""
    module = sys.modules.get(COMPILER)
    return module is not None and not getattr(
        getattr(module, "__spec__", None), "_initializing", False
    )


def _settings(torch: Any) -> str:
    """The text of the compiler's settings; empty if it is not where it is looked for."""
    try:
        return Path(torch.__file__).with_name("_dynamo").joinpath("config.py").read_text("utf-8")
    except OSError:
        return ""


def _asked(function: Any) -> set[str]:
    """What functions that are defined in this one ask of a `torch._dynamo` that they import."""
    asked = set()
    for code in _codes(getattr(function, "__code__", None)):
        if COMPILER not in code.co_names:
            continue
        before = ""
        for instruction in dis.get_instructions(code):
            if before == "_dynamo":
                reads = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
                asked.add(str(instruction.argval) if reads else "")
            before = str(instruction.argval) if instruction.opname == "LOAD_ATTR" else ""
    return asked


def _codes(code: CodeType | None) -> Iterator[CodeType]:
    """Of a function, and of all that are defined in it."""
    if code is None:
        return
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
