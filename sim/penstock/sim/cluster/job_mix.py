"""The jobs of the cluster experiment of GoldMiner (SIGMOD 2023, section 5.6), drawn from a trace.

Submission times, GPU counts and durations come from an 8-hour window of a real trace; the model of
each job is drawn, half of them from those that need much CPU. The paper's CPU demand per model is
in a figure that the text does not carry over, so `MODELS` is assumed: up to 64 cores per GPU, only
Bert within the hardware's 8, ResNet18 at the 27 that its tuning ends with (Fig. 13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.sim.errors import SimulationError
from penstock.sim.traces.shapes import JobShape

WINDOW_SECONDS: Final = 8 * 3600.0
SHORTEST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 24 * 3600.0
MOST_GPUS: Final = 8


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the milli-cores per GPU at which its data keeps up with its training."""

    name: str
    milli_cpu_per_gpu: int


CPU_HUNGRY: Final = (
    Model("DIN", 64_000),
    Model("WDL", 40_000),
    Model("DeepFM", 32_000),
    Model("ResNet18", 27_000),
    Model("AlexNet", 24_000),
    Model("ShuffleNet_v2", 20_000),
)
MODEST: Final = (
    Model("Inception_v3", 12_000),
    Model("ResNet50", 10_000),
    Model("VGG16", 9_000),
    Model("Bert", 4_000),
)
MODELS: Final = CPU_HUNGRY + MODEST


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job to simulate; it has as many steps as seconds that it would take at full speed."""

    name: str
    submitted_seconds: float
    steps: float
    gpus: int
    model: Model

    @property
    def milli_cpu(self) -> int:
        """CPU with which the job runs at full speed."""
        return self.gpus * self.model.milli_cpu_per_gpu


def draw_jobs(
    trace: Sequence[JobShape],
    load: float,
    gpus: int,
    generator: np.random.Generator,
) -> list[TrainingJob]:
    """Jobs whose work at full speed is `load` times what that many GPUs do in the window.

    A window of the trace is drawn; then jobs out of it, without putting back while there are any.
    Jobs of less than a minute are left out, longer ones cut to a day and to 8 GPUs.

    Raises:
        SimulationError: the trace has no job that could be used.
    """
    usable = [job for job in trace if job.duration_seconds >= SHORTEST_SECONDS]
    if not usable:
        raise SimulationError("the trace has no job of at least a minute")
    pool = _window(usable, generator)
    target = load * gpus * WINDOW_SECONDS
    drawn: list[TrainingJob] = []
    while target > 0:
        again = bool(drawn)
        for index in generator.permutation(len(pool)).tolist():
            if target <= 0:
                break
            shape = pool[index]
            job = TrainingJob(
                name=f"job-{len(drawn):04d}",
                submitted_seconds=(
                    float(generator.uniform(0.0, WINDOW_SECONDS))
                    if again
                    else shape.submitted_seconds
                ),
                steps=min(shape.duration_seconds, LONGEST_SECONDS),
                gpus=min(shape.accelerators, MOST_GPUS, gpus),
                model=_model(generator),
            )
            drawn.append(job)
            target -= job.gpus * job.steps
    return sorted(drawn, key=lambda job: (job.submitted_seconds, job.name))


def _window(usable: Sequence[JobShape], generator: np.random.Generator) -> list[JobShape]:
    """The jobs of a window that starts at a drawn job, with times from the window's start."""
    first = usable[int(generator.integers(len(usable)))].submitted_seconds
    return [
        JobShape(job.submitted_seconds - first, job.duration_seconds, job.accelerators)
        for job in usable
        if first <= job.submitted_seconds < first + WINDOW_SECONDS
    ]


def _model(generator: np.random.Generator) -> Model:
    models = CPU_HUNGRY if generator.random() < 0.5 else MODEST
    return models[int(generator.integers(len(models)))]
