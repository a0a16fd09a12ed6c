"""Clusters, pods and jobs drawn at random, for when there are no trace files.

The shapes follow what the public traces have in common, not any one of them: most pods ask for one
accelerator or a part of one, gangs come in powers of two, CPU demand per accelerator is spread over
more than a factor of ten, durations are log-normal. Everything is a function of the generator.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request
from penstock.sim.traces.shapes import JobShape, NodeShape

_GIBIBYTE: Final = 1024**3

# accelerators, cores, GiB, part of the nodes
_NODE_KINDS: Final = (
    (8, 96, 768, 0.45),
    (8, 128, 1024, 0.05),
    (4, 48, 384, 0.15),
    (2, 64, 512, 0.35),
)
_GANGS: Final = ((1, 0.84), (2, 0.06), (4, 0.05), (8, 0.05))
_CORES_PER_ACCELERATOR: Final = ((2, 0.1), (4, 0.2), (8, 0.3), (12, 0.25), (16, 0.1), (24, 0.05))
_SHARES: Final = (200, 250, 500, 600, 800)
_SHARED_PART: Final = 0.35
_CPU_ONLY_PART: Final = 0.12


def generate_nodes(count: int, generator: np.random.Generator) -> list[NodeShape]:
    """A cluster of that many nodes with 2, 4 or 8 accelerators each."""
    weights = np.array([kind[3] for kind in _NODE_KINDS])
    kinds = generator.choice(len(_NODE_KINDS), size=count, p=weights / weights.sum())
    nodes = []
    for index, kind in enumerate(kinds.tolist()):
        accelerators, cores, gibibytes, _ = _NODE_KINDS[kind]
        nodes.append(
            NodeShape(
                name=f"node-{index:05d}",
                milli_cpu=1000 * cores,
                memory_bytes=gibibytes * _GIBIBYTE,
                accelerators=accelerators,
                model=f"model-{kind}",
            )
        )
    return nodes


def generate_pods(count: int, generator: np.random.Generator) -> list[Request]:
    """Pods with and without accelerators, some sharing one."""
    return [_pod(generator) for _ in range(count)]


def _pod(generator: np.random.Generator) -> Request:
    if generator.random() < _CPU_ONLY_PART:
        cores = int(generator.choice([2, 4, 8, 16, 32]))
        return Request(milli_cpu=1000 * cores, memory_bytes=2 * cores * _GIBIBYTE)
    per_accelerator = _draw(_CORES_PER_ACCELERATOR, generator)
    if generator.random() < _SHARED_PART:
        milli = int(generator.choice(_SHARES))
        cores_milli = max(1000, per_accelerator * milli)
        return Request(cores_milli, 4 * _GIBIBYTE, accelerators=1, accelerator_milli=milli)
    gang = _draw(_GANGS, generator)
    milli_cpu = min(1000 * gang * per_accelerator, 96_000)
    return Request(milli_cpu, gang * 16 * _GIBIBYTE, gang, WHOLE_DEVICE_MILLI)


def generate_jobs(
    count: int, span_seconds: float, generator: np.random.Generator
) -> list[JobShape]:
    """Jobs with 1 to 8 accelerators; arrivals uniform, durations log-normal (median 26 min)."""
    submitted = np.sort(generator.uniform(0.0, span_seconds, size=count))
    durations = np.clip(generator.lognormal(mean=np.log(1560.0), sigma=1.9, size=count), 60, None)
    gangs = ((1, 0.7), (2, 0.1), (4, 0.1), (8, 0.1))
    return [
        JobShape(float(when), float(duration), _draw(gangs, generator))
        for when, duration in zip(submitted, durations, strict=True)
    ]


def _draw(table: tuple[tuple[int, float], ...], generator: np.random.Generator) -> int:
    weights = np.array([weight for _, weight in table])
    index = int(generator.choice(len(table), p=weights / weights.sum()))
    return table[index][0]
