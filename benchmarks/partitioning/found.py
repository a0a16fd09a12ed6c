"""How much of what could move was found, what crosses, and what it costs to match a call.

``share_found``: of the seconds, as recorded, of the calls of a program that a person has labelled
stateless (`STATELESS`, by name, read from the programs and not from what was found), those of the
calls that move. ``bytes``: of a batch (``raw``), of what GoldMiner's Algorithm 1 has cross
(``maximal``), of what crosses here (``chosen``), and of all that is sent here, since the batch
travels beside it (``sent``). ``cuts``: what else could be chosen, with the bytes that cross, the
share of those seconds that moves, and the nanoseconds that a byte would have to cost at least for
it to be the cheapest (it is taken to cost 1).

``match_microseconds``: of the processor, that the training spends on a call of a function, and of a
frozen module, that is matched instead of made: chains of two lengths by hand, in one process and
in turns. Beside them what is in a matched call of a module whoever matches it: PyTorch's own call
of a module that does nothing (``torch_module``), the same with a hook before and after it
(``torch_module_hooked``), a tensor without memory that stands for the result
(``tensor_without_memory``), and the look at versions, memory and gradients of the module's
tensors, at its parts and at the first bytes of one tensor (``look_at_module``).
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace
from typing import Any, Final

from benchmarks.goals import Goal, at_least, at_most
from benchmarks.partitioning.workloads import ALL, WORKLOADS, train

STATELESS: Final[dict[str, tuple[str, ...]]] = {
    "frozen-cnn": ("Tensor.float", "Tensor.div", "Tensor.sub", "Sequential", "Tensor.mean"),
    "diffusion": (
        "Tensor.to", "Tensor.div", "Tensor.sub", "Sequential", "Tensor.chunk", "Embedding",
        "TransformerEncoderLayer", "Tensor.mean",
    ),
    "clip-probe": (
        "Tensor.float", "Tensor.div", "Tensor.sub", "Sequential", "Tensor.mean",
        "nn.functional.normalize", "functional.normalize", "Tensor.__getitem__", "cat",
    ),
    "clicks": (
        "Tensor.mul", "Tensor.add", "Tensor.__rshift__", "Tensor.__xor__", "Tensor.sum",
        "Tensor.__and__", "Tensor.remainder", "functional.unique", "unique", "bucketize",
        "Tensor.float", "Tensor.div",
    ),
    "mel": (
        "functional.stft", "stft", "Tensor.abs", "Tensor.pow", "Tensor.__rpow__",
        "Tensor.__rmatmul__", "Tensor.matmul", "clamp", "Tensor.log10", "Tensor.add", "Tensor.div",
    ),
    "two-stage": (
        "Tensor.float", "Tensor.div", "Tensor.sub", "Sequential", "nn.functional.gelu",
        "_C._nn.gelu", "Conv2d", "Tensor.mean",
    ),
    "ragged-last-batch": ("Tensor.float", "Tensor.div", "Tensor.sub", "Sequential", "Tensor.mean"),
}  # fmt: skip
"""By program the labels of calls that read nothing trained, random or written."""
FOUND_GOAL: Final = 0.98
CLICKS_BYTES_GOAL: Final = 0.5
MATCH_GOAL: Final = 15.0
MODULE_GOAL: Final = 10.0
LENGTHS: Final = (30, 60)
ROUNDS: Final = 3
STEPS: Final = 40


def run(names: list[str], steps: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures, under the names that ``found`` has, and their goals."""
    chosen = [one.name for one in WORKLOADS if one.name in STATELESS]
    chosen = [name for name in chosen if "all" in names or name in names]
    told = ("--partition", "auto")
    rows = [_row(one) for one in train(chosen, told, 1, steps, 2, ALL)] if chosen else []
    match = {
        "function": _microseconds(module=False),
        "module": _microseconds(module=True),
        **_in_a_matched_call(),
    }
    figures = {"workloads": rows, "match_microseconds": match}
    goals = [
        at_most("CPU microseconds to match a call of a function", MATCH_GOAL, match["function"]),
        at_most("CPU microseconds to match one of a module", MODULE_GOAL, match["module"]),
    ]
    for row in rows:
        name, size = row["workload"], row["bytes"]
        what = f"{name}: share of the stateless seconds that moves"
        goals.append(at_least(what, FOUND_GOAL, row["share_found"]))
        goals.append(at_most(f"{name}: bytes that cross", size["maximal"], size["chosen"]))
        goals.append(at_most(f"{name}: bytes sent, batch and all", size["maximal"], size["sent"]))
        if name == "clicks":
            most = int(CLICKS_BYTES_GOAL * size["maximal"])
            goals.append(at_most("clicks: bytes that cross, of half", most, size["chosen"]))
    return figures, goals


def _row(program: Any) -> dict[str, Any]:
    name, size = program["name"], program["bytes"]
    calls = [one for one in program["calls"] if one["label"] in STATELESS[name]]
    whole = sum(one["seconds"] for one in calls)
    return {
        "workload": name,
        "share_found": round(sum(one["seconds"] for one in calls if one["moves"]) / whole, 3)
        if whole
        else 0.0,
        "stays": sorted({f"{one['label']}: {one['why']}" for one in calls if not one["moves"]}),
        "bytes": {**size, "sent": size["raw"] + size["chosen"]},
        "cuts": [
            {
                "bytes": one["bytes"],
                "share": round(one["seconds"] / whole, 3) if whole else 0.0,
                "byte_nanoseconds": round(1e9 * one["byte_seconds"], 1),
            }
            for one in program["cuts"]
        ],
    }


def _microseconds(*, module: bool) -> float | None:
    """Of a matched call: by the difference of two chains, the median of some in turns.

    None where noise is larger than what is measured.
    """
    with _one_thread():
        short, long = (_Chain(length, module=module) for length in LENGTHS)
        found = [long.step_seconds() - short.step_seconds() for _ in range(ROUNDS * STEPS)]
        for one in (short, long):
            one.check()
    each = 1e6 * median(found) / (LENGTHS[1] - LENGTHS[0])
    return round(each, 1) if each > 0 else None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Others of PyTorch's use the processor while they wait."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Chain:
    """A training whose steps have some calls, one after the other, that are all matched."""

    def __init__(self, length: int, *, module: bool) -> None:
        import torch

        from penstock.data.torchpartition.loader_steps import LoaderSteps

        size, rows = 256, 64 if module else 2048
        layers = [torch.nn.Linear(size, size) for _ in range(length if module else 0)]
        for one in layers:
            one.eval().requires_grad_(requires_grad=False)
        head = torch.nn.Linear(size, 1)

        @torch.no_grad()
        def prefix(values: Any) -> Any:
            for number in range(length):
                values = layers[number](values) if module else values * 1.01
            return values.sum(1, keepdim=True) + values

        def step(batch: Any) -> None:
            head(prefix(batch[0])).sum().backward()

        self._step, self._steps = step, 0
        self._loader = loader = LoaderSteps("the chain")
        loader.begin_epoch()
        for _ in range(6):
            step(loader.deliver([torch.ones(rows, size)]))
            loader.end_step()
        calls = loader.begin_epoch()
        if calls is None:
            raise RuntimeError(f"the chain does not move: {loader.state.proof.why}")
        self._packed = pickle.dumps(calls([torch.ones(rows, size)]))
        for _ in range(20):
            self.step_seconds()
        self._before, self._steps = loader.moved, 0

    def step_seconds(self) -> float:
        """Of the processor, in the training, of its next step."""
        given = pickle.loads(self._packed)
        self._steps += 1
        began = time.thread_time()
        self._step(self._loader.deliver(given))
        self._loader.end_step()
        return time.thread_time() - began

    def check(self) -> None:
        """Raises RuntimeError unless nearly all steps have used what came."""
        moved = self._loader.moved - self._before
        if moved < self._steps - 1:
            raise RuntimeError(f"{moved} of {self._steps} steps have used what came")


def _in_a_matched_call() -> dict[str, float]:
    """Microseconds of the processor, each by itself; see the module's docstring."""
    import torch

    from penstock.data.offloading.frozen import Frozen
    from penstock.data.torchpartition.observation.deferred import Meta, without_numbers

    values, nobody = torch.ones(64, 256), SimpleNamespace(number=0, open=False)
    meta = Meta.of(values)
    plain, hooked = torch.nn.Identity(), torch.nn.Identity()
    hooked.register_forward_pre_hook(lambda *given: None)
    hooked.register_forward_hook(lambda *given: None)
    linear = torch.nn.Linear(256, 256).eval().requires_grad_(requires_grad=False)
    with _one_thread():
        return {
            "torch_module": _each(lambda: plain(values)),
            "torch_module_hooked": _each(lambda: hooked(values)),
            "tensor_without_memory": _each(lambda: without_numbers(meta, nobody, 0)),
            "look_at_module": _each(Frozen(linear).change),
        }


def _each(call: Callable[[], object]) -> float:
    """Microseconds of the processor: the median of some rounds."""
    found = []
    for _ in range(STEPS):
        began = time.thread_time()
        for _ in range(1000):
            call()
        found.append(1e3 * (time.thread_time() - began))
    return round(median(found), 1)
