"""What a program may do with PyTorch's compiler: each scene in a process of its own.

    compiling.py SCENE...

Prints a JSON object for each scene: what it computed (bits, not roundings), what was compiled, and
after which of its parts the compiler was loaded. A scene's process is forked from one that has
imported PyTorch and used nothing of it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import multiprocessing
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

SCENES: Final[dict[str, Callable[[], dict[str, Any]]]] = {}
COMPILED: Final[list[int]] = []
"""Operations of each graph, in the order in which they were compiled."""


def scene(does: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    SCENES[does.__name__] = does
    return does


def loaded() -> bool:
    return "torch._dynamo" in sys.modules


def backend(graph: Any, _: Any) -> Any:
    COMPILED.append(sum(node.op not in ("placeholder", "output") for node in graph.graph.nodes))
    return graph.forward


def core(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def steps(model: Any, optimizer: Any, count: int = 3, *, within: bool = False) -> None:
    """``within``: the optimizer itself calls the model."""
    inputs = torch.linspace(-1, 1, 24).reshape(4, 6)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(count):
        if within:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


@scene
def plain() -> dict[str, Any]:
    """Everything that a loop does with optimizers and never compiles."""
    found: dict[str, Any] = {}
    kinds: dict[str, Any] = {
        "SGD": {"lr": 0.1, "momentum": 0.9},
        "Adam": {"lr": 0.1, "foreach": True},
        "AdamW": {"lr": 0.1, "foreach": False},
        "Adagrad": {"lr": 0.1},
        "NAdam": {"lr": 0.1},
        "LBFGS": {"lr": 0.1},
    }
    for name, options in kinds.items():
        model = core()
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        steps(model, optimizer, within=name == "LBFGS")
        schedule.step()
        again = getattr(torch.optim, name)(model.parameters(), **options)
        again.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
        steps(model, again, within=name in ("Adam", "LBFGS"))
        with tempfile.TemporaryFile() as file:
            torch.save({"model": model.state_dict(), "optimizer": again.state_dict()}, file)
            file.seek(0)
            torch.load(file, weights_only=True)
        if name != "LBFGS":
            both = copy.deepcopy((model, again))
            more = nn.Linear(2, 2)
            both[1].add_param_group({"params": list(more.parameters())})
            steps(*both)
            found[f"{name} copied"] = digest(both[0])
            optimizer = pickle.loads(pickle.dumps(optimizer))
        found[name] = digest(model)
    model = core()
    inputs = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
    checkpoint(model, inputs, use_reentrant=True).sum().backward()
    assert inputs.grad is not None
    return {**found, "gradient": inputs.grad.sum().item().hex(), "loaded": loaded()}


@scene
def compiled_first() -> dict[str, Any]:
    model = core()
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    steps(compiled, optimizer)
    return {"digest": digest(model), "compiled": COMPILED}


@scene
def compiled_later() -> dict[str, Any]:
    """A loop without the compiler, then with it, and its optimizer compiled as well."""
    model = core()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    steps(model, optimizer)
    early = loaded()
    compiled = torch.compile(model, backend=backend)
    steps(compiled, optimizer)
    graphs = len(COMPILED)

    @torch.compile(backend=backend)
    def step() -> None:
        optimizer.step()

    for _ in range(2):
        compiled(torch.ones(4, 6)).sum().backward()
        step()
        optimizer.zero_grad()
    mode = torch._dynamo.utils.get_optimize_ddp_mode()
    return {
        "digest": digest(model),
        "graphs of the model": graphs,
        "operations": sorted(COMPILED),
        "mode": mode,
        "loaded": early,
    }


@scene
def compiled_within_a_step() -> dict[str, Any]:
    """The compiler is loaded while an optimizer waits for its closure."""
    model = core()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps(model, optimizer)
    compiled: list[Any] = []

    def lazily(inputs: torch.Tensor) -> Any:
        if not compiled:
            compiled.append(torch.compile(model, backend=backend))
        return compiled[0](inputs)

    early = loaded()
    steps(lazily, optimizer, within=True)
    return {"digest": digest(model), "compiled": COMPILED, "loaded": early}


@scene
def disabled_stays_disabled() -> dict[str, Any]:
    """A function that was called before the compiler was there is not compiled afterwards."""

    @torch._disable_dynamo
    def twice(value: torch.Tensor) -> torch.Tensor:
        return value * 2 + 0

    @torch._disable_dynamo(recursive=False)
    def thrice(value: torch.Tensor) -> torch.Tensor:
        return value * 3 + 0

    seen = [twice(torch.ones(2)).tolist(), thrice(torch.ones(2)).tolist()]
    early = loaded()

    @torch.compile(backend=backend)
    def both(value: torch.Tensor) -> torch.Tensor:
        return thrice(twice(value.sin()).cos()).tan()

    seen += [both(torch.ones(2)).tolist() for _ in range(2)]
    seen.append(twice(torch.ones(2)).tolist())
    return {"seen": seen, "compiled": COMPILED, "loaded": early}


@scene
def sharded_later() -> dict[str, Any]:
    """Modules that come with the compiler, imported by name once an optimizer was there."""
    model = core()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    steps(model, optimizer)
    from torch.distributed.tensor import DTensor, Replicate

    early = loaded()
    from torch.distributed.fsdp import fully_shard

    steps(model, optimizer)
    return {
        "digest": digest(model),
        "found": [DTensor.__name__, repr(Replicate()), fully_shard.__name__],
        "loaded": early,
    }


@scene
def imported() -> dict[str, Any]:
    """The compiler's modules by name, each the one of the compiler itself."""
    model = core()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps(model, optimizer)
    early = loaded()
    import torch._dynamo.config as settings
    from torch._dynamo import OptimizedModule, graph_break
    from torch._dynamo.utils import counters

    whole = sys.modules["torch._dynamo"]
    torch._dynamo.reset()
    torch.compiler.reset()
    steps(model, optimizer)
    there = torch._dynamo is whole and whole.config is settings
    same = whole.graph_break is graph_break and whole.utils.counters is counters
    inner = torch.compiler.disable(lambda: 3)()
    return {
        "digest": digest(model),
        "one module": there and same and whole.OptimizedModule is OptimizedModule,
        "recursion": settings.recompile_limit,
        "inner": inner,
        "seed": torch.manual_seed(3).initial_seed(),
        "loaded": early,
    }


@scene
def exported() -> dict[str, Any]:
    model = core()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps(model, optimizer)
    early = loaded()
    program = torch.export.export(model, (torch.ones(4, 6),))
    named = [node.name for node in program.graph.nodes]
    traced = torch.jit.trace(model, torch.ones(4, 6))
    scripted = torch.jit.script(model)
    out = [one(torch.ones(4, 6)).sum().item().hex() for one in (program.module(), traced, scripted)]
    return {"named": named, "out": out, "loaded": early}


@scene
def threads() -> dict[str, Any]:
    """Steps in several threads while others import the compiler, all at once."""
    begin = threading.Barrier(6)
    found: dict[str, str] = {}
    failed: list[str] = []

    def noted(does: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                begin.wait(60)
                does()
            except BaseException as error:  # noqa: BLE001 - said by the process, whatever it is
                failed.append(repr(error))

        return run

    def train(number: int, model: nn.Module) -> None:
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        steps(model, optimizer, 400)
        found[f"model {number}"] = digest(model)

    def load() -> None:
        import torch._dynamo

        assert torch._dynamo.reset is not None

    def load_part() -> None:
        from torch._dynamo.eval_frame import OptimizedModule

        assert OptimizedModule is not None

    models = [core(number) for number in range(4)]
    work = [partial(train, number, model) for number, model in enumerate(models)]
    running = [threading.Thread(target=noted(does)) for does in (*work, load, load_part)]
    for one in running:
        one.start()
    for one in running:
        one.join(120)
    compiled = torch.compile(models[0], backend=backend)
    optimizer = torch.optim.Adam(models[0].parameters(), 0.01)
    steps(compiled, optimizer)
    found["compiled"] = digest(models[0])
    return {**found, "failed": failed, "graphs": COMPILED}


@scene
def forked() -> dict[str, Any]:
    """A child goes on where its parent was, and compiles; the parent does not."""
    model = core()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    steps(model, optimizer)
    early = loaded()
    here, there = multiprocessing.get_context("fork").Pipe()

    def child() -> None:
        steps(torch.compile(model, backend=backend), optimizer)
        there.send([digest(model), COMPILED])

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    told = here.recv()
    process.join(60)
    steps(model, optimizer)
    return {"digest": digest(model), "child": told, "loaded": early}


@scene
def distributed() -> dict[str, Any]:
    """A DDP loop, and one whose DDP is compiled afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        store = torch.distributed.FileStore(str(Path(folder) / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        model = core()
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(parallel.parameters(), 0.1)
        with parallel.no_sync():
            steps(parallel, optimizer, 1)
        steps(parallel, optimizer)
        early = loaded()
        steps(torch.compile(parallel, backend=backend), optimizer)
        fresh = DistributedDataParallel(core())
        steps(fresh, torch.optim.SGD(fresh.parameters(), 0.1))
        torch.distributed.destroy_process_group()
    return {
        "digest": digest(model),
        "fresh": digest(fresh),
        "compiled": COMPILED,
        "loaded": early,
    }


@scene
def along() -> dict[str, Any]:
    """Modules and classes that are there only because the compiler is, or would be."""
    model = core()
    steps(model, torch.optim.SGD(model.parameters(), 0.1))
    with tempfile.TemporaryFile() as file:
        torch.save({"digest": digest(model)}, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    packages = {
        name: (module, set(vars(module)))
        for name, module in sorted(sys.modules.items())
        if name.startswith("torch.") and "__path__" in vars(module)
    }
    early = loaded()
    used = torch.distributed.nn.functional.all_reduce.__name__
    safe = len(torch.serialization.get_safe_globals())
    gained = {
        name: sorted(set(vars(module)) - before) for name, (module, before) in packages.items()
    }
    gained = {name: names for name, names in gained.items() if names}
    return {"used": used, "safe": safe, "gained": gained, "loaded": early}


def run(name: str, there: Any) -> None:
    there.send(SCENES[name]())


def main() -> None:
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    for name in sys.argv[1:] or SCENES:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=run, args=(name, there))
        process.start()
        there.close()
        try:
            told = here.recv()
        except EOFError:
            told = {"failed": "its process ended"}
        process.join(60)
        print(json.dumps({"scene": name, **told}), flush=True)


if __name__ == "__main__":
    main()
