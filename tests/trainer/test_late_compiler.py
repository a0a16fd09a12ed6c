"""PyTorch's compiler is loaded when something is compiled, and that is all that differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.crds import environment
from penstock.data.hooked import hooked
from penstock.trainer.late_compiler import ALONG
from tests.patience import patient

PROGRAM: Final = Path(__file__).with_name("programs") / "compiling.py"
SCENES: Final = (
    ("plain", "compiled_first", "compiled_later"),
    ("compiled_within_a_step", "disabled_stays_disabled", "distributed"),
    ("along", "exported", "sharded_later"),
    ("forked", "imported", "threads"),
)


def begin(scenes: tuple[str, ...], **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *scenes],
        env=hooked({**os.environ, "OMP_NUM_THREADS": "1", **environ}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(program: subprocess.Popen[str]) -> dict[str, dict[str, Any]]:
    """What each scene says, by its name; and what it wrote to stderr, which is to be the same."""
    out, err = program.communicate(timeout=patient(50))
    assert program.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    return {row.pop("scene"): row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("scenes", SCENES, ids=lambda scenes: scenes[0])
def test_a_program_computes_and_compiles_what_it_does_without_this(scenes: tuple[str, ...]) -> None:
    both = begin(scenes), begin(scenes, **{environment.LATE_COMPILER: "0"})
    try:
        late, usual = (told(program) for program in both)
    finally:
        for program in both:
            program.kill()
    gains = [one.get("along", {}).pop("gained", {}) for one in (late, usual)]
    early = [scene.pop("loaded") for scene in late.values() if "loaded" in scene]
    ever = [scene.pop("loaded") for scene in usual.values() if "loaded" in scene]
    assert late == usual
    assert set(late) == set(scenes)
    assert all(ever)
    assert not any(early)
    if "along" in late:
        gained = {name: frozenset(names) for name, names in gains[0].items()}
        known = {name for name in gained if "._" not in name} | set(ALONG)
        assert {name: gained.get(name) for name in known} == ALONG


TORCH: Final = {
    "__init__": """
        import importlib
        __version__ = "2.13.7+cpu"
        from torch import _compile, distributed, optim, nn
        grad = True
        def __getattr__(name):
            if name == "_dynamo":
                return importlib.import_module("torch._dynamo")
            raise AttributeError(name)
    """,
    "_compile": """
        def _disable_dynamo(fn, recursive=True):
            def inner(*args):
                kept = getattr(fn, "__dynamo_disable", None)
                if kept is None:
                    import torch._dynamo
                    kept = torch._dynamo.disable(fn, recursive, wrapping=False)
                    fn.__dynamo_disable = kept
                return kept(*args)
            return inner
    """,
    "optim/__init__": """
        from torch.optim.optimizer import _use_grad_for_differentiable
        step = _use_grad_for_differentiable(lambda: "stepped")
    """,
    "optim/optimizer": """
        def _use_grad_for_differentiable(func):
            def _use_grad(*args):
                import torch._dynamo
                assert torch.grad
                torch._dynamo.graph_break()
                return func(*args)
            return _use_grad
    """,
    "nn/__init__": "from torch.nn import parallel",
    "nn/parallel/__init__": "from torch.nn.parallel import distributed",
    "nn/parallel/distributed": """
        import torch
        class DistributedDataParallel:
            def __init__(self):
                self.mode = torch._dynamo.utils.get_optimize_ddp_mode()
                self.grad = torch.grad
    """,
    "distributed/__init__": "",
    "distributed/tensor": "",
    "_dynamo/__init__": """
        import torch.distributed.tensor
        from torch._dynamo import config, utils
        print("loaded")
        def disable(fn, recursive, wrapping):
            return lambda *args: ("disabled", recursive, wrapping, fn(*args))
        def graph_break():
            print("broken")
        def skip_frame():
            print("skipped")
    """,
    "_dynamo/utils": """
        def get_optimize_ddp_mode():
            from torch._dynamo import config
            return config.optimize_ddp
    """,
    "_dynamo/config": "optimize_ddp: (\n    bool | str\n) = True",
}
"""As much of it as matters here, with a compiler that says that it is loaded and asked."""


def run(folder: Path, code: str, environ: dict[str, str] | None = None, **torch: str) -> list[str]:
    """What a program prints, with that PyTorch and some modules of it otherwise."""
    for name, text in {**TORCH, **torch}.items():
        file = folder / "torch" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=hooked({**os.environ, "PYTHONPATH": path, **(environ or {})}),
        capture_output=True,
        text=True,
        timeout=patient(10),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


USES: Final = """\
import sys
import torch
double = torch._compile._disable_dynamo(lambda number: 2 * number)
print(torch.optim.step(), double(4), torch.nn.parallel.distributed.DistributedDataParallel().mode)
"""
STAYS: Final = ["stepped 8 ddp_optimizer"]


def test_what_only_trains_does_not_load_the_compiler(tmp_path: Path) -> None:
    assert run(tmp_path, USES + "print('torch._dynamo' in sys.modules)") == [*STAYS, "False"]


def test_once_it_is_there_it_is_asked_and_nothing_is_left_of_what_stood_for_it(
    tmp_path: Path,
) -> None:
    code = """
        from torch._dynamo.utils import get_optimize_ddp_mode
        print(torch._dynamo is sys.modules["torch._dynamo"], double(4), torch.optim.step())
        print(torch.nn.parallel.distributed.DistributedDataParallel().mode)
        print(torch.nn.parallel.distributed.torch is torch)
        triple = torch._compile._disable_dynamo(lambda number: 3 * number, recursive=False)
        print(triple(4), triple(5))
    """
    assert run(tmp_path, USES + textwrap.dedent(code)) == [
        *STAYS,
        "loaded",
        "broken",
        "True ('disabled', True, False, 8) stepped",
        "True",
        "True",
        "('disabled', False, False, 12) ('disabled', False, False, 15)",
    ]


def test_a_variable_has_it_loaded_as_ever(tmp_path: Path) -> None:
    environ = {environment.LATE_COMPILER: "0"}
    assert run(tmp_path, USES, environ)[:2] == ["loaded", "broken"]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("optim/optimizer", "graph_break()", "skip_frame()"),
        ("optim/optimizer", "torch._dynamo.graph_break()", "getattr(torch, '_dynamo')"),
        (
            "optim/optimizer",
            "import torch._dynamo",
            "from torch._dynamo import utils; import torch",
        ),
        ("_compile", "_dynamo.disable", "_dynamo.utils and torch._dynamo.disable"),
        ("nn/parallel/distributed", "utils.get_optimize_ddp_mode()", "config.optimize_ddp"),
        ("__init__", "2.13.", "2.12."),
        ("__init__", "2.13.", "2.130."),
        ("_dynamo/config", "True", "'python_reducer'"),
    ],
)
def test_a_pytorch_that_asks_something_else_has_its_compiler(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    assert before in TORCH[name]
    assert "loaded" in run(tmp_path, USES, **{name: TORCH[name].replace(before, after)})


def test_a_pytorch_without_these_functions_is_left_as_it_is(tmp_path: Path) -> None:
    code = "import torch; print(torch.optim.step())"
    bare = {"_compile": "", "nn/parallel/distributed": ""}
    optimizer = "def _use_grad_for_differentiable(func):\n    return func"
    assert run(tmp_path, code, **bare, **{"optim/optimizer": optimizer}) == ["stepped"]


def test_what_cannot_be_kept_apart_is_disabled_by_the_compiler_itself(tmp_path: Path) -> None:
    code = """
        import torch
        class Callable:
            def __call__(self, number):
                return number + 1
        print(torch._compile._disable_dynamo(Callable())(1))
    """
    assert run(tmp_path, textwrap.dedent(code)) == ["loaded", "('disabled', True, False, 2)"]


def test_a_compiler_that_cannot_be_imported_is_missed_only_by_who_needs_it(tmp_path: Path) -> None:
    code = """
    for _ in range(2):
        try:
            torch._dynamo
        except ImportError as error:
            print(error)
    print(torch.optim.step(), double(5))
    """
    broken = {"_dynamo/__init__": "raise ImportError('no sympy')"}
    told = run(tmp_path, USES + textwrap.dedent(code), **broken)
    assert told == [*STAYS, "no sympy", "no sympy", "stepped 10"]


@pytest.mark.parametrize(
    ("use", "loads"),
    [
        ("torch.distributed.tensor", True),
        ("getattr(torch.distributed, 'tensor', None)", True),
        ("getattr(torch.distributed, 'other', None)", False),
        ("exec('import torch.distributed.tensor')", False),
        ("exec('from torch.distributed import tensor')", False),
        ("exec('import torch.distributed.tensor as t')", False),
    ],
)
def test_a_module_that_comes_with_it_is_there_for_who_has_not_imported_it(
    tmp_path: Path, use: str, loads: bool
) -> None:
    there = "print(hasattr(torch.distributed, 'tensor'), 'torch._dynamo' in sys.modules)"
    code = f"import sys, torch\n{there}\n{USES}\n{use}\nprint('torch._dynamo' in sys.modules)\n"
    after = "import torch._dynamo\nprint('__getattr__' in vars(torch.distributed))"
    told = run(tmp_path, code + after)
    loaded = ["loaded", "True"] if loads else ["False", "loaded"]
    assert told == ["False False", *STAYS, *loaded, "False"]


def test_a_module_that_comes_with_it_may_look_for_itself_while_it_is_imported(
    tmp_path: Path,
) -> None:
    code = "import torch.distributed.tensor\nprint(torch.distributed.tensor.own.whole)"
    whole = "import torch.distributed.tensor as own\nwhole = True"
    needing = f"{textwrap.dedent(TORCH['_dynamo/__init__'])}\ntorch.distributed.tensor.whole"
    other = {"distributed/tensor": whole, "_dynamo/__init__": needing}
    assert run(tmp_path, USES + code, **other) == [*STAYS, "True"]


def test_functions_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    code = """
    import gc, weakref
    def one():
        function = lambda: None
        torch._compile._disable_dynamo(function)()
        return weakref.ref(function)
    gone = [one() for _ in range(9)]
    gc.collect()
    print([reference() for reference in gone] == 9 * [None])
    """
    assert run(tmp_path, USES + textwrap.dedent(code)) == [*STAYS, "True"]
