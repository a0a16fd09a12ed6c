"""How fast a job with parameter servers really trains: the truth of the simulation.

The paper's model (DLRover, section 4.1, equation 1) with what it leaves out:

    t_step = t_io + o N_ps + (W_c + u N_ps) / min(w - g, P) + max_j r_j
    r_j    = theta D_j / min(s_j, c) + v (D_j / s_j) rho_j^e / (1 - rho_j)
    D_j    = W_u share_j + h,  rho_j = R D_j / s_j,  R = sum over workers of 1 / t_step

W_c and W_u are core-seconds per step. Each server adds `o` to the worker's graph, each worker burns
`g` cores beside its computation, an update runs on at most `c` cores of a server and a part `theta`
of its time is not hidden behind computation, and updates of several workers queue (the last term).
A question costs whoever asks and answers it something, however little it is about (u and h, in
core-seconds): nothing for models as large as the paper's, most of a step for small ones.

A pod of w cores is taken for a machine that has no more. Where w is a quota, as CFS has it, a
process runs at full speed until it has used it up, and what it does not use while it waits it has
later (``bursts``): then waiting is hidden behind standing still,

    t_step = max((W_c + u N_ps) / P + t_io + o N_ps + max_j r_j,  (W_c + u N_ps) / (w - g))

and r_j has c in place of min(s_j, c).
Where something outside the job gives all its workers together no more than a number of steps per
second (``bound_steps_per_second``: a shared disk, a licence, a feed), R is at most that, and the
workers stand still for the rest.
Parameters are spread over the servers tensor by tensor, in turn, so that the shares are uneven and
change with the number of servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

GIB: Final = 1024**3


@dataclass(frozen=True, kw_only=True)
class PsJobModel:
    """One job. Times in seconds, work in core-seconds per step, sizes in bytes.

    `tensors` are the shares of the update work, in the order in which they are placed.
    """

    name: str
    io_seconds: float
    server_io_seconds: float
    compute_core_seconds: float
    compute_cores: float
    worker_idle_cores: float
    update_core_seconds: float
    update_cores: float
    exposed: float
    queueing: float
    queueing_exponent: float
    tensors: tuple[float, ...]
    asking_core_seconds: float = 0.0
    answering_core_seconds: float = 0.0
    bursts: bool = False
    bound_steps_per_second: float = math.inf
    parameter_bytes: float
    worker_bytes: float
    steps: int
    noise: float = 0.02

    @cached_property
    def _total(self) -> float:
        return math.fsum(self.tensors)

    def shares(self, servers: int) -> tuple[float, ...]:
        """The part of the update work on each of `servers` servers; they add up to 1."""
        loads = [0.0] * servers
        for index, tensor in enumerate(self.tensors):
            loads[index % servers] += tensor
        return tuple(load / self._total for load in loads)

    def worker_work(self, servers: int) -> float:
        """Core-seconds of a step on the worker."""
        return self.compute_core_seconds + self.asking_core_seconds * servers

    def server_work(self, servers: int) -> list[float]:
        """Core-seconds of a step on each server."""
        part = self.answering_core_seconds
        return [self.update_core_seconds * share + part for share in self.shares(servers)]


@dataclass(frozen=True, kw_only=True)
class PsConfig:
    """What a job has: cores of each worker and of each server.

    `slow_workers` and `slow_servers` give single ranks a part of their cores (a slow machine).
    """

    workers: tuple[float, ...]
    servers: tuple[float, ...]
    slow_workers: Mapping[int, float] = field(default_factory=dict)
    slow_servers: Mapping[int, float] = field(default_factory=dict)

    @property
    def cores(self) -> float:
        """What counts against the quota."""
        return math.fsum(self.workers) + math.fsum(self.servers)


@dataclass(frozen=True, slots=True)
class PsSpeed:
    """The speed of a configuration, in steps per second, and the cores in use."""

    steps_per_second: float
    worker_steps_per_second: tuple[float, ...]
    worker_cores: tuple[float, ...]
    server_cores: tuple[float, ...]


def residence(model: PsJobModel, work: float, cores: float, speed: float) -> float:
    """Seconds that a step waits for a server with `work` core-seconds per step of it."""
    load = speed * work / cores
    if load >= 1:
        return math.inf
    queue: float = load**model.queueing_exponent / (1 - load)
    waiting = model.queueing * (work / cores) * queue
    at_once = model.update_cores if model.bursts else min(cores, model.update_cores)
    return model.exposed * work / at_once + waiting


def think_seconds(model: PsJobModel, cores: float, servers: int) -> float:
    """Seconds of a step outside the servers, on a worker of `cores` cores."""
    usable = max(min(cores - model.worker_idle_cores, model.compute_cores), 0.05)
    io = model.io_seconds + model.server_io_seconds * servers
    return io + model.worker_work(servers) / usable


def speed(model: PsJobModel, config: PsConfig) -> PsSpeed:
    """The steady speed of `config`: the one R at which workers and servers agree."""
    servers = [
        cores * config.slow_servers.get(rank, 1.0) for rank, cores in enumerate(config.servers)
    ]
    workers = [
        cores * config.slow_workers.get(rank, 1.0) for rank, cores in enumerate(config.workers)
    ]
    if not workers or not servers:
        nothing = (0.0,) * len(workers)
        return PsSpeed(0.0, nothing, nothing, (0.0,) * len(servers))
    work = model.server_work(len(servers))
    alone = {cores: _alone(model, cores, len(servers)) for cores in set(workers)}
    counts: dict[float, int] = {}
    for cores in workers:
        counts[cores] = counts.get(cores, 0) + 1
    sizes = [(count, *alone[cores]) for cores, count in counts.items()]
    # Of servers of one size the one with the most work is the last to answer.
    most: dict[float, float] = {}
    for cores, part in zip(servers, work, strict=True):
        most[cores] = max(part, most.get(cores, 0.0))
    bound = min(cores / part for cores, part in zip(servers, work, strict=True) if part > 0)
    bound = min(bound, model.bound_steps_per_second)
    low, high = 0.0, bound
    for _ in range(60):
        middle = (low + high) / 2
        wait = max(residence(model, part, cores, middle) for cores, part in most.items())
        reached = sum(count / max(own + wait, least) for count, own, least in sizes)
        low, high = (middle, high) if reached > middle else (low, middle)
    wait = max(residence(model, part, cores, low) for cores, part in most.items())
    of_size = {cores: 1 / max(own + wait, least) for cores, (own, least) in alone.items()}
    each = tuple(of_size[cores] for cores in workers)
    # The sum of the workers' speeds is the one that is reported: it and `low` agree to 1e-15.
    total = math.fsum(each)
    if total > bound:  # nothing else keeps the workers to a bound from outside, or to servers
        # without a queue
        each = tuple(own * bound / total for own in each)
        total = bound
    return PsSpeed(
        steps_per_second=total,
        worker_steps_per_second=each,
        worker_cores=tuple(
            model.worker_idle_cores + model.worker_work(len(servers)) * own for own in each
        ),
        server_cores=tuple(total * part for part in work),
    )


def _alone(model: PsJobModel, cores: float, servers: int) -> tuple[float, float]:
    """Of a step on a worker of `cores` cores: its seconds less the wait for servers, and the least
    that it takes however long it waits.
    """
    if not model.bursts:
        return think_seconds(model, cores, servers), 0.0
    usable = max(cores - model.worker_idle_cores, 0.05)
    return think_seconds(model, math.inf, servers), model.worker_work(servers) / usable


def linear_speed(model: PsJobModel, workers: int, cores: float, server_cores: float) -> float:
    """`workers` times the speed of one worker alone with one server: the paper's ideal."""
    one = speed(model, PsConfig(workers=(cores,), servers=(server_cores,)))
    return workers * one.steps_per_second
