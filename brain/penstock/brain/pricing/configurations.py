"""The configurations that a job may be given, with throughput and price, from what it has shown.

Of a job with parameter servers they come from the model that `fitted_ps` fits: for parts of the
speed that it could have, the fewest cores that the model finds enough. Of an AllReduce job they are
the counts of workers that were measured: `scale_allreduce` has no model of others, and none is
made up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.brain.model.ps_model import Fit
from penstock.brain.model.ps_search import Bounds, Choice, best, least
from penstock.brain.pricing.problem import Option, Prices, Resources, useful

SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
"""Parts of the greatest speed, for each of which the fewest cores are looked for."""


def of_servers(
    fitted: Fit,
    bounds: Bounds,
    server_counts: Sequence[int],
    prices: Prices,
    *,
    worker_memory_bytes: int,
    server_memory_bytes: int,
    measured: Sequence[Choice] = (),
) -> tuple[tuple[Choice, Option], ...]:
    """Configurations of a job with parameter servers, the cheapest first, in steps per second.

    None where no configuration is within the bounds.

    Args:
        fitted: the model of the job.
        bounds: cores and counts that it may have.
        server_counts: the numbers of servers to choose among.
        prices: of a core and of memory.
        worker_memory_bytes: of one worker.
        server_memory_bytes: of all servers together, which hold the same parameters however many.
        measured: configurations to choose among as well, with the speed that they made.
    """
    top = best(fitted, bounds, server_counts)
    if top is None:
        return ()
    found = [*measured, top]
    for share in SHARES:
        wanted = share * top.steps_per_second
        choices = (least(fitted, bounds, count, wanted) for count in server_counts)
        possible = [choice for choice in choices if choice is not None]
        if possible:
            found.append(min(possible, key=lambda choice: choice.cores))
    choices_by_name: dict[str, Choice] = {}
    for choice in found:
        choices_by_name.setdefault(_name(choice), choice)
    kept = useful(
        servers_option(choice, prices, worker_memory_bytes, server_memory_bytes)
        for choice in choices_by_name.values()
    )
    return tuple((choices_by_name[option.name], option) for option in kept)


def of_workers(
    speeds: Mapping[int, float], worker: Resources, prices: Prices
) -> tuple[Option, ...]:
    """Configurations of an AllReduce job: the counts of workers whose speed is known.

    Args:
        speeds: throughput by count, as measured.
        worker: what one worker has.
        prices: of all resources.
    """
    return useful(_worker_options(speeds, worker, prices))


def _worker_options(
    speeds: Mapping[int, float], worker: Resources, prices: Prices
) -> Iterable[Option]:
    for count, throughput in speeds.items():
        resources = Resources(
            milli_cpu=worker.milli_cpu * count,
            memory_bytes=worker.memory_bytes * count,
            accelerators=worker.accelerators * count,
        )
        yield Option(
            name=f"{count} worker{'s' * (count > 1)}",
            throughput=throughput,
            resources=resources,
            cost_per_hour=resources.cost_per_hour(prices),
        )


def servers_option(
    choice: Choice, prices: Prices, worker_memory_bytes: int, server_memory_bytes: int
) -> Option:
    """A configuration with its price; memory as for `of_servers`."""
    resources = Resources(
        milli_cpu=choice.cores * 1000,
        memory_bytes=choice.workers * worker_memory_bytes + server_memory_bytes,
    )
    return Option(
        name=_name(choice),
        throughput=choice.steps_per_second,
        resources=resources,
        cost_per_hour=resources.cost_per_hour(prices),
    )


def _name(choice: Choice) -> str:
    servers = "+".join(str(cores) for cores in choice.server_cores)
    return f"{choice.workers} workers of {choice.worker_cores}, servers of {servers} cores"
